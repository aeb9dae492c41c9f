"""What becomes of a small change without noise, memory times at N bits, spectra of chaos."""

from functools import partial
from pathlib import Path

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import periodogram

from bookmaker.tables import Rows, Table, stored
from compendium.c34_memory_beyond_window.messages import (
    measured_information,
    message_direction,
    predicted_information,
    trace_message,
)
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.mean_field import poclopez2024_context, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import MOTIONS, attractor_window, chaotic_contexts
from spinformer.dmft.settling import perturbed_replicas

STRENGTH = 0.01  # of a message, in standard deviations of the noise of a token of one bit
LEAST = 0.1  # bits below which a message counts as forgotten
SIZES = (9999, 31_623, 99_999, 316_227, 999_999, 3_162_276, 9_999_999, 31_622_775, 99_999_999)
# Sizes of a second table, of other starts, which the first did not choose its thresholds by.
_ENDS = (999_999, 99_999_999)
# Tokens that a message is followed for, where not 1,024.
LONGEST = {"quasi-periodic": 16_384}


def autocorrelation(signal: np.ndarray, *, lags: int, unbiased: bool = False) -> np.ndarray:
    """Autocorrelation r_0 … r_lags of a signal (..., n) of variance s² along its last axis.

    1/(n s²) sum_t (x_t − x̄)(x_{t+l} − x̄), or with 1/(n − l). A constant has none: ValueError.
    """
    n = signal.shape[-1]
    centred = signal - signal.mean(axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    if not (variance > 1e-24 * (1.0 + np.max(signal**2, initial=0.0))).all():
        raise ValueError("signal must vary, got a constant")
    padded = next_fast_len(n + lags, real=True)
    sums = irfft(np.abs(rfft(centred, padded)) ** 2, padded)[..., : lags + 1]
    return sums / ((n - np.arange(lags + 1) if unbiased else n) * variance)


def onset(distance: np.ndarray, *, level: float) -> tuple[float, int]:
    """When distances (starts, steps + 1) first exceed `level`: median, and how many ever do."""
    above = distance > level
    reached = above.any(axis=1)
    first = np.where(reached, above.argmax(axis=1), np.inf)
    return float(np.median(first)), int(reached.sum())


def dephased_distance(network: Network, motion: str) -> float:
    """Rms distance of the overlaps of two runs that have nothing in common but the clock."""
    chosen = MOTIONS[motion]
    start = poclopez2024_context(network, steps=2000, decimals=8)
    steps = 20_000 - 20_000 % network.positions
    transient = max(chosen.transient, 20_000)
    orbit, _ = trajectory(network, start, beta=chosen.beta, steps=steps, transient=transient)
    by_position = orbit.reshape(-1, network.positions, network.features)
    return float(np.sqrt(2.0 * by_position.var(axis=0).sum(axis=1).mean()))


def perturbed_distance(
    network: Network, motion: str, *, size: float, starts: int, steps: int, seed: Seed = 0
) -> np.ndarray:
    """Distance (starts, steps + 1) of overlaps; the newest attention vector moved by `size`."""
    beta = MOTIONS[motion].beta
    spacing = MOTIONS[motion].spacing
    rng = numpy_generator(seed)
    if spacing:
        start = poclopez2024_context(network, steps=2000, decimals=8)
        settle = MOTIONS[motion].transient
        _, start = trajectory(network, start, beta=beta, steps=0, transient=settle)
        states = [start.attention]
        # Along one orbit further apart than in the table, to spread over the attractor.
        for _ in range(starts - 1):
            ahead = network.positions * (1 + 7 * spacing)
            _, start = trajectory(network, start, beta=beta, steps=0, transient=ahead)
            states.append(start.attention)
        attention = np.round(states, 8)
    else:
        start = chaotic_contexts(network, motion, seed=rng, count=starts)
        attention = start.attention
    direction = rng.standard_normal((starts, network.features))
    moved = attention.copy()
    moved[:, 0] += size * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    both = Context(np.concatenate([attention, moved]), start.position)
    overlaps, _ = trajectory(network, both, beta=beta, steps=steps + 1)
    return np.asarray(np.linalg.norm(overlaps[:starts] - overlaps[starts:], axis=-1))


def forgotten_at(delays: np.ndarray, *, information: np.ndarray) -> float:
    """Delay at which `information` falls below `LEAST` at two delays in a row, or at the last.

    Interpolated in ln(delay); 0 if it is below from the first on, infinite if it never falls.
    """
    below = information <= LEAST
    lasting = below & np.append(below[1:], True)
    if lasting[0] or not lasting.any():
        return 0.0 if lasting[0] else float("inf")
    # Above at the delay before: two below in a row would have lasted from the earlier on.
    last = int(np.argmax(lasting)) - 1
    before, after = information[last : last + 2]
    share = (before - LEAST) / (before - after)
    return float(delays[last] * (delays[last + 1] / delays[last]) ** share)


def growth_powers(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Power of N by which times, of at least half a token, grow over a factor of 100, each."""
    few = np.maximum(few, 0.5)
    many = np.maximum(many, 0.5)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.log(many / few) / np.log(100.0), nan=0.0, posinf=np.inf)


def ladder(longest: int) -> np.ndarray:
    """Delays 1, 2, 3, 4, 6, 8, 11, … up to `longest`, about half an octave apart."""
    return np.unique(np.rint(2.0 ** np.arange(0.0, np.log2(longest) + 1e-9, 0.5)).astype(int))


@stored(
    "memory_times",
    parameter_product(motion=MOTIONS, start=range(1, 11)),
    seconds=4.0,
    within={"measured": 5.0, "dephased": 1.0},
)
def memory_times_table(motion: str, start: int, *, sizes: tuple[int, ...] = SIZES) -> Rows:
    """Memory times of one message at every size, −1 where longer than was looked at.

    fisher: by linear noise. dephased: when the predicted deviation reaches the distance of runs
    that share only the clock. measured: from sampled texts.
    """
    network = Network.poclopez2024()
    beta = MOTIONS[motion].beta
    window, position = attractor_window(network, motion, number=start)
    direction = message_direction(network, start)
    steps = LONGEST.get(motion, 1024)
    far = dephased_distance(network, motion)
    memory, spread = trace_message(
        network, window, direction, beta=beta, position=position, steps=steps
    )
    rows = []
    for row, size in enumerate(sizes):
        bits = predicted_information(memory, size=size, strength=STRENGTH)[1:]
        fisher = forgotten_at(np.arange(1, steps + 1), information=bits)
        apart = spread[1:] / np.sqrt(size) > far
        dephased = float(apart.argmax() + 1) if apart.any() and far > 1e-6 else float("inf")
        # A message that is a little too strong for linear noise may last far longer than it says.
        reach = steps
        if motion == "quasi-periodic":
            reach = min(max(64, int(2.5 * min(fisher, dephased, steps))), steps)
        delays = ladder(reach)
        information = measured_information(
            network,
            window,
            direction,
            size=size,
            beta=beta,
            position=position,
            strength=STRENGTH,
            delays=delays,
            runs=400,
            seed=100 * start + row,
        )
        measured = forgotten_at(delays, information=information)
        times = {"fisher": fisher, "dephased": dephased, "measured": measured}
        shown = {name: time if np.isfinite(time) else -1.0 for name, time in times.items()}
        rows.append({"size": size} | shown)
    return rows


@stored("spectra", parameter_product(seed=range(10)), seconds=0.2)
def spectra_table(seed: int) -> Rows:
    """Spectrum and autocorrelation of m^o_1 at β = 1.266 over 64 copies of the published context.

    below: share of the variance below the frequency 1/T. half, …: |X|²/n of the line at frequency
    ½, mean and range. early, …: largest |autocorrelation| at `ends`, averaged over the orbits
    first.
    """
    network = Network.poclopez2024()
    samples = 20_000
    # Of random contexts three in a thousand end on the torus that coexists with this chaos.
    starts = perturbed_replicas(
        poclopez2024_context(network, steps=100_000, decimals=8), count=64, seed=seed
    )
    orbit_overlaps, _ = trajectory(network, starts, beta=1.266, steps=samples, transient=100_000)
    frequency, power = periodogram(orbit_overlaps[..., 0])
    below = power[:, frequency < 1.0 / network.context].sum(axis=1)
    half = power[:, -1]
    shown = {
        "below": (below / power.sum(axis=1)).mean(),
        "half": half.mean(),
        "half_least": half.min(),
        "half_most": half.max(),
    }
    mean = np.abs(autocorrelation(orbit_overlaps[..., 0], lags=2000).mean(axis=0))
    ends = {"early": (1, 20), "middle": (40, 80), "late": (160, 320), "rest": (1000, 2000)}
    for name, (low, high) in ends.items():
        shown[name] = mean[low : high + 1].max()
    return rows_of(shown)


OTHER_TIMES = Table(
    path=Path(__file__).with_name("other_times.csv"),
    units=parameter_product(motion=MOTIONS, start=range(11, 21)),
    rows=partial(memory_times_table.rows, sizes=_ENDS),
    seconds=1.5,
    within={"measured": 5.0, "dephased": 1.0},
)
