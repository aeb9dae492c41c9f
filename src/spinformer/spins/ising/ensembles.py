"""Random symmetric couplings that are not Gaussian, all of variance 1/N, every pair once.

Memories (a sum of patterns), couplings with a given spectrum in random directions, and couplings
on a graph where every spin has a few neighbours. Scaled alike, they differ from those of
Sherrington and Kirkpatrick only in what the reaction of the other spins looks like.
"""

from __future__ import annotations

import math

import numpy as np

from spinformer.core.checks import check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.spins.ising.couplings import MAX_SIZE


def pattern_couplings(size: int, *, load: float, seed: Seed) -> np.ndarray:
    """Couplings of a memory of P = `load`·N random patterns ±1: ξᵀξ/√(PN), zero diagonal.

    >>> j = pattern_couplings(400, load=2.0, seed=0)
    >>> bool((j == j.T).all()), f"{float((j**2).sum(1).mean()):.1f}"
    (True, '1.0')
    """
    size = check_integer("size", size, low=2, high=MAX_SIZE)
    load = check_real("load", load, low=0.0, open_low=True)
    count = max(1, round(load * size))
    patterns = numpy_generator(seed).choice([-1.0, 1.0], (count, size))
    couplings = patterns.T @ patterns / math.sqrt(count * size)
    np.fill_diagonal(couplings, 0.0)
    return couplings


def orthogonal_couplings(size: int, *, seed: Seed) -> np.ndarray:
    """Couplings O D Oᵀ with half of the eigenvalues D = 1, half −1, and O a random rotation.

    The random orthogonal model [marinari1994replica]; the diagonal, of order 1/√N, is set to zero.

    >>> j = orthogonal_couplings(400, seed=0)
    >>> f"{float((j**2).sum(1).mean()):.1f} {float(np.linalg.eigvalsh(j)[-1]):.1f}"
    '1.0 1.1'
    """
    size = check_integer("size", size, low=2, high=MAX_SIZE)
    rng = numpy_generator(seed)
    # Random up to the signs of its columns, which cancel below.
    rotation, _ = np.linalg.qr(rng.standard_normal((size, size)))
    signs = np.where(np.arange(size) < size // 2, 1.0, -1.0)
    couplings = (rotation * signs) @ rotation.T
    couplings = 0.5 * (couplings + couplings.T)
    np.fill_diagonal(couplings, 0.0)
    return couplings


def sparse_couplings(size: int, *, degree: int, seed: Seed) -> np.ndarray:
    """Couplings ±1/√c of random signs on a random graph where each spin has c = `degree` partners.

    Pairs of stubs are joined at random; a pair that joins a spin to itself or twice to another
    exchanges partners with random pairs until none is left. `size`·`degree` must be even.

    >>> j = sparse_couplings(50, degree=4, seed=0)
    >>> bool((j == j.T).all()), set((j != 0).sum(1).tolist())
    (True, {4})
    """
    degree = check_integer("degree", degree, low=1, high=1000)
    size = check_integer("size", size, low=degree + 1, high=MAX_SIZE)
    if size * degree % 2:
        raise ValueError(f"size times degree must be even, got {size} times {degree}")
    rng = numpy_generator(seed)
    ends = rng.permutation(np.repeat(np.arange(size), degree)).reshape(-1, 2)
    while True:
        low, high = ends.min(1), ends.max(1)
        code = low * size + high
        _, first = np.unique(code, return_index=True)
        twice = np.ones(len(code), bool)
        twice[first] = False
        bad = np.flatnonzero(twice | (low == high))
        if not len(bad):
            break
        for edge in bad:
            other = rng.integers(len(ends))
            ends[edge, 1], ends[other, 1] = ends[other, 1], ends[edge, 1]
    couplings = np.zeros((size, size))
    couplings[ends[:, 0], ends[:, 1]] = rng.choice([-1.0, 1.0], len(ends)) / math.sqrt(degree)
    return couplings + couplings.T
