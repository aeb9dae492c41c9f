"""Hopfield networks, their bipartite form, attention as a Hopfield conditional, random networks.

[poclopez2024dynamical, Sec. 2]: a Hopfield network stores features in symmetric couplings; two
groups of spins joined by two sets of features make a bipartite network with couplings that need
not be symmetric; its conditional distribution over the second group is a layer of independent
spins, and over a *list* of allowed states of that group it is the softmax of attention.

Features are rows of arrays (P, N), as in `core.states`; `left` belongs to the group x, `right`
to y. Energies carry a factor β/N, written out in each function. There are no fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.special import logsumexp, softmax

from bookmaker.tables import Rows, stored
from compendium.c31_asymmetric_hopfield.networks import (
    analog_exponent,
    asymmetric_gain,
    zero_temperature_cycle,
)
from compendium.common.rows import grid, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.states import hebbian_couplings, overlaps, spin_states
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import kinetic_path

LAGS = np.array([2, 4, 8, 16, 32, 64, 250])  # of the table of memory, in updates


def bipartite_log_probability(left: np.ndarray, *, right: np.ndarray, beta: float) -> np.ndarray:
    """Exact ln p(x, y), shape (2^N_x, 2^N_y), N_x + N_y ≤ 20.

    p(x, y) ∝ exp(β/N Σ_ij x_i J_ij y_j), J = Σ_a left_a right_aᵀ, N the number of spins of x
    (the group that is summed over in an overlap) [poclopez2024dynamical, Eq. (2)].
    """
    x, y = spin_states(left.shape[1]), spin_states(right.shape[1])
    exponent = beta / left.shape[1] * (x @ hebbian_couplings(left, other=right) @ y.T)
    return exponent - logsumexp(exponent)


def conditional_means(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float
) -> np.ndarray:
    """Means ⟨y_j⟩ given `states` (..., N_x): tanh(β Σ_a right_aj m_a(x)), shape (..., N_y).

    Given x the spins of y are independent, p(y_j = ±1 | x) ∝ exp(±β Σ_a right_aj m_a)
    [poclopez2024dynamical, Eq. (3)], so the means are the whole conditional distribution.
    """
    return np.tanh(beta * (overlaps(states, patterns=left) @ right))


def iterate_pair(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float, steps: int, seed: Seed
) -> np.ndarray:
    """Feed the output back as input: x(t+1) drawn from p(y | x(t)). Shape (steps + 1, ..., N).

    `states` (..., N), `left` and `right` both (P, N). With `right = left` this is the Hopfield
    network in parallel (Little) dynamics; with `right[a] = left[a + 1]` it walks through a
    sequence: the dynamics of `kinetic` with J_ij = Σ_a right_ai left_aj / N, never formed.
    """
    rng, path = numpy_generator(seed), [states]
    for _ in range(steps):
        means = conditional_means(path[-1], left=left, right=right, beta=beta)
        path.append(np.where(rng.random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0))
    return np.stack(path)


def restricted_conditional(
    query: np.ndarray, *, allowed: np.ndarray, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """The bipartite conditional over a list of allowed states, from its energy: shape (T,).

    p(y = allowed[t] | query) ∝ exp(γ/(N_x N_y) Σ_ij query_i J_ij allowed[t]_j),
    J = Σ_a left_a right_aᵀ, with the sum over states restricted to the T rows of `allowed`
    [poclopez2024dynamical, Eq. (4)-(5)]. Entries of `query` (N_x,) and `allowed` (T, N_y) may be
    any real numbers: the partition function never asks that they be ±1. The factor makes the
    exponent γ m^q·m^k in overlaps.
    """
    energy = -(query @ hebbian_couplings(left, other=right)) @ allowed.T
    return softmax(-gamma * energy / (left.shape[1] * right.shape[1]))


def torch_attention(
    tokens: np.ndarray, *, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """Weights (T,) of torch's attention over `tokens` (T, N), the newest of them the query.

    Queries and keys are the overlaps with the features `left` and `right` (P, N), the scale of
    the scores is γ, and the values are one-hot, so that what comes out are the weights
    [poclopez2024dynamical, Eq. (5)].
    """
    q = torch.from_numpy(overlaps(tokens[-1:], patterns=left))
    k = torch.from_numpy(overlaps(tokens, patterns=right))
    v = torch.eye(len(tokens), dtype=torch.float64)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)[0].numpy()


def _networks(
    count: int, size: int, seed: Seed, **couplings: float
) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    """`gaussian_couplings` of so many networks, and the generator that they are drawn with."""
    rng = numpy_generator(seed)
    for _ in range(count):
        yield gaussian_couplings(size, seed=rng, **couplings), rng


def spin_memory(
    size: int, *, symmetry: float, beta: float, lags: np.ndarray, steps: int, replicas: int,
    seed: Seed,
) -> Estimate:  # fmt: skip
    """C(τ), the mean of x_i(t) x_i(t + τ) at every lag τ, over networks of random couplings.

    Each of `replicas` networks of the given symmetry runs `steps` parallel updates from a random
    state; the first half is dropped. `lags` (L,) are positive and at most half of `steps`. The
    error is the scatter over networks.
    """
    draws = []
    for couplings, rng in _networks(replicas, size, seed, symmetry=symmetry):
        first = rng.choice([-1.0, 1.0], (1, size))
        path = kinetic_path(couplings, beta=beta, states=first, steps=steps, seed=rng)
        kept = path[steps // 2 :, 0].astype(float)
        draws.append([(kept[:-lag] * kept[lag:]).mean() for lag in lags])
    return mean_estimate(draws)


def mean_order(size: int, *, mean: float, beta: float, replicas: int, seed: Seed) -> Estimate:
    """|m| over updates 100 to 200 from an ordered start, independent couplings of mean `mean`/N.

    One number, its error the scatter over `replicas` networks of `size` spins.
    """
    draws = []
    for couplings, rng in _networks(replicas, size, seed, mean=mean):
        path = kinetic_path(couplings, beta=beta, states=np.ones((1, size)), steps=200, seed=rng)
        draws.append(abs(path[100:].mean()))
    return mean_estimate(draws)


def cycle_lengths(size: int, *, symmetry: float, count: int, seed: Seed) -> np.ndarray:
    """Lengths (count,) of the noiseless cycles of networks of random couplings, integers.

    One random start in each of `count` networks.
    """
    return np.array(
        [
            zero_temperature_cycle(couplings, state=rng.choice([-1.0, 1.0], size))
            for couplings, rng in _networks(count, size, seed, symmetry=symmetry)
        ]
    )


def analog_exponents(
    size: int, *, symmetry: float, beta: float, count: int, seed: Seed, steps: int = 300
) -> Estimate:
    """Leading exponent of m ← tanh(βJm) per step, its error the scatter over `count` networks.

    300 steps are dropped and `steps` averaged in each.
    """
    return mean_estimate(
        [
            analog_exponent(couplings, beta=beta, transient=300, steps=steps, seed=rng)
            for couplings, rng in _networks(count, size, seed, symmetry=symmetry)
        ]
    )


@stored(
    Path(__file__).with_name("exponents.csv"),
    units=[
        {"size": size, "symmetry": symmetry, "beta": beta, "networks": 20}
        for size, symmetry, betas in (
            (500, 0.0, (0.6, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)),
            (500, 1.0, (0.6, 1.0, 1.5, 2.0, 3.0, 4.0)),
            (125, 0.0, (3.0,)),
            (250, 0.0, (3.0,)),
            (1000, 0.0, (3.0,)),
        )
        for beta in betas
    ],
)
def EXPONENTS(size: int, *, symmetry: float, beta: float, networks: int) -> Rows:
    """Mean and standard error over networks, 600 steps each."""
    found = analog_exponents(size, symmetry=symmetry, beta=beta, count=networks, seed=0, steps=600)
    return [{"exponent": float(found.value), "error": float(found.error)}]


@stored(
    Path(__file__).with_name("memory.csv"),
    units=[
        *({"symmetry": symmetry, "beta": 2.0} for symmetry in (1.0, 0.5, 0.0)),
        {"symmetry": 1.0, "beta": 0.5},
    ],
    seconds=2.0,
    within={"kept": 0.1, "error": 0.05},
)
def MEMORY(symmetry: float, *, beta: float) -> Rows:
    """C(τ) at `LAGS` of ten networks of 500 spins, a row for each lag, with errors."""
    found = spin_memory(
        500, symmetry=symmetry, beta=beta, lags=LAGS, steps=1000, replicas=10, seed=0
    )
    return rows_of(lag=LAGS, kept=found.value, error=found.error)


@stored(
    Path(__file__).with_name("order.csv"),
    units=grid(ratio=(0.5, 0.8, 1.0, 1.2, 1.5, 2.0), beta=(2.0,)),
    seconds=1.0,
    within={"order": 0.1, "error": 0.05},
)
def ORDER(ratio: float, *, beta: float) -> Rows:
    """|m| of ten networks of 500 spins, independent couplings; their mean over the critical one."""
    mean = ratio / asymmetric_gain(beta)
    found = mean_order(500, mean=mean, beta=beta, replicas=10, seed=0)
    return [{"order": float(found.value), "error": float(found.error)}]
