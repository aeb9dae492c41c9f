"""Relaxing spins one by one until nothing changes, and networks given by their couplings.

Conventions as in `discrete`: states are rows of ±1 (0 for an unknown spin of a query), spins see
fields h = Wξ − b, a field of exactly zero leaves a spin as it is. A step is a sweep over all spins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

from spinformer.core.checks import check_array, check_flag, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of
from spinformer.hopfield.inputs import check_spin_states
from spinformer.hopfield.kernels import sweep_couplings


@record
class DiscreteRetrieval(Solution[np.ndarray]):
    """What retrieval returns for Q queries.

    value: (Q, d), ±1, where each query ended. residual: (Q,), spins that changed in its last
    sweep. steps: (Q,), sweeps in which at least one spin changed. status: (Q,), CONVERGED for a
    fixed point, CYCLE for a cycle of two states, STEP_LIMIT for neither.
    energies: (Q, sweeps + 1), energy before the first and after each sweep; for a separation
        given by its logarithm −ln Σ_μ F, which orders states as E does and cannot overflow.
    flips: (Q,), spins changed in all (filling in an unknown spin counts).
    rises: (Q,), flips of a ±1 spin after which the energy, summed anew over all patterns, was
        higher than before; None unless the "overlaps" kernel ran.
    """

    energies: np.ndarray
    flips: np.ndarray
    rises: np.ndarray | None = None

    @property
    def states(self) -> np.ndarray:
        """(Q, d): where each query ended."""
        return self.value


def retrieve_with_couplings(
    couplings: Any,
    *,
    queries: Any,
    bias: Any = None,
    max_steps: int = 100,
    seed: Seed = 0,
    throw: bool = False,
    progress: bool = False,
) -> DiscreteRetrieval:
    """Asynchronous retrieval with symmetric couplings W, (d, d), given outright.

    Energy −½ ξᵀWξ + b·ξ; spins see h = Wξ − b, the diagonal of W as it stands. Fields are kept
    up to date, so a sweep costs d plus d per flip. With integer W and no bias every number is an
    exact integer.

    >>> retrieve_with_couplings([[0, -1], [-1, 0]], queries=[[1, 0]]).states
    array([[ 1., -1.]])
    """
    weights = check_array("couplings", couplings, ndim=2)
    weights = check_array("couplings", weights, shape=(len(weights),) * 2, symmetric=True)
    if weights.size == 0:
        raise ValueError(f"couplings must hold at least one spin, got shape {weights.shape}")
    d = weights.shape[0]
    states = check_spin_states("queries", queries, dim=d)
    bias = np.zeros(d) if bias is None else check_array("bias", bias, shape=(d,))
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    # Single precision holds every integer below 2^24 exactly and halves the memory traffic.
    largest = float(np.abs(weights).sum(axis=1).max())
    exact = not bias.any() and largest < 2**24 and bool((weights == np.rint(weights)).all())
    rows = np.ascontiguousarray(weights, dtype=np.float32 if exact else np.float64)
    found = descend(
        rows, queries=states, bias=bias, max_steps=max_steps, seed=seed, progress=progress
    )
    if throw:
        found.require("a fixed point of the network")
    return found


def descend(
    rows: np.ndarray,
    *,
    queries: np.ndarray,
    bias: np.ndarray,
    max_steps: int,
    seed: Seed,
    progress: bool = False,
) -> DiscreteRetrieval:
    """`retrieve_with_couplings` without validation, which costs more than relaxing a few queries.

    For loops that built the couplings themselves: `rows` symmetric, C-contiguous, float32 (with
    all |h_i| below 2^24, integer, and no bias) or float64, `queries` of ±1 and 0, `bias` (d,).

    >>> ferromagnet = np.ones((3, 3)) - np.eye(3)
    >>> descend(ferromagnet, queries=np.eye(3), bias=np.zeros(3), max_steps=9, seed=0).states[0]
    array([1., 1., 1.])
    """
    spins = queries.astype(np.int8)
    field = np.ascontiguousarray(queries.astype(rows.dtype) @ rows - bias, dtype=rows.dtype)

    def visit(order: np.ndarray) -> tuple[np.ndarray, None]:
        return sweep_couplings(rows, spins, field, order), None

    def value() -> np.ndarray:
        now = spins.astype(np.float64)
        return -0.5 * ((field + bias) * now).sum(axis=1) + now @ bias

    return relax(spins, visit=visit, value=value, max_steps=max_steps, seed=seed, progress=progress)


def relax(
    spins: np.ndarray,
    *,
    visit: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    value: Callable[[], np.ndarray],
    max_steps: int,
    seed: Seed,
    progress: bool = False,
) -> DiscreteRetrieval:
    """Sweep in random orders until a whole sweep changes nothing; `visit` works in place.

    `visit` takes the order of a sweep over `spins` (Q, d) and returns how many spins of each
    query it changed, and how many of these raised the energy (or None); `value` the energies now.

    >>> spins = np.ones((1, 3), dtype=np.int8)
    >>> rest = relax(
    ...     spins,
    ...     visit=lambda order: (np.zeros(1, dtype=np.int64), None),
    ...     value=lambda: np.zeros(1),
    ...     max_steps=5,
    ...     seed=0,
    ... )
    >>> rest.converged, rest.steps
    (array([ True]), array([0]))
    """
    rng = numpy_generator(seed)
    count, d = spins.shape
    sweeps, flips, rises = (np.zeros(count, dtype=np.int64) for _ in range(3))
    changed, counted = np.ones(count, dtype=np.int64), False
    energies = [value()]
    for _ in tqdm(range(max_steps), disable=not progress, desc="sweeps"):
        changed, raised = visit(rng.permutation(d))
        flips += changed
        sweeps += changed > 0
        if raised is not None:
            rises += raised
            counted = True
        energies.append(value())
        if not changed.any():
            break
    return DiscreteRetrieval(
        value=spins.astype(np.float64),
        residual=changed,
        steps=sweeps,
        status=status_of(changed == 0),
        energies=np.stack(energies, axis=1),
        flips=flips,
        rises=rises if counted else None,
    )
