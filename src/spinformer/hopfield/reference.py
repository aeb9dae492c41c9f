"""Discrete retrieval in plain NumPy: what the compiled kernels are held to.

Conventions as in `discrete`.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed
from spinformer.hopfield.discrete import signs, total_energy
from spinformer.hopfield.inputs import check_spin_patterns, check_spin_states
from spinformer.hopfield.relaxation import DiscreteRetrieval, relax
from spinformer.hopfield.separation import CLASSICAL, Separation, check_separation, slope_of


def retrieve_reference(
    patterns: np.ndarray,
    *,
    queries: np.ndarray,
    separation: Separation = CLASSICAL,
    diagonal: bool = False,
    bias: np.ndarray | None = None,
    max_steps: int = 100,
    seed: Seed = 0,
) -> DiscreteRetrieval:
    """`discrete.retrieve` spelled out: at every visit the energy with the spin up and down.

    >>> retrieve_reference(np.ones((1, 3)), queries=np.array([[1.0, 1.0, 0.0]])).states
    array([[1., 1., 1.]])
    """
    patterns = check_spin_patterns(patterns)
    d = patterns.shape[1]
    check_separation(separation)
    states = check_spin_states("queries", queries, dim=d)
    push = np.zeros(d) if bias is None else check_array("bias", bias, shape=(d,))
    max_steps = check_integer("max_steps", max_steps, low=1)
    spins = states.astype(np.int8)

    def visit(order: np.ndarray) -> tuple[np.ndarray, None]:
        flips = np.zeros(len(spins), dtype=np.int64)
        for q in range(len(spins)):
            state = spins[q].astype(np.float64)
            for i in order:
                old = state[i]
                field = _field(patterns, state, i, separation, diagonal, push)
                state[i] = signs(np.asarray(field), states=np.asarray(old))
                flips[q] += state[i] != old
            spins[q] = state
        return flips, None

    def value() -> np.ndarray:
        return total_energy(
            patterns, states=spins.astype(np.float64), separation=separation, bias=push
        )

    return relax(spins, visit=visit, value=value, max_steps=max_steps, seed=seed)


def _field(
    patterns: np.ndarray,
    state: np.ndarray,
    i: int,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
) -> float:
    """Field of spin i, or a positive multiple of it."""
    if diagonal:
        products = patterns @ state
        slope = slope_of(separation)(products)
        if separation.log is not None:
            slope = np.exp(slope - slope.max())
        return float(slope @ patterns[:, i] - bias[i])
    up, down = state.copy(), state.copy()
    up[i], down[i] = 1.0, -1.0
    pair = total_energy(patterns, states=np.stack([up, down]), separation=separation, bias=bias)
    return float(pair[1] - pair[0])
