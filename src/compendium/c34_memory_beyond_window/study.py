"""Memory times at N bits, predicted and measured, and spectra of chaotic orbits: the tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.common.phase_transitions import protocol_start
from compendium.common.windows import (
    MOTIONS,
    dephased_distance,
    measured_information,
    message_direction,
    message_start,
    predicted_information,
    trace_message,
)
from spinformer.core.checks import check_array, check_real
from spinformer.core.signals import autocorrelation, spectrum
from spinformer.dmft.lifetimes import replicas
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import Network

STRENGTH = 0.01  # of a message, in standard deviations of the noise of a token of one bit
LEAST = 0.1  # bits below which a message counts as forgotten
SIZES = (
    *(9999, 31_623, 99_999, 316_227, 999_999, 3_162_276, 9_999_999, 31_622_775),
    99_999_999,
)
STARTS = range(1, 11)
_LONGEST = 16_384
_RUNS = 400


def forgotten_at(delays: np.ndarray, *, information: np.ndarray, least: float = LEAST) -> float:
    """Delay at which `information` falls below `least` for good, between two ascending delays.

    For good: at two delays in a row, or at the last. Interpolated in ln(delay); 0 if it is below
    from the first on, infinite if it never falls.

    >>> float(forgotten_at(np.array([1, 2, 4, 8]), information=np.array([1.0, 0.3, 0.1, 0.0])))
    4.0
    """
    delays = check_array("delays", delays, ndim=1, low=1.0)
    information = check_array("information", information, shape=delays.shape)
    least = check_real("least", least)
    below = information <= least
    lasting = below & np.append(below[1:], True)
    if not lasting.any():
        return float("inf")
    first = int(np.argmax(lasting))
    if first == 0:
        return 0.0
    before, after = information[first - 1], information[first]
    if before <= least:  # one delay below, one above, then below for good
        return float(delays[first])
    share = (before - least) / (before - after)
    return float(delays[first - 1] * (delays[first] / delays[first - 1]) ** share)


def median_interval(samples: np.ndarray) -> tuple[float, float, float]:
    """Median of n ≥ 6 samples, their second smallest and their second largest; ∞ is allowed.

    The two ends hold the median of what the samples are drawn from with probability
    1 − 2 (1 + n)/2ⁿ, 0.979 for ten, whatever the distribution.

    >>> median_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, np.inf]))
    (3.5, 2.0, 5.0)
    """
    if np.ndim(samples) != 1 or len(samples) < 6 or np.isnan(samples).any():
        raise ValueError(f"samples must be six numbers or more, got {samples!r:.60}")
    ordered = np.sort(samples)
    return float(np.median(ordered)), float(ordered[1]), float(ordered[-2])


def ladder(longest: int) -> np.ndarray:
    """Delays 1, 2, 3, 4, 6, 8, 11, … up to `longest`, about half an octave apart.

    >>> ladder(12)
    array([ 1,  2,  3,  4,  6,  8, 11])
    """
    halves = np.arange(0.0, np.log2(longest) + 1e-9, 0.5)
    return np.unique(np.rint(2.0**halves).astype(int))


@cache
def _dephased(motion: str) -> float:
    return dephased_distance(Network.document(), motion)


def memory_rows(
    motion: str, start: int, *, sizes: tuple[int, ...] = SIZES, runs: int = _RUNS
) -> Rows:
    """Memory times of one message at every size, one row each.

    fisher: delay at which the prediction of linear noise falls below `LEAST`. dephased: delay at
    which the predicted deviation reaches the distance of runs that share only the clock, where
    noise is linear no more. measured: the delay from sampled texts. −1 stands for infinite: not
    within the tokens that were looked at, 16,384 in quasi-periodic motion and 1,024 elsewhere.

    >>> row, = memory_rows("driven", 0, sizes=(9999,), runs=100)
    >>> row["size"], row["dephased"]
    (9999, -1.0)
    """
    network, beta = Network.document(), MOTIONS[motion][0]
    window, position = message_start(network, motion, number=start)
    direction = message_direction(network, start)
    steps = _LONGEST if motion == "quasi-periodic" else 1024
    trace = trace_message(
        network, beta, window=window, position=position, direction=direction, steps=steps
    )
    delays = np.arange(1, steps + 1)
    far = _dephased(motion)
    rows = []
    for row, size in enumerate(sizes):
        bits = predicted_information(trace, size=size, strength=STRENGTH)[1:]
        fisher = forgotten_at(delays, information=bits)
        apart = trace.spread[1:] / np.sqrt(size) > far
        dephased = float(delays[apart.argmax()]) if apart.any() and far > 1e-6 else float("inf")
        # A message that is a little too strong for linear noise may last far longer than it says.
        reach = steps
        if motion == "quasi-periodic":
            reach = min(max(64, int(2.5 * min(fisher, dephased, steps))), steps)
        looked = ladder(reach)
        found, _ = measured_information(
            network,
            size,
            beta=beta,
            window=window,
            position=position,
            direction=direction,
            strength=STRENGTH,
            delays=looked,
            runs=runs,
            seed=100 * start + row,
        )
        times = (fisher, dephased, forgotten_at(looked, information=found))
        shown = (time if np.isfinite(time) else -1.0 for time in times)
        names = ("fisher", "dephased", "measured")
        rows.append({"size": size, **dict(zip(names, shown, strict=True))})
    return rows


def spectrum_row(seed: int, *, orbits: int = 64, samples: int = 20_000) -> Rows:
    """Spectrum and autocorrelation of m^o_1 in the chaos at β = 1.266, from the document's context.

    orbits: how many copies of it, moved apart by 1e-10. below: mean share of the variance below
    the frequency 1/T of the window. half, half_least, half_most: |X|²/n of the line at frequency
    ½, mean and range over the orbits. early, middle, late, rest: largest |autocorrelation|,
    averaged over the orbits first, at lags 1 to 20, 40 to 80, 160 to 320 and 1,000 to 2,000
    (fewer samples: no such lags, NaN).

    >>> row, = spectrum_row(0, orbits=2, samples=1000)
    >>> bool(0.4 < row["below"] < 0.8)
    True
    """
    network = Network.document()
    # Of random contexts three in a thousand end on the torus that coexists with this chaos.
    starts = replicas(protocol_start(network, steps=100_000), count=orbits, seed=seed)
    found, _ = trajectory(network, starts, beta=1.266, steps=samples, transient=100_000)
    spectra = [spectrum(orbit) for orbit in found[..., 0]]
    half = np.array([samples * one.amplitude[-1] ** 2 for one in spectra])
    lags = min(2000, samples - 1)
    mean = np.abs(autocorrelation(found[..., 0], lags=lags).mean(axis=0))
    ends = {"early": (1, 20), "middle": (40, 80), "late": (160, 320), "rest": (1000, 2000)}
    row = {
        "below": np.mean([one.power_below(1.0 / network.context) for one in spectra]),
        "half": half.mean(),
        "half_least": half.min(),
        "half_most": half.max(),
    }
    for name, (low, high) in ends.items():
        row[name] = mean[low : high + 1].max() if high <= lags else np.nan
    return [row]


MEMORY_TIMES = Table(
    path=Path(__file__).parent / "memory_times.csv",
    units=[{"motion": motion, "start": start} for motion in MOTIONS for start in STARTS],
    rows=memory_rows,
)
SPECTRA = Table(
    path=Path(__file__).parent / "spectra.csv",
    units=[{"seed": seed} for seed in range(10)],
    rows=spectrum_row,
)
