"""Where a message begins, what is sent, and the windows in which it is looked for."""

from __future__ import annotations

import numpy as np

from compendium.common.information import gaussian_information, label_information
from compendium.common.paths_to_mean_fields import settled_start
from compendium.common.phase_transitions import protocol_start
from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.finite_size import linear_maps
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.memory import fisher_memory, noise_growth, token_noise
from spinformer.dmft.network import OUTPUT, Network
from spinformer.dmft.tokens import TokenRuns, generate, mean_path

# Inverse temperature; tokens after which transients are over; tokens between two starts.
MOTIONS: dict[str, tuple[float, int, int]] = {
    "driven": (0.5, 2000, 1),
    "periodic": (1.27, 20_000, 3),
    "quasi-periodic": (1.255, 3000, 137),
    "chaos at 1.266": (1.266, 60, 0),
    "chaos at 1.28": (1.28, 60, 0),
}


def message_start(network: Network, motion: str, *, number: int) -> tuple[np.ndarray, int]:
    """A window (T, L) on the attractor and its position, `number` of many, the same everywhere.

    motion: a key of `MOTIONS`. Starts lie along one orbit where motion is regular. In chaos,
    where rounding would part the machines, each has its own random context, followed for 60
    tokens. Windows are rounded to eight digits.

    >>> window, position = message_start(Network.document(), "driven", number=0)
    >>> window.shape, bool(np.abs(window).max() < 0.1)
    ((4, 3), True)
    """
    check_instance("network", network, Network)
    number = check_integer("number", number, low=0)
    beta, settle, between = MOTIONS[motion]
    if between:
        origin = random_contexts(network, 0, count=32)
        if motion != "periodic":
            origin = protocol_start(network, steps=2000)
        window, position = settled_start(network, beta, origin, settle=settle)
    else:
        origin = random_contexts(network, number, count=1)
        window, position = settled_start(network, beta, origin, settle=settle, look=1)
    ahead = number * between
    path = mean_path(network, beta, window=window, steps=ahead, position=position)
    return np.round(path[ahead:], 8), (position + ahead) % network.positions


def dephased_distance(network: Network, motion: str) -> float:
    """Rms distance of the overlaps of two runs that have nothing in common but the clock.

    √2 times the standard deviation of m^o on the attractor at a given position, 0 where the
    clock alone decides. From 20,000 tokens.

    >>> f"{dephased_distance(Network.document(), 'driven'):.6f}"
    '0.000000'
    """
    beta, settle, _ = MOTIONS[motion]
    start = protocol_start(network, steps=2000)
    steps = 20_000 - 20_000 % network.positions
    orbit, _ = trajectory(network, start, beta=beta, steps=steps, transient=max(settle, 20_000))
    by_position = orbit.reshape(-1, network.positions, network.features)
    return float(np.sqrt(2.0 * by_position.var(axis=0).sum(axis=1).mean()))


@record
class Trace:
    """What linear noise says of a message of one bit: for every delay k = 0, 1, ….

    memory: (steps + 1,) Fisher memory |B_k e|² of the message's direction. spread: √N times the
    rms deviation of the overlaps that the noise since the message has caused.
    """

    memory: np.ndarray
    spread: np.ndarray


def message_direction(network: Network, seed: Seed) -> np.ndarray:
    """A random unit vector (L,): which of the segments a message is written to, and with what sign.

    >>> f"{np.linalg.norm(message_direction(Network.document(), 0)):.6f}"
    '1.000000'
    """
    drawn = numpy_generator(seed).standard_normal(network.segments)
    return np.asarray(drawn / np.linalg.norm(drawn))


def trace_message(
    network: Network,
    beta: float,
    *,
    window: np.ndarray,
    position: int,
    direction: np.ndarray,
    steps: int,
) -> Trace:
    """Linear noise along the mean-field path from a window (T, L) whose newest token is changed.

    >>> machine = Network.document()
    >>> window, position = message_start(machine, "driven", number=0)
    >>> trace = trace_message(machine, 0.5, window=window, position=position,
    ...                       direction=np.array([1.0, 0.0, 0.0]), steps=6)
    >>> trace.memory.round(3)  # known while it is in the window of four tokens
    array([1.   , 1.   , 1.   , 1.   , 0.064, 0.058, 0.047])
    """
    direction = check_array("direction", direction, shape=(network.segments,))
    path = mean_path(network, beta, window=window, steps=steps, position=position)
    maps = linear_maps(network, beta, path=path, position=position - network.context + 1)
    noise = token_noise(network, path)
    readout = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    memory = fisher_memory(maps, noise=noise) @ direction
    return Trace(
        memory=(memory**2).sum(axis=1), spread=noise_growth(maps, noise=noise, readout=readout)
    )


def measured_information(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    position: int,
    direction: np.ndarray,
    strength: float,
    delays: np.ndarray,
    runs: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Bits about a message at `delays`, and their errors, from sampled texts of N = `size` bits.

    The newest token of the window is shifted by ± `strength` times D^{1/2} `direction`, D/N the
    variance of its noise; `runs` texts are drawn of each sign, and the window `delay` tokens
    later is classified by `label_information`.

    >>> machine = Network.document()
    >>> window, position = message_start(machine, "driven", number=0)
    >>> bits, errors = measured_information(machine, 999, beta=0.5, window=window, runs=100,
    ...     position=position, direction=np.array([1.0, 0.0, 0.0]), strength=0.2,
    ...     delays=np.array([0]), seed=0)
    >>> bool(bits[0] > 0.9)
    True
    """
    strength = check_real("strength", strength, low=0.0)
    shift = strength * np.sqrt(token_noise(network, window[-1])) * direction
    texts = []
    for number, sign in enumerate((1.0, -1.0)):
        start = np.concatenate([window[:-1], window[-1:] + sign * shift])
        texts.append(
            generate(
                network,
                size,
                beta=beta,
                window=start,
                steps=int(delays.max()),
                runs=runs,
                seed=2 * seed + number,
                position=position,
            )
        )
    found = [
        label_information(
            window_after(texts[0], delay=int(delay)),
            second=window_after(texts[1], delay=int(delay)),
            seed=seed,
        )
        for delay in delays
    ]
    return np.array([one.value for one in found]), np.array([one.error for one in found])


def predicted_information(trace: Trace, *, size: int, strength: float) -> np.ndarray:
    """Bits that the best guess has of the message, delay by delay, as long as noise is linear.

    >>> trace = Trace(memory=np.array([1.0, 0.25]), spread=np.zeros(2))
    >>> predicted_information(trace, size=10_000, strength=0.01).round(3)
    array([0.369, 0.109])
    """
    return gaussian_information(2.0 * strength * np.sqrt(size * trace.memory))


def window_after(runs: TokenRuns, *, delay: int) -> np.ndarray:
    """The window `delay` tokens after the first one, flattened: one row for each run, (R, T·L).

    A message that was the newest token of the first window has left the window from delay T on.
    Raises ValueError if the runs are shorter.

    >>> start = np.ones((4, 3))
    >>> runs = generate(
    ...     Network.document(), 30, beta=1.0, window=start, steps=6, runs=2, seed=0
    ... )
    >>> bool((window_after(runs, delay=0) == 1.0).all()), window_after(runs, delay=6).shape
    (True, (2, 12))
    """
    check_instance("runs", runs, TokenRuns)
    context = runs.network.context
    delay = check_integer("delay", delay, low=0, high=runs.tokens.shape[1] - context)
    return runs.tokens[:, delay : delay + context].reshape(len(runs.tokens), -1)
