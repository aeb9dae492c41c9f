"""Discrete associative memories: E(ξ) = −Σ_μ F(x_μ·ξ) on spins, retrieved by flipping spins.

F decides how sharply stored patterns are told apart: x²/2 is Hopfield's network
[hopfield1982neural] with the Hebbian couplings W = Σ_μ x_μ x_μᵀ, x^a the dense memory
[krotov2016dense; bal2020energy, Eq. (5)], e^x the exponential one [demircigil2017model;
bal2020energy, Eq. (6)]. Any other F is a `Separation` of one's own.

Conventions. Patterns are the rows of an (N, d) array of ±1, the document's X transposed. States
are rows of a (Q, d) array; entries may be ±1 or, in a query, 0 for "unknown". Energies carry no
β and no bias.

One update for every F: ξ_i ← sgn h_i, where the field h_i is half the energy it would cost to turn
spin i down instead of up, everything else kept,

    h_i = ½[E(ξ_i = −1) − E(ξ_i = +1)] = Σ_μ x_μi G(x_μ·ξ − x_μi ξ_i),
    G(x) = ½[F(x + 1) − F(x − 1)].

For the classical energy G(x) = x and h_i = Σ_{j≠i} w_ij ξ_j. The document's rule (its Eq. (4)), the
sign of minus the gradient, contains the diagonal, too, w_ii = N, a pull of every spin towards
itself: `diagonal=True`. A field of exactly zero leaves a spin as it is (an unknown one becomes +1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numba import njit
from scipy.special import logsumexp

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_flag,
    check_function,
    check_instance,
    check_integer,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status, status_of
from spinformer.core.states import hebbian_couplings


@dataclass(frozen=True, kw_only=True)
class Separation:
    """F, a function that acts elementwise on a NumPy array of overlaps x_μ·ξ, not divided by d.

    It must be finite from −d to d. Where it returns another shape or what are no real numbers, a
    TypeError or ValueError says so.

    >>> rectified = Separation(name="rectified cube", function=lambda x: np.maximum(x, 0) ** 3)
    >>> rectified(np.array([-2.0, 2.0]))
    array([0., 8.])
    """

    name: str
    function: Callable[[np.ndarray], np.ndarray]

    def __post_init__(self) -> None:
        check_function("function", self.function)

    def __call__(self, overlaps: np.ndarray) -> np.ndarray:
        made = self.function(overlaps)
        if isinstance(made, np.ma.MaskedArray):
            raise TypeError("function of separation must return no masked entries")
        found = np.asarray(made)
        if found.dtype.kind not in "biuf":
            raise TypeError(f"function of separation must return real numbers, got {found.dtype}")
        if found.shape != np.shape(overlaps):
            raise ValueError(
                f"function of separation must act elementwise: of shape {np.shape(overlaps)} it "
                f"made {found.shape}"
            )
        if np.isnan(found).any():
            raise ValueError(f"function of separation must be finite, {self} gives NaN")
        return found.astype(np.float64, copy=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Power:
    """factor · x^exponent, by products: exact for integers below 2^53, far faster than `**`."""

    exponent: int
    factor: float = 1.0

    def __call__(self, base: np.ndarray) -> np.ndarray:
        return np.asarray(self.factor * reduce(np.multiply, [base] * self.exponent))


def polynomial(degree: int) -> Separation:
    """F(x) = x^degree, an integer from 2 to 20. Degree 2 is twice the classical energy.

    Odd degrees tell ξ from −ξ, even ones and the classical energy do not.

    >>> float(polynomial(3)(np.array(-2.0)))
    -8.0
    """
    degree = check_integer("degree", degree, low=2, high=20)
    return Separation(name=f"polynomial of degree {degree}", function=_Power(degree))


CLASSICAL = Separation(name="classical", function=_Power(2, factor=0.5))
# The one whose sums may overflow: they are taken relative to their largest term.
EXPONENTIAL = Separation(name="exponential", function=np.exp)


# -- energies and fields of all spins at once ------------------------------------------------


def energy(patterns: Any, *, states: Any, separation: Separation = CLASSICAL) -> np.ndarray:
    """E(ξ) = −Σ_μ F(x_μ·ξ), shape (Q,) [bal2020energy, Eqs. (2), (5), (6)].

    The classical energy is −½ ξᵀWξ with the whole W, its diagonal included (with w_ii = 0 it is
    larger by the constant N·d/2). Raises ValueError where the energy would overflow, as the
    exponential one does for overlaps above 700; `retrieve` follows −ln Σ F there.

    >>> energy([[1, 1, -1]], states=[[1, 1, -1], [1, 0, 1]])
    array([-4.5,  0. ])
    """
    return _energy(*_check(patterns, "states", states, separation, False), separation)


def _energy(patterns: np.ndarray, states: np.ndarray, separation: Separation) -> np.ndarray:
    with np.errstate(over="ignore"):
        result = 0.0 - separation(states @ patterns.T).sum(axis=1)
    if not np.isfinite(result).all():
        raise ValueError(
            f"states overlap with patterns so much that the sum of {separation} overflows"
        )
    return np.asarray(result)


def fields(
    patterns: Any, *, states: Any, separation: Separation = CLASSICAL, diagonal: bool = False
) -> np.ndarray:
    """The fields h_i of all spins of all states at once, shape (Q, d); see the module's text.

    Exact as long as the integers stay below 2^53. For the exponential memory h is divided by
    max_μ F(x_μ·ξ), a positive factor for each state, and a tie is decided by rounding.

    >>> fields([[1, 1, -1]], states=[[1, -1, -1]])
    array([[0., 2., 0.]])
    """
    patterns, states = _check(patterns, "states", states, separation, diagonal)
    return _fields(patterns, states, separation, diagonal)


@np.errstate(over="ignore", invalid="ignore")
def _fields(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, diagonal: bool
) -> np.ndarray:
    """Two matrix products: flipping spin i changes x_μ·ξ by −2 x_μi ξ_i, so
    the change of F takes one of two values, and any function of x_μi = ±1 is linear in it."""
    products, (count, d) = states @ patterns.T, patterns.shape
    top = products.max(axis=1, keepdims=True) if separation == EXPONENTIAL else 0.0

    def value(overlaps: np.ndarray) -> np.ndarray:
        return separation(overlaps - top)

    # No spin reads F beyond ±d: what stands there drops out.
    up, down = value(np.minimum(products + 2.0, d)), value(np.maximum(products - 2.0, -d))
    even = (value(products) - 0.5 * (up + down)).sum(axis=1, keepdims=True)
    field = 0.5 * (even * states + 0.5 * (up - down) @ patterns)
    unknown = states == 0
    if unknown.any():
        # Without a spin of its own the state of i enters no overlap: x_μ·ξ moves by ±x_μi.
        odd = value(products + 1.0) - value(products - 1.0)
        field = np.where(unknown, 0.5 * odd @ patterns, field)
    if diagonal:
        field = field + count * states
    if not np.isfinite(field).all():
        raise ValueError(
            f"function of separation must be finite, {separation} is not at overlaps to ±{d}"
        )
    return field


def _check(
    patterns: Any, name: str, states: Any, separation: Any, diagonal: Any
) -> tuple[np.ndarray, np.ndarray]:
    patterns = check_array("patterns", patterns, shape=("N", "d"), values=(-1, 1))
    states = check_array(name, states, shape=(None, patterns.shape[1]), values=(-1, 0, 1))
    check_instance("separation", separation, Separation)
    if check_flag("diagonal", diagonal) and separation != CLASSICAL:
        raise ValueError(f"diagonal must be False for {separation}, which has no couplings")
    return patterns, states


# -- retrieval -------------------------------------------------------------------------------


@record
class DiscreteRetrieval(Solution[np.ndarray]):
    """What retrieval returns for Q queries.

    value: (Q, d), ±1, where each query ended. residual: (Q,), spins that changed in its last
    sweep. steps: (Q,), sweeps in which at least one spin changed. status: (Q,), CONVERGED for a
    fixed point, CYCLE for a cycle of two states, STEP_LIMIT for neither.
    energies: (Q, sweeps + 1), energy before the first and after each sweep; for the exponential
        memory −ln Σ_μ F, which orders states as E does and cannot overflow.
    flips: (Q,), spins changed in all (filling in an unknown spin counts).
    rises: (Q,), flips of a ±1 spin after which the energy, summed anew over all patterns, was
        higher than before; None for synchronous updates and for the classical energy.
    """

    energies: np.ndarray
    flips: np.ndarray
    rises: np.ndarray | None = None

    @property
    def states(self) -> np.ndarray:
        """(Q, d): where each query ended."""
        return self.value


def retrieve(
    patterns: Any,
    *,
    queries: Any,
    separation: Separation = CLASSICAL,
    schedule: str = "asynchronous",
    diagonal: bool = False,
    max_steps: int = 100,
    seed: Seed = 0,
) -> DiscreteRetrieval:
    """Let the queries, (Q, d) with entries ±1 or 0, relax until nothing changes.

    schedule: "asynchronous" visits the spins one by one, in a new random order each sweep (the
        same order for all queries), each seeing the latest state of the others; "synchronous"
        updates all spins at once and stops at a fixed point or a cycle of two states.
    diagonal: classical energy only; see the module's text. max_steps: sweeps, at least 1.

    No asynchronous flip raises the energy: it ends in a fixed point. Synchronous updates of the
    classical network end in a fixed point or a 2-cycle [goleschacc1985decreasing]. Ties are
    decided as in exact arithmetic where the values of F are integers, or exponential.

    >>> found = retrieve([[1, 1, 1, -1], [1, -1, 1, 1]], queries=[[1, 1, 0, 0]])
    >>> found.states, bool(found.converged[0])
    (array([[ 1.,  1.,  1., -1.]]), True)
    """
    patterns, states = _check(patterns, "queries", queries, separation, diagonal)
    check_choice("schedule", schedule, ("asynchronous", "synchronous"))
    max_steps, rng = check_integer("max_steps", max_steps, low=1), numpy_generator(seed)
    if schedule == "synchronous":
        return _synchronous(patterns, states, separation, diagonal, max_steps)
    if separation != CLASSICAL:
        return _by_overlaps(patterns, states, separation, max_steps, rng)
    couplings = hebbian_couplings(patterns, diagonal=diagonal)
    # Single precision holds every integer below 2^24 exactly and halves the memory traffic.
    if patterns.size < 2**24:
        couplings = couplings.astype(np.float32)
    found = descend(couplings, queries=states, max_steps=max_steps, seed=rng)
    if not diagonal:
        # The diagonal left out of W is −½N for each known spin; after one sweep all are known.
        found.energies[:, 0] -= 0.5 * len(patterns) * (states != 0).sum(axis=1)
        found.energies[:, 1:] -= 0.5 * patterns.size
    return found


def descend(
    couplings: np.ndarray, *, queries: np.ndarray, max_steps: int = 100, seed: Seed = 0
) -> DiscreteRetrieval:
    """Asynchronous retrieval with symmetric couplings W, (d, d), given outright.

    Energy −½ ξᵀWξ, the diagonal of W as it stands. Nothing is checked, which would cost more than
    relaxing a few queries. float32 is exact for integers while all |h_i| < 2^24.

    >>> descend(np.ones((3, 3)) - np.eye(3), queries=np.eye(3)).states[0]
    array([1., 1., 1.])
    """
    spins, field = queries.astype(np.int8), queries.astype(couplings.dtype) @ couplings

    def visit(order: np.ndarray) -> np.ndarray:
        return _sweep_couplings(couplings, spins, field, order)

    def height() -> np.ndarray:
        return -0.5 * (field * spins.astype(np.float64)).sum(axis=1)

    return _relax(spins, visit, height, max_steps, numpy_generator(seed))


def _by_overlaps(
    patterns: np.ndarray,
    states: np.ndarray,
    separation: Separation,
    max_steps: int,
    rng: np.random.Generator,
) -> DiscreteRetrieval:
    spins, bits = states.astype(np.int8), np.ascontiguousarray(patterns.T, dtype=np.int8)
    products = np.rint(states @ patterns.T).astype(np.int64)
    d, relative = patterns.shape[1], separation == EXPONENTIAL
    # A memory of d spins needs F and G at the overlaps d … −d only, in this order: e^(x − d) and a
    # multiple of it for the exponential one.
    with np.errstate(all="ignore"):
        value = separation(np.arange(d, -d - 1.0, -1.0) - d * relative).astype(float)
    if value.shape != (2 * d + 1,) or not np.isfinite(value).all():
        raise ValueError(
            f"function of separation must be finite, {separation} is not at overlaps to ±{d}"
        )
    # No spin reads the ends.
    gain = value if relative else np.pad(0.5 * (value[:-2] - value[2:]), 1)
    rises = np.zeros(len(spins), dtype=np.int64)

    def visit(order: np.ndarray) -> np.ndarray:
        return _sweep_overlaps(bits, spins, products, order, gain, value, relative, rises)

    def height() -> np.ndarray:
        found = (_depth(product, value, relative) for product in products)
        return -np.array([np.log(depth) + top if relative else depth for depth, _, top in found])

    return replace(_relax(spins, visit, height, max_steps, rng), rises=rises)


def _synchronous(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, diagonal: bool, max_steps: int
) -> DiscreteRetrieval:
    spins = states.copy()
    before = np.full_like(spins, 2.0)  # no state: nothing returns to it
    residual, cycling = np.ones(len(spins), dtype=np.int64), np.zeros(len(spins), dtype=bool)

    def visit(_: np.ndarray) -> np.ndarray:
        changed = np.zeros_like(residual)
        active = np.flatnonzero((residual > 0) & ~cycling)
        now = spins[active]
        field = _fields(patterns, now, separation, diagonal)
        after = np.where(field == 0, np.where(now == 0, 1.0, now), np.sign(field))
        changed[active] = residual[active] = (after != now).sum(axis=1)
        cycling[active] = (after == before[active]).all(axis=1)
        before[active], spins[active] = now, after
        return changed

    def height() -> np.ndarray:
        if separation == EXPONENTIAL:
            return -np.asarray(logsumexp(spins @ patterns.T, axis=1))
        return _energy(patterns, spins, separation)

    found = _relax(spins, visit, height, max_steps, numpy_generator(0))
    status = np.where(cycling, int(Status.CYCLE), status_of(residual == 0))
    return replace(found, residual=residual, status=status)


def _relax(
    spins: np.ndarray,
    visit: Callable[[np.ndarray], np.ndarray],
    height: Callable[[], np.ndarray],
    max_steps: int,
    rng: np.random.Generator,
) -> DiscreteRetrieval:
    """Sweep until nothing changes. `visit` turns `spins` (Q, d) in place, in a given order, and
    tells how many of each query."""
    sweeps, flips, changed = (np.zeros(len(spins), dtype=np.int64) for _ in range(3))
    energies = [height()]
    for _ in range(max_steps):
        changed = visit(rng.permutation(spins.shape[1]))
        flips += changed
        sweeps += changed > 0
        energies.append(height())
        if not changed.any():
            break
    return DiscreteRetrieval(
        value=spins.astype(np.float64),
        residual=changed,
        steps=sweeps,
        status=status_of(changed == 0),
        energies=np.stack(energies, axis=1),
        flips=flips,
    )


# -- compiled sweeps -------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _turned(field: float, old: np.int8) -> np.int8:
    if field > 0:
        return np.int8(1)
    if field < 0:
        return np.int8(-1)
    return np.int8(1) if old == 0 else old


@njit(nogil=True, cache=True)
def _sweep_couplings(
    weights: np.ndarray, spins: np.ndarray, field: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """One sweep at a cost of d per flip: `field` (Q, d) is kept up to date. Returns flips (Q,)."""
    count, d = spins.shape
    flips = np.zeros(count, dtype=np.int64)
    for q in range(count):
        for i in order:
            old = spins[q, i]
            new = _turned(field[q, i], old)
            if new != old:
                step = weights.dtype.type(new - old)
                row = weights[i]
                for j in range(d):
                    field[q, j] += step * row[j]
                spins[q, i] = new
                flips[q] += 1
    return flips


@njit(nogil=True, cache=True)
def _sweep_overlaps(
    bits: np.ndarray,
    spins: np.ndarray,
    products: np.ndarray,
    order: np.ndarray,
    gain: np.ndarray,
    value: np.ndarray,
    relative: bool,
    rises: np.ndarray,
) -> np.ndarray:
    """One sweep at a cost of N per visit, for any F; products (Q, N), x_μ·ξ, and rises (Q,) are
    kept up to date. gain, value: at the overlaps d … −d. Returns flips (Q,)."""
    d, flips = spins.shape[1], np.zeros(len(spins), dtype=np.int64)
    counts = np.zeros(2 * d + 1, dtype=np.int64)
    for q in range(len(spins)):
        product = products[q]
        before, scale, top = _depth(product, value, relative)
        for i in order:
            bit, old = bits[i], spins[q, i]
            field = 0.0
            if relative:
                field = _counted_field(product, bit, old, gain, counts)
            else:
                for mu in range(product.size):
                    field += gain[d - product[mu] + bit[mu] * old] * bit[mu]
            new = _turned(field, old)
            if new == old:
                continue
            flips[q] += 1
            spins[q, i] = new
            for mu in range(product.size):
                product[mu] += bit[mu] * (new - old)
            after, weight, high_top = _depth(product, value, relative)
            if old != 0 and before - after * np.exp(high_top - top) > 1e-13 * scale:
                rises[q] += 1
            before, scale, top = after, weight, high_top
    return flips


@njit(nogil=True, cache=True)
def _counted_field(
    product: np.ndarray, bit: np.ndarray, own: np.int8, gain: np.ndarray, counts: np.ndarray
) -> float:
    """Σ_μ gain · x_μi, relative to the largest overlap that counts: patterns are counted by their
    overlap (`counts` is scratch, zero before and after), so that those of opposite pull cancel
    exactly, and those further down decide, as they do in exact arithmetic."""
    d, low, high = counts.size // 2, counts.size - 1, 0
    for mu in range(product.size):
        place = d - product[mu] + bit[mu] * own
        counts[place] += bit[mu]
        low, high = min(low, place), max(high, place)
    while low < high and counts[low] == 0:
        low += 1
    field = 0.0
    for place in range(low, high + 1):
        # All that is left is below the last digit of the sum.
        if product.size * abs(gain[place - low]) < 1e-17 * abs(field):
            break
        field += counts[place] * gain[place - low]
    counts[low : high + 1] = 0
    return field


@njit(nogil=True, cache=True)
def _depth(product: np.ndarray, value: np.ndarray, relative: bool) -> tuple[float, float, int]:
    """Σ_μ F, and the same of magnitudes; `relative` to e^x at the largest overlap x, which is told
    (else 0)."""
    zero, top = (value.size - 1) // 2, product.max() if relative else 0
    first = top if relative else zero
    found, scale = 0.0, 0.0
    for mu in range(product.size):
        entry = value[first - product[mu]]
        found += entry
        scale += abs(entry)
    return found, scale, top
