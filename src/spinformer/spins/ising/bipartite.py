"""Hopfield networks, their bipartite form, and attention as a Hopfield conditional.

Document 002, section 2: a Hopfield network stores features in symmetric couplings; two groups
of spins joined by two sets of features make a bipartite network with couplings that need not
be symmetric; its conditional distribution over the second group is a layer of independent
spins, and over a *list* of allowed states of that group it is the softmax of attention.

Weights are arrays `(N, P)`: `weights[i, a]` is the component of feature a at spin i.
Couplings carry the document's factor beta / N, written out in each function.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, softmax

from spinformer.core.checks import check_array, check_integer, check_real

_LARGEST_ENUMERATION = 18  # 2**18 states; a joint table of more would not fit a laptop


def all_states(spins: int) -> np.ndarray:
    """Every configuration of `spins` binary spins, shape (2**spins, spins), entries -1 or 1.

    The first spin is the most significant bit, so row 0 is all -1 and the last row all +1.
    """
    spins = check_integer("spins", spins, low=1, high=_LARGEST_ENUMERATION)
    codes = np.arange(2**spins)[:, None] >> np.arange(spins - 1, -1, -1)
    return 2.0 * (codes & 1) - 1.0


def couplings(left: np.ndarray, *, right: np.ndarray) -> np.ndarray:
    """Couplings `J[i, j] = sum_a left[i, a] right[j, a]`, shape (N_left, N_right).

    Symmetric when `right` is `left` (Hopfield, document 002 Eq. 1), in general not
    (bipartite, Eq. 2). The diagonal is kept; sums over pairs i < j do not see it.
    """
    left = check_array("left", left, ndim=2)
    right = check_array("right", right, shape=(None, left.shape[1]))
    return left @ right.T


def hopfield_log_probability(weights: np.ndarray, *, beta: float) -> np.ndarray:
    """Exact log p(x) for all 2**N states in the order of `all_states` (document 002, Eq. 1).

    `p(x) ∝ exp(beta/N sum_{i<j} J_ij x_i x_j)` with `J = weights weightsᵀ`: every pair
    counted once, no field.
    """
    weights = check_array("weights", weights, ndim=2)
    beta = check_real("beta", beta, low=0.0)
    spins = weights.shape[0]
    states = all_states(spins)
    pair = couplings(weights, right=weights)
    # Half of the full sum without its diagonal is the sum over i < j.
    exponent = 0.5 * (np.einsum("si,ij,sj->s", states, pair, states) - np.trace(pair))
    exponent *= beta / spins
    return exponent - logsumexp(exponent)


def bipartite_log_probability(left: np.ndarray, *, right: np.ndarray, beta: float) -> np.ndarray:
    """Exact log p(x, y), shape (2**N_x, 2**N_y) (document 002, Eq. 2).

    `p(x, y) ∝ exp(beta/N sum_ij x_i J_ij y_j)`, N the number of spins of x (the group that
    is summed over in an overlap); all pairs i, j count, each once.
    """
    left = check_array("left", left, ndim=2)
    right = check_array("right", right, shape=(None, left.shape[1]))
    beta = check_real("beta", beta, low=0.0)
    check_integer("spins of both groups", left.shape[0] + right.shape[0], high=20)
    x, y = all_states(left.shape[0]), all_states(right.shape[0])
    exponent = beta / left.shape[0] * (x @ couplings(left, right=right) @ y.T)
    return exponent - logsumexp(exponent)


def overlaps(states: np.ndarray, *, weights: np.ndarray) -> np.ndarray:
    """Overlaps `m_a = (1/N) sum_i weights[i, a] x_i`, shape (..., P), in [-1, 1] for ±1 entries."""
    weights = check_array("weights", weights, ndim=2)
    states = check_array("states", states)
    if states.shape[-1:] != weights.shape[:1]:
        raise ValueError(f"states must have last axis {weights.shape[0]}, got shape {states.shape}")
    return states @ weights / weights.shape[0]


def conditional_means(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float
) -> np.ndarray:
    """Means `<y_j>` given x: `tanh(beta sum_a right[j, a] m_a(x))`, shape (..., N_y).

    Given x the spins of y are independent, `p(y_j = ±1 | x) ∝ exp(±beta sum_a right_ja m_a)`
    (document 002, Eq. 3), so the means are the whole conditional distribution.
    """
    right = check_array("right", right, ndim=2)
    beta = check_real("beta", beta, low=0.0)
    field = overlaps(states, weights=left) @ couplings(right, right=np.eye(right.shape[1])).T
    return np.tanh(beta * field)


def sample_conditional(means: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Independent ±1 spins with the given means, one draw for each entry."""
    means = check_array("means", means, low=-1.0, high=1.0)
    return np.where(rng.random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0)


def iterate_pair(
    state: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float, steps: int, seed: int
) -> np.ndarray:
    """Feed the output back as input: x_{t+1} drawn from p(y | x_t). Shape (steps + 1, ..., N).

    `left` and `right` are both (N, P). With `right = left` this is the Hopfield network in
    parallel (Little) dynamics; with `right[:, a] = left[:, a + 1]` it walks through a sequence.
    """
    steps = check_integer("steps", steps, low=0)
    check_integer("seed", seed, low=0)
    left = check_array("left", left, ndim=2)
    right = check_array("right", right, shape=left.shape)
    rng = np.random.default_rng(seed)
    path = [check_array("state", state, values=(-1, 1))]
    for _ in range(steps):
        path.append(
            sample_conditional(conditional_means(path[-1], left=left, right=right, beta=beta), rng)
        )
    return np.stack(path)


def restricted_conditional(
    query: np.ndarray, *, allowed: np.ndarray, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """The bipartite conditional over a list of allowed states, from its energy (002, Eq. 4-5).

    `p(y = allowed[t] | query) ∝ exp(gamma/N² sum_ij query_i J_ij allowed[t]_j)`,
    `J = left rightᵀ`, with the sum over states restricted to the T rows of `allowed`.
    Entries of `query` (N,) and `allowed` (T, N) may be any real numbers: the partition
    function never asks that they be ±1. The factor 1/N² makes the exponent
    `gamma m^q · m^k` in overlaps. Returns probabilities of shape (T,).
    """
    left = check_array("left", left, ndim=2)
    query = check_array("query", query, shape=(left.shape[0],))
    right = check_array("right", right, shape=(None, left.shape[1]))
    allowed = check_array("allowed", allowed, shape=(None, right.shape[0]))
    gamma = check_real("gamma", gamma)
    energy = -(query @ couplings(left, right=right)) @ allowed.T
    return softmax(-gamma * energy / (left.shape[0] * right.shape[0]))
