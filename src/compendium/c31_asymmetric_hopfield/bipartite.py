"""Hopfield networks, their bipartite form, and attention as a Hopfield conditional.

[poclopez2024dynamical, Sec. 2]: a Hopfield network stores features in symmetric couplings; two
groups of spins joined by two sets of features make a bipartite network with couplings that need
not be symmetric; its conditional distribution over the second group is a layer of independent
spins, and over a *list* of allowed states of that group it is the softmax of attention.

Features are rows of arrays (P, N), as in `core.states`; `left` belongs to the group x, `right`
to y. Energies carry a factor β/N, written out in each function. There are no fields; the first
network counts every pair i < j once, the second every pair i, j.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, softmax

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.states import MAX_LISTED_SPINS, hebbian_couplings, overlaps, spin_states
from spinformer.spins.ising.couplings import MAX_COUNT, MAX_STRENGTH, check_strength
from spinformer.spins.ising.kinetic import draw_spins

# Products of four entries and beta stay finite.
MAX_ENTRY = 1e30


def hopfield_log_probability(features: np.ndarray, *, beta: float) -> np.ndarray:
    """Exact ln p(x) for all 2^N states in the order of `spin_states`, N ≤ 20.

    p(x) ∝ exp(β/N Σ_{i<j} J_ij x_i x_j) with J = Σ_a w_a w_aᵀ [poclopez2024dynamical, Eq. (1)].
    Raises ValueError or TypeError for bad input.

    >>> np.exp(hopfield_log_probability(np.ones((1, 1)), beta=1.0))
    array([0.5, 0.5])
    """
    features = _features("features", features, (None, None))
    beta = check_strength(beta, features=features)
    size = check_integer("spins of features", features.shape[1], low=1, high=MAX_LISTED_SPINS)
    states, pair = spin_states(size), hebbian_couplings(features)
    # The diagonal is zero, so half of the full sum is the sum over i < j.
    exponent = 0.5 * beta / size * ((states @ pair) * states).sum(1)
    return exponent - logsumexp(exponent)


def bipartite_log_probability(left: np.ndarray, *, right: np.ndarray, beta: float) -> np.ndarray:
    """Exact ln p(x, y), shape (2^N_x, 2^N_y), N_x + N_y ≤ 20.

    p(x, y) ∝ exp(β/N Σ_ij x_i J_ij y_j), J = Σ_a left_a right_aᵀ, N the number of spins of x
    (the group that is summed over in an overlap) [poclopez2024dynamical, Eq. (2)]. Raises
    ValueError or TypeError for bad input.

    >>> one = np.ones((1, 1))
    >>> np.exp(bipartite_log_probability(one, right=one, beta=0.0))
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    left, right = _groups(left, right)
    beta = check_strength(beta, left=left, right=right)
    check_integer(
        "spins of both groups", left.shape[1] + right.shape[1], low=2, high=MAX_LISTED_SPINS
    )
    x, y = spin_states(left.shape[1]), spin_states(right.shape[1])
    exponent = beta / left.shape[1] * (x @ hebbian_couplings(left, other=right) @ y.T)
    return exponent - logsumexp(exponent)


def conditional_means(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float
) -> np.ndarray:
    """Means ⟨y_j⟩ given `states` (..., N_x): tanh(β Σ_a right_aj m_a(x)), shape (..., N_y).

    Given x the spins of y are independent, p(y_j = ±1 | x) ∝ exp(±β Σ_a right_aj m_a)
    [poclopez2024dynamical, Eq. (3)], so the means are the whole conditional distribution.
    Raises ValueError or TypeError for bad input.

    >>> stored = np.array([[1, -1, 1]])
    >>> conditional_means(stored[0], left=stored, right=stored, beta=99.0)
    array([ 1., -1.,  1.])
    """
    left, right = _groups(left, right)
    beta = check_real("beta", beta, low=0.0, high=MAX_STRENGTH)
    return np.tanh(beta * (overlaps(states, patterns=left) @ right))


def iterate_pair(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float, steps: int, seed: Seed
) -> np.ndarray:
    """Feed the output back as input: x(t+1) drawn from p(y | x(t)). Shape (steps + 1, ..., N).

    `states` (..., N), `left` and `right` both (P, N). With `right = left` this is the Hopfield
    network in parallel (Little) dynamics; with `right[a] = left[a + 1]` it walks through a
    sequence: the dynamics of `kinetic` with J_ij = Σ_a right_ai left_aj / N, never formed. Raises
    ValueError or TypeError for bad input.

    >>> stored = np.array([[1, 1, -1, -1], [1, -1, 1, -1]])
    >>> walk = iterate_pair(stored[0], left=stored, right=stored[::-1], beta=99.0, steps=2, seed=0)
    >>> bool((walk == stored[[0, 1, 0]]).all())
    True
    """
    steps = check_integer("steps", steps, low=0, high=MAX_COUNT)
    left = check_array("left", left, ndim=2)
    right = check_array("right", right, shape=left.shape)
    rng = numpy_generator(seed)
    path = [check_array("states", states, values=(-1, 1))]
    for _ in range(steps):
        means = conditional_means(path[-1], left=left, right=right, beta=beta)
        path.append(draw_spins(means, seed=rng))
    return np.stack(path)


def restricted_conditional(
    query: np.ndarray, *, allowed: np.ndarray, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """The bipartite conditional over a list of allowed states, from its energy: shape (T,).

    p(y = allowed[t] | query) ∝ exp(γ/(N_x N_y) Σ_ij query_i J_ij allowed[t]_j),
    J = Σ_a left_a right_aᵀ, with the sum over states restricted to the T rows of `allowed`
    [poclopez2024dynamical, Eq. (4)-(5)]. Entries of `query` (N_x,) and `allowed` (T, N_y) may be
    any real numbers: the partition function never asks that they be ±1. The factor makes the
    exponent γ m^q·m^k in overlaps. Raises ValueError or TypeError for bad input.

    >>> one = np.ones((1, 1))
    >>> restricted_conditional(one[0], allowed=np.zeros((2, 1)), left=one, right=one, gamma=3.0)
    array([0.5, 0.5])
    """
    left, right = _groups(left, right)
    query = _features("query", query, (left.shape[1],))
    allowed = _features("allowed", allowed, (None, right.shape[1]))
    check_integer("states in allowed", len(allowed), low=1)
    gamma = check_real("gamma", gamma, low=-MAX_STRENGTH, high=MAX_STRENGTH)
    energy = -(query @ hebbian_couplings(left, other=right)) @ allowed.T
    return softmax(-gamma * energy / (left.shape[1] * right.shape[1]))


def _groups(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = _features("left", left, (None, None))
    return left, _features("right", right, (left.shape[0], None))


def _features(name: str, value: np.ndarray, shape: tuple[int | None, ...]) -> np.ndarray:
    return check_array(name, value, shape=shape, low=-MAX_ENTRY, high=MAX_ENTRY)
