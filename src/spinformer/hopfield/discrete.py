"""Discrete associative memories: E(ξ) = −Σ_μ F(x_μ·ξ) on spins, retrieved by flipping spins.

One family [bal2020energy, Sec. 3]: F is a `separation.Separation`, Hopfield's x²/2 by default,
with the Hebbian couplings W = Σ_μ x_μ x_μᵀ.

Conventions. Patterns are the rows of an (N, d) array of ±1, the document's X transposed. States
are rows of a (Q, d) array; entries may be ±1 or, in a query, 0 for "unknown". Energies carry no
β. A bias b adds +b·ξ to the energy, with the document's sign.

The field of spin i is half the energy it would cost to turn that spin down instead of up,
h_i = ½[E(ξ_i = −1) − E(ξ_i = +1)], everything else kept; the update is ξ_i ← sgn h_i. For the
classical energy that is h_i = Σ_{j≠i} w_ij ξ_j − b_i: since ξ_i² = 1, the diagonal of W is a
constant of the energy and never enters an energy difference. The document's rule (its Eq. (4)),
the sign of minus the gradient, does contain it: h_i = −∂E/∂ξ_i = Σ_j w_ij ξ_j − b_i with
w_ii = N, a pull of every spin towards itself. `diagonal=True` selects that rule, for every F.

A field of exactly zero leaves a spin as it is (an unknown spin becomes +1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from spinformer.core.checks import check_array, check_choice, check_flag, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.solve import Status, status_of
from spinformer.core.states import hebbian_couplings
from spinformer.hopfield.inputs import check_spin_memory
from spinformer.hopfield.kernels import log_sums, sweep_overlaps
from spinformer.hopfield.relaxation import DiscreteRetrieval, relax, retrieve_with_couplings
from spinformer.hopfield.separation import (
    CLASSICAL,
    EXPONENTIAL,
    Separation,
    check_separation,
    slope_of,
    tabulate,
)

SCHEDULES = ("asynchronous", "synchronous")
KERNELS = ("auto", "couplings", "overlaps")


def energy(
    patterns: Any, *, states: Any, separation: Separation = CLASSICAL, bias: Any = None
) -> np.ndarray:
    """E(ξ) = −Σ_μ F(x_μ·ξ) + b·ξ, shape (Q,) [bal2020energy, Eqs. (2), (5), (6)].

    The classical energy is −½ ξᵀWξ + b·ξ with the whole W, its diagonal included (with w_ii = 0
    it is larger by the constant N·d/2). Raises ValueError where the energy would overflow, as
    the exponential one does for overlaps above 700: use `log_energy`.

    >>> energy([[1, 1, -1]], states=[[1, 1, -1], [1, 0, 1]])
    array([-4.5,  0. ])
    """
    patterns, states = check_spin_memory(patterns, states=states, name="states")
    separation = check_separation(separation)
    bias = _check_bias(bias, patterns.shape[1], separation)
    products = states @ patterns.T
    with np.errstate(over="ignore"):
        result = -separation(products).sum(axis=1) + states @ bias
    if not np.isfinite(result).all():
        raise ValueError(
            f"states overlap with patterns by up to {products.max():.0f}, where the sum of "
            f"{separation} overflows; use log_energy"
        )
    return result


def log_energy(patterns: Any, *, states: Any, separation: Separation = EXPONENTIAL) -> np.ndarray:
    """−ln Σ_μ F(x_μ·ξ) = −ln(−E), shape (Q,): same order as E, for a separation with a `log`.

    >>> log_energy([[1] * 800], states=[[1] * 800])
    array([-800.])
    """
    patterns, states = check_spin_memory(patterns, states=states, name="states")
    separation = check_separation(separation)
    if separation.log is None:
        raise ValueError(f"separation must have a log, got {separation}")
    nothing = np.zeros(patterns.shape[1])
    return total_energy(patterns, states=states, separation=separation, bias=nothing)


def fields(
    patterns: Any,
    *,
    states: Any,
    separation: Separation = CLASSICAL,
    diagonal: bool = False,
    bias: Any = None,
) -> np.ndarray:
    """The fields h_i of all spins of all states at once, shape (Q, d); see the module's text.

    For a separation given by its logarithm h is divided by max_μ F(x_μ·ξ), a positive factor for
    each state, and a tie is decided by rounding; the others are exact as long as their integers
    stay below 2^53.

    >>> fields([[1, 1, -1]], states=[[1, -1, -1]])
    array([[0., 2., 0.]])
    """
    patterns, states = check_spin_memory(patterns, states=states, name="states")
    separation = check_separation(separation)
    bias = _check_bias(bias, patterns.shape[1], separation)
    check_choice("diagonal", diagonal, (True, False))
    return _fields(patterns, states, separation, diagonal) - bias


def retrieve(
    patterns: Any,
    *,
    queries: Any,
    separation: Separation = CLASSICAL,
    schedule: str = "asynchronous",
    diagonal: bool = False,
    bias: Any = None,
    max_steps: int = 100,
    seed: Seed = 0,
    kernel: str = "auto",
    throw: bool = False,
    progress: bool = False,
) -> DiscreteRetrieval:
    """Let the queries, (Q, d) with entries ±1 or 0, relax until nothing changes.

    schedule: "asynchronous" visits the spins one by one, in a new random order each sweep (the
        same order for all queries), each seeing the latest state of the others; "synchronous"
        updates all spins at once and stops at a fixed point or a cycle of two states.
    diagonal: use the sign of minus the gradient (w_ii = N) instead of the energy difference.
    kernel: asynchronous only. "couplings" keeps the fields and costs d per flip (classical
        energy); "overlaps" keeps the x_μ·ξ and costs N per visit (any F) and counts energy
        rises; "auto" takes "couplings" where it can.
    max_steps: sweeps, at least 1. Raises NotConverged for what is not a fixed point by then, or
        a cycle, if `throw`.

    With the energy difference, and for convex F also with the gradient, no asynchronous flip
    raises the energy: it ends in a fixed point. Synchronous updates of the classical network end
    in a fixed point or a 2-cycle [goleschacc1985decreasing].

    >>> found = retrieve([[1, 1, 1, -1], [1, -1, 1, 1]], queries=[[1, 1, 0, 0]])
    >>> found.states, bool(found.converged[0])
    (array([[ 1.,  1.,  1., -1.]]), True)
    """
    patterns, states = check_spin_memory(patterns, states=queries, name="queries")
    separation = check_separation(separation)
    bias = _check_bias(bias, patterns.shape[1], separation)
    check_choice("schedule", schedule, SCHEDULES)
    check_choice("diagonal", diagonal, (True, False))
    max_steps = check_integer("max_steps", max_steps, low=1)
    check_flag("throw", throw)
    generator = numpy_generator(seed)
    check_choice("kernel", kernel, KERNELS)
    if kernel == "couplings" and separation != CLASSICAL:
        raise ValueError(f"kernel 'couplings' needs the classical energy, got {separation}")
    if schedule == "synchronous":
        found = _synchronous(patterns, states, separation, diagonal, bias, max_steps, progress)
    elif kernel == "overlaps" or separation != CLASSICAL:
        found = _by_overlaps(
            patterns, states, separation, diagonal, bias, max_steps, generator, progress
        )
    else:
        found = _by_couplings(patterns, states, diagonal, bias, max_steps, generator, progress)
    if throw:
        found.require("a fixed point of the memory")
    return found


# -- schedules -------------------------------------------------------------------------------


def _by_couplings(
    patterns: np.ndarray,
    states: np.ndarray,
    diagonal: bool,
    bias: np.ndarray,
    max_steps: int,
    rng: np.random.Generator,
    progress: bool,
) -> DiscreteRetrieval:
    found = retrieve_with_couplings(
        hebbian_couplings(patterns, diagonal=diagonal),
        queries=states,
        bias=bias,
        max_steps=max_steps,
        seed=rng,
        progress=progress,
    )
    if not diagonal:
        # The diagonal left out of W is −½N for each known spin; after one sweep all are known.
        found.energies[:, 0] -= 0.5 * patterns.shape[0] * (states != 0).sum(axis=1)
        found.energies[:, 1:] -= 0.5 * patterns.size
    return found


def _by_overlaps(
    patterns: np.ndarray,
    states: np.ndarray,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
    max_steps: int,
    rng: np.random.Generator,
    progress: bool,
) -> DiscreteRetrieval:
    count, d = patterns.shape
    spins = states.astype(np.int8)
    bits = np.ascontiguousarray(patterns.T, dtype=np.int8)
    products = np.rint(states @ patterns.T).astype(np.int64)
    tables = tabulate(separation, dim=d, count=count, gradient=diagonal)

    def visit(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sweep_overlaps(bits, spins, products, order, tables, bias)

    def value() -> np.ndarray:
        if separation.log is not None:
            return -log_sums(products, tables)
        return -separation(products.astype(np.float64)).sum(axis=1) + spins @ bias

    return relax(spins, visit=visit, value=value, max_steps=max_steps, seed=rng, progress=progress)


def _synchronous(
    patterns: np.ndarray,
    states: np.ndarray,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
    max_steps: int,
    progress: bool,
) -> DiscreteRetrieval:
    spins = states.astype(np.int8)
    before = np.full_like(spins, 2)  # no state: nothing returns to it
    moving, cycling = np.ones(len(spins), dtype=bool), np.zeros(len(spins), dtype=bool)
    residual = np.zeros(len(spins), dtype=np.int64)

    def visit(_: np.ndarray) -> tuple[np.ndarray, None]:
        changed = np.zeros(len(spins), dtype=np.int64)
        active = np.flatnonzero(moving)
        now = spins[active].astype(np.float64)
        after = signs(_fields(patterns, now, separation, diagonal) - bias, states=now)
        changed[active] = residual[active] = (after != now).sum(axis=1)
        cycling[active] = (after == before[active]).all(axis=1) & (changed[active] > 0)
        moving[active] = (changed[active] > 0) & ~cycling[active]
        before[active], spins[active] = now, after
        return changed, None

    def value() -> np.ndarray:
        now = spins.astype(np.float64)
        return total_energy(patterns, states=now, separation=separation, bias=bias)

    found = relax(spins, visit=visit, value=value, max_steps=max_steps, seed=0, progress=progress)
    status = np.where(cycling, int(Status.CYCLE), status_of(residual == 0))
    return replace(found, residual=residual, status=status)


# -- fields and energies of all spins at once, input checked -----------------------------------


def _fields(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, diagonal: bool
) -> np.ndarray:
    """Fields without bias. Two matrix products: flipping spin i changes x_μ·ξ by −2 x_μi ξ_i, so
    the change of F takes one of two values, and any function of x_μi = ±1 is linear in it."""
    products, d = states @ patterns.T, patterns.shape[1]
    log, top = separation.log, np.zeros((len(states), 1))
    if log is not None:
        top = log(products).max(axis=1, keepdims=True)
    if diagonal:
        slope = slope_of(separation)(products)
        return (slope if log is None else np.exp(slope - top)) @ patterns

    def value(overlaps: np.ndarray) -> np.ndarray:
        return separation(overlaps) if log is None else np.exp(log(overlaps) - top)

    # No spin reads F beyond ±d: what stands there drops out.
    up, down = value(np.minimum(products + 2.0, d)), value(np.maximum(products - 2.0, -d))
    even = (value(products) - 0.5 * (up + down)).sum(axis=1, keepdims=True)
    field = 0.5 * (even * states + 0.5 * (up - down) @ patterns)
    unknown = states == 0
    if unknown.any():
        # Without a spin of its own the state of i enters no overlap: x_μ·ξ moves by ±x_μi.
        odd = value(products + 1.0) - value(products - 1.0)
        field = np.where(unknown, 0.5 * odd @ patterns, field)
    return field


def signs(field: np.ndarray, *, states: np.ndarray) -> np.ndarray:
    """sgn h; where h is zero, the state kept, +1 if it is unknown.

    >>> signs(np.array([2.0, 0.0, 0.0]), states=np.array([-1.0, -1.0, 0.0]))
    array([ 1., -1.,  1.])
    """
    kept = np.where(states == 0, 1.0, states)
    return np.where(field > 0, 1.0, np.where(field < 0, -1.0, kept))


def total_energy(
    patterns: np.ndarray, *, states: np.ndarray, separation: Separation, bias: np.ndarray
) -> np.ndarray:
    """`energy`, or `log_energy` for a separation given by its logarithm, shape (Q,).

    >>> pair = np.ones((1, 2))
    >>> total_energy(pair, states=pair, separation=CLASSICAL, bias=np.zeros(2))
    array([-2.])
    """
    products = states @ patterns.T
    if separation.log is not None:
        return -np.asarray(logsumexp(separation.log(products), axis=1))
    return -separation(products).sum(axis=1) + states @ bias


def _check_bias(bias: Any, dim: int, separation: Separation) -> np.ndarray:
    if bias is None:
        return np.zeros(dim)
    if separation.log is not None:
        raise ValueError(f"bias must be None for {separation}, whose energy is scaled")
    return check_array("bias", bias, shape=(dim,))
