"""Mean first passage times of a Markov chain, with all their digits."""

from __future__ import annotations

import numpy as np


def mean_first_passage(chances: np.ndarray, *, inside: np.ndarray) -> np.ndarray:
    """Mean number of steps until a Markov chain (M, M) leaves the states `inside`, (M,).

    Zero for states that are not inside. Solves (1 − Q) τ = 1 with Q the block of `inside` by
    leaving out one state after the other (Grassmann, Taksar and Heyman 1985): sums of positive
    numbers alone, so that times of any length have all their digits, where 1 − Q would round a
    chance of leaving below 1e-16 away.
    """
    move = chances[np.ix_(inside, inside)]
    out = chances[np.ix_(inside, ~inside)].sum(axis=1)
    wait, leave = np.ones(len(move)), np.zeros(len(move))
    for n in range(len(move) - 1, -1, -1):
        leave[n] = move[n, :n].sum() + out[n]
        if not leave[n] > 0.0:
            raise ValueError("inside must be left from everywhere, got a state without a way out")
        # What enters n before it is left, by whom it is left, and for how long it waits.
        enters = move[:n, n] / leave[n]
        move[:n, :n] += np.outer(enters, move[n, :n])
        out[:n] += enters * out[n]
        wait[:n] += enters * wait[n]
    found = np.zeros(len(move))
    for n in range(len(move)):
        found[n] = (wait[n] + move[n, :n] @ found[:n]) / leave[n]
    times = np.zeros(len(chances))
    times[inside] = found
    return times
