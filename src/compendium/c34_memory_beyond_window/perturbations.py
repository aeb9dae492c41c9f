"""What becomes of a small change in the limit of infinitely many bits."""

from __future__ import annotations

import numpy as np

from compendium.common.phase_transitions import protocol_start
from compendium.common.windows import MOTIONS
from spinformer.core.checks import check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context


@record
class Onset:
    """When a change has grown to a level, over many starts.

    median: tokens, counting those starts that never reach it as later than all others; infinite
    where that is half of them. reached: how many did. starts: how many there are.
    """

    median: float
    reached: int
    starts: int


def onset(distance: np.ndarray, *, level: float) -> Onset:
    """When distances (starts, steps + 1) first exceed `level`.

    >>> found = onset(np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.1], [0.0, 0.3, 2.0]]), level=0.5)
    >>> found.median, found.reached
    (2.0, 2)
    """
    level = check_real("level", level)
    above = distance > level
    reached = above.any(axis=1)
    first = np.where(reached, above.argmax(axis=1), np.inf)
    middle = np.sort(first)[(len(first) - 1) // 2 : len(first) // 2 + 1]
    return Onset(median=float(middle.mean()), reached=int(reached.sum()), starts=len(first))


def perturbed_distance(
    network: Network, motion: str, *, size: float, starts: int, steps: int, seed: Seed = 0
) -> np.ndarray:
    """Distance of the overlaps after the newest attention vector was moved, (starts, steps + 1).

    motion: a key of `MOTIONS`. Each start is a state on the attractor, rounded to eight digits;
    the attention vector that makes its newest token is moved by `size` in a random direction.
    Entry k compares the token k steps after that one.

    >>> found = perturbed_distance(Network.document(), "driven", size=1e-6, starts=2, steps=8)
    >>> found.shape, bool((found[:, 8] < found[:, 0]).all())
    ((2, 9), True)
    """
    size = check_real("size", size, low=0.0)
    starts = check_integer("starts", starts, low=1)
    beta, settle, between = MOTIONS[motion]
    rng = numpy_generator(seed)
    if between:
        # Further apart than in the table, so that the starts spread over the attractor.
        start = protocol_start(network, steps=2000)
        states = []
        for number in range(starts):
            ahead = settle if not number else network.positions * (1 + 7 * between)
            _, start = trajectory(network, start, beta=beta, steps=0, transient=ahead)
            states.append(start.attention)
        position, attention = start.position, np.array(states)
    else:
        drawn = random_contexts(network, rng, count=starts)
        _, settled = trajectory(network, drawn, beta=beta, steps=0, transient=settle)
        position, attention = settled.position, settled.attention
    attention = np.round(attention, 8)
    direction = rng.standard_normal((starts, network.features))
    moved = attention.copy()
    moved[:, 0] += size * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    both = Context(np.concatenate([attention, moved]), position)
    overlaps, _ = trajectory(network, both, beta=beta, steps=steps + 1)
    return np.asarray(np.linalg.norm(overlaps[:starts] - overlaps[starts:], axis=-1))
