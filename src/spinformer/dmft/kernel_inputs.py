"""What the compiled steps work on: W systems side by side, along the last axis of every array.

One definition for every number of lanes W (`kernels`, `narrow_kernels`).
"""

from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """W systems of one network: state, scratch memory, parameters, weights; last axis W.

    ring: (T, 4, P, W), of each token in the window the attention vector that it is made from and
        its value, query (γ included) and key, written round and round.
    hidden: (U, W), (1 − ε) tanh(β w_u·A) of the newest token. steep: (T, U + groups, W), slope of
        the hidden units of each token; with letters the shares of their classes.
    weight: (T + 1, W), softmax weights by age, not normalized, and the inverse of their sum.
    beta, gamma, epsilon: (W,).
    patterns, readout, degeneracy, drive: `AttentionNetwork.hidden_units()` and
        `AttentionNetwork.position_overlaps()`.
    """

    ring: np.ndarray
    hidden: np.ndarray
    steep: np.ndarray
    weight: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    epsilon: np.ndarray
    patterns: np.ndarray
    readout: np.ndarray
    degeneracy: np.ndarray
    drive: np.ndarray


class Clock(NamedTuple):
    """The slot of the newest attention vector, and the position of the token that it makes."""

    cursor: int
    position: int


class TangentFrame(NamedTuple):
    """k tangent vectors of a block, what became of their lengths, and memory to push them.

    vectors: (k, T·P, W), components in the order of the ring: slot · P + feature.
    mantissa, exponent: (k, W), growth so far = mantissa · 2^exponent. lost: (k, W), how many
        lengths were below `_ROUNDING_LENGTH`. whole: (k, W), squares of the lengths before the
        frame is orthonormalized.
    units (T, U, W), mean (U, W), query (P, W), score (T, W): changes along one vector, of the
        hidden units by age, of their average over the window, of query and scores.
    pull: (U, W), of a score by the units of its key, the same for every vector.
    """

    vectors: np.ndarray
    mantissa: np.ndarray
    exponent: np.ndarray
    lost: np.ndarray
    whole: np.ndarray
    units: np.ndarray
    mean: np.ndarray
    query: np.ndarray
    score: np.ndarray
    pull: np.ndarray
