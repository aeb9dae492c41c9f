"""Readers of one memory whose choices interact, all with all: exact sums.

n copies of a reader each attend to exactly one of N patterns, copy a to pattern σ_a (a Potts
spin). A pattern alone is worth s_i, its score; two copies at i and j are worth J_ij. All to all,
the energy is −Σ_a s_{σ_a} − (2n)⁻¹ Σ_{ab} J_{σ_a σ_b}; it depends only on how many copies sit
where, so that the sum over N^n states is one over occupation numbers, and for n → ∞ its free
energy per copy becomes the minimum over weights p of −s·p − ½ pᵀJp + β⁻¹ Σ p log p, the energy of
`interacting` at fixed state.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.hopfield.inputs import check_beta

MOST_OCCUPATIONS = 2_000_000


@record
class Crowd:
    """Free energy per copy and mean weights (N,), the share of the copies at each pattern."""

    free_energy: float
    weights: np.ndarray


def crowd(scores: ArrayLike, *, couplings: ArrayLike, beta: float = 1.0, copies: int) -> Crowd:
    """Exact average over all states of n = `copies` readers, every one coupled to every one.

    `scores` (N,), `couplings` (N, N). Sums C(n + N − 1, n) occupations; ValueError beyond two
    million.
    """
    scores, couplings, beta, copies = _check(scores, couplings, beta, copies)
    size = len(scores)
    number = math.comb(copies + size - 1, copies)
    if number > MOST_OCCUPATIONS:
        raise ValueError(f"copies must give at most {MOST_OCCUPATIONS} occupations, got {number}")
    # Bars among stars: where the bars stand tells how many copies are at each pattern.
    bars = np.array(list(combinations(range(copies + size - 1), size - 1)), dtype=np.int64)
    edges = np.pad(bars.reshape(number, size - 1), ((0, 0), (1, 1)), constant_values=-1)
    edges[:, -1] = copies + size - 1
    counts = np.diff(edges, axis=1) - 1
    shares = counts / copies
    value = shares @ scores + 0.5 * ((shares @ couplings) * shares).sum(1)
    logs = gammaln(copies + 1) - gammaln(counts + 1).sum(1) + beta * copies * value
    total = float(logsumexp(logs))
    return Crowd(free_energy=-total / (beta * copies), weights=np.exp(logs - total) @ shares)


def _check(
    scores: ArrayLike, couplings: ArrayLike, beta: float, copies: int
) -> tuple[np.ndarray, np.ndarray, float, int]:
    s = check_array("scores", scores, ndim=1)
    j = check_array("couplings", couplings, shape=(len(s), len(s)), symmetric=True)
    return s, j, check_beta(beta), check_integer("copies", copies, low=1)
