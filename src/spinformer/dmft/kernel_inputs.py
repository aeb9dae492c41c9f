"""What the compiled steps work on: W systems side by side, along the last axis of every array.

One definition for every number of lanes W (`kernels`, `narrow_kernels`).
"""

from typing import NamedTuple

import numpy as np


class SystemBatch(NamedTuple):
    """State, parameters and scratch memory of W systems of one network, for the compiled steps.

    The systems are the lanes, along the last axis W of every array but those of the weights. T is
    the context length, P the number of features, U that of hidden units.

    Attributes
    ----------
    ring : ndarray, shape (T, 4, P, W)
        Ring buffer of the window: of each token the attention vector that it is made from, and its
        value, query (γ included) and key.
    hidden : ndarray, shape (U, W)
        Hidden units (1 − ε) tanh(β w_u·A) of the newest token.
    unit_slopes : ndarray, shape (T, U + groups, W)
        Slopes of the hidden units of each token; with letters also the fractions of their classes.
    weight : ndarray, shape (T + 1, W)
        Softmax weights by age, not normalized, and the inverse of their sum.
    beta : ndarray, shape (W,)
        Inverse temperature β of the tokens.
    gamma : ndarray, shape (W,)
        Inverse temperature γ of attention.
    epsilon : ndarray, shape (W,)
        Weight ε of the position.
    patterns : ndarray, shape (U, P)
        Distinct output weights, of `AttentionNetwork.hidden_units()`.
    readout : ndarray, shape (4, P, U)
        Weights of the units in the overlaps, of `AttentionNetwork.hidden_units()`.
    degeneracy : ndarray
        Multiplicities of the units, of `AttentionNetwork.hidden_units()`.
    drive : ndarray, shape (2^K, 4, P)
        Overlaps of the positional code, of `AttentionNetwork.position_overlaps()`.
    """

    ring: np.ndarray
    hidden: np.ndarray
    unit_slopes: np.ndarray
    weight: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    epsilon: np.ndarray
    patterns: np.ndarray
    readout: np.ndarray
    degeneracy: np.ndarray
    drive: np.ndarray


class TimeIndex(NamedTuple):
    """Time index of a batch: a slot of the ring buffer and a position.

    Attributes
    ----------
    cursor : int
        Slot of the newest attention vector.
    position : int
        Position of the token that this vector produces.
    """

    cursor: int
    position: int


class TangentBasis(NamedTuple):
    """Basis of k tangent vectors of a batch, for Lyapunov exponents by QR.

    The components of a vector are in the order of the ring buffer: slot · P + feature.

    Attributes
    ----------
    vectors : ndarray, shape (k, T·P, W)
        The tangent vectors.
    mantissa : ndarray, shape (k, W)
        Growth so far is mantissa · 2^binary_exponent.
    binary_exponent : ndarray of int, shape (k, W)
        Binary exponent of the growth so far.
    unresolved : ndarray of int, shape (k, W)
        Number of lengths that were below the rounding of the vectors before.
    squared_length : ndarray, shape (k, W)
        Squared lengths before the basis is orthonormalized.
    units : ndarray, shape (T, U, W)
        Scratch memory: change of the hidden units by age along one vector.
    mean : ndarray, shape (U, W)
        Scratch memory: change of the average of the hidden units over the window.
    query : ndarray, shape (P, W)
        Scratch memory: change of the query.
    score : ndarray, shape (T, W)
        Scratch memory: change of the scores.
    score_gradient : ndarray, shape (U, W)
        Derivative of a score by the units of its key, the same for every vector.
    """

    vectors: np.ndarray
    mantissa: np.ndarray
    binary_exponent: np.ndarray
    unresolved: np.ndarray
    squared_length: np.ndarray
    units: np.ndarray
    mean: np.ndarray
    query: np.ndarray
    score: np.ndarray
    score_gradient: np.ndarray
