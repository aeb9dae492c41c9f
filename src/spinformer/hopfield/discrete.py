"""Discrete associative memories with the energy E(ξ) = −Σ_μ F(x_μ·ξ), retrieved by spin flips.

The separation function F decides how sharply stored patterns are distinguished. F = x²/2 is
Hopfield's network [hopfield1982neural] with the Hebbian couplings W = Σ_μ x_μ x_μᵀ, F = x^a the
dense associative memory [krotov2016dense; bal2020energy, Eq. (5)], and F = e^x the exponential one
[demircigil2017model; bal2020energy, Eq. (6)]. Any other F is a `Separation` that the caller
defines.

Conventions. Patterns are the rows of an (N, d) array of ±1, the transpose of X in [bal2020energy].
States are rows of a (Q, d) array. Their entries are ±1 or, in a query, 0 for an unknown spin.
Energies carry no β and no bias.

There is one update for every F, ξ_i ← sgn h_i. The field h_i is half the energy it would cost to
set spin i to −1 instead of +1, all other spins held fixed,

    h_i = ½[E(ξ_i = −1) − E(ξ_i = +1)] = Σ_μ x_μi G(x_μ·ξ − x_μi ξ_i),
    G(x) = ½[F(x + 1) − F(x − 1)].

For the classical energy G(x) = x and h_i = Σ_{j≠i} w_ij ξ_j. The rule of [bal2020energy, Eq. (4)],
the sign of minus the gradient, contains the diagonal w_ii = N as well, which acts on every spin as
a field along itself. It is available as `diagonal=True`. A field of exactly zero leaves a spin as
it is, and an unknown spin becomes +1.
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
    """Separation function F of a dense associative memory.

    The function acts elementwise on a NumPy array of overlaps x_μ·ξ, which are not divided by d.
    It must be finite from −d to d.

    Parameters
    ----------
    name : str
        Name, for messages.
    function : callable
        Maps an array of overlaps to an array of real numbers of the same shape.

    Raises
    ------
    TypeError
        If `function` cannot be called, or returns masked entries or what are no real numbers.
    ValueError
        If `function` returns another shape or NaN.

    Examples
    --------
    >>> rectified = Separation(name="rectified cube", function=lambda x: np.maximum(x, 0) ** 3)
    >>> rectified(np.array([-2.0, 2.0]))
    array([0., 8.])
    """

    name: str
    function: Callable[[np.ndarray], np.ndarray]

    def __post_init__(self) -> None:
        check_function("function", self.function)

    def __call__(self, overlaps: np.ndarray) -> np.ndarray:
        returned = self.function(overlaps)
        if isinstance(returned, np.ma.MaskedArray):
            raise TypeError("function of separation must return no masked entries")
        values = np.asarray(returned)
        if values.dtype.kind not in "biuf":
            raise TypeError(f"function of separation must return real numbers, got {values.dtype}")
        if values.shape != np.shape(overlaps):
            raise ValueError(
                f"function of separation must act elementwise: of shape {np.shape(overlaps)} it "
                f"made {values.shape}"
            )
        if np.isnan(values).any():
            raise ValueError(f"function of separation must be finite, {self} gives NaN")
        return values.astype(np.float64, copy=False)

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
    """Separation function of a polynomial dense associative memory.

    Parameters
    ----------
    degree : int
        Degree a, from 2 to 20.

    Returns
    -------
    Separation
        The function F(x) = x^a.

    Raises
    ------
    TypeError
        If the degree is not an integer.
    ValueError
        If the degree is not in [2, 20].

    Notes
    -----
    Degree 2 is twice the classical energy. Odd degrees distinguish ξ from −ξ. Even degrees and the
    classical energy do not.

    References
    ----------
    [krotov2016dense]

    [bal2020energy, Eq. (5)]

    Examples
    --------
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
    r"""Energy of a discrete Hopfield network or dense associative memory.

    Parameters
    ----------
    patterns : ndarray, shape (N, d)
        Stored patterns with entries ±1, one a row.
    states : ndarray, shape (Q, d)
        States with entries ±1, or 0 for an unknown spin, one a row.
    separation : Separation, default CLASSICAL
        Function F of the overlaps in the energy.

    Returns
    -------
    ndarray, shape (Q,)
        The energy of each state.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape or an entry is not allowed, or the energy overflows, as the exponential energy
        does for overlaps above 700.

    Notes
    -----

    .. math::

        E(\xi) = -\sum_\mu F(x_\mu \cdot \xi).

    The classical energy is −½ ξᵀWξ with the diagonal of W included. With w_ii = 0 the energy is
    larger by the constant N·d/2. Where the exponential energy overflows, `retrieve` follows −ln Σ
    F.

    References
    ----------
    [bal2020energy, Eqs. (2), (5), (6)]

    Examples
    --------
    >>> energy([[1, 1, -1]], states=[[1, 1, -1], [1, 0, 1]])
    array([-4.5,  0. ])
    """
    patterns, states = _check(patterns, "states", states, separation, False)
    return _energy(patterns, states, separation)


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
    r"""Local fields of all spins of a discrete Hopfield network or dense associative memory.

    A field is half the energy difference between the two states of one spin, all other spins held
    fixed.

    Parameters
    ----------
    patterns : ndarray, shape (N, d)
        Stored patterns with entries ±1, one a row.
    states : ndarray, shape (Q, d)
        States with entries ±1, or 0 for an unknown spin, one a row.
    separation : Separation, default CLASSICAL
        Function F of the overlaps in the energy.
    diagonal : bool, default False
        Whether the couplings keep their diagonal w_ii = N, a field on every spin along itself.
        Only the classical memory has couplings.

    Returns
    -------
    ndarray, shape (Q, d)
        The field h_i on every spin of every state.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape or an entry is not allowed, `diagonal` is given for another than the classical
        memory, or the separation function is not finite.

    Notes
    -----

    .. math::

        h_i = \tfrac12 \left[E(\xi_i = -1) - E(\xi_i = +1)\right] = \sum_\mu x_{\mu i}\, G(x_\mu
        \cdot \xi - x_{\mu i} \xi_i), \qquad G(x) = \tfrac12 \left[F(x + 1) - F(x - 1)\right].

    The result is exact as long as the integers stay below 2^53. For the exponential memory the
    field is divided by max_μ F(x_μ·ξ), which is positive for each state, and a tie is decided by
    rounding.

    Examples
    --------
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
    count, d = patterns.shape
    products = states @ patterns.T
    top = products.max(axis=1, keepdims=True) if separation == EXPONENTIAL else 0.0

    def value(overlaps: np.ndarray) -> np.ndarray:
        return separation(overlaps - top)

    # No spin reads F beyond ±d, so that values there drop out.
    up = value(np.minimum(products + 2.0, d))
    down = value(np.maximum(products - 2.0, -d))
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
    """Result of retrieval from a discrete associative memory, for Q queries.

    Attributes
    ----------
    value : ndarray, shape (Q, d)
        Final states with entries ±1.
    residual : ndarray of int, shape (Q,)
        Number of spins that changed in the last sweep.
    steps : ndarray of int, shape (Q,)
        Number of sweeps in which at least one spin changed.
    status : ndarray of int, shape (Q,)
        CONVERGED for a fixed point, CYCLE for a cycle of two states, and STEP_LIMIT for neither.
    energies : ndarray, shape (Q, sweeps + 1)
        Energy before the first sweep and after each sweep. For the exponential memory it is −ln
        Σ_μ F, which orders states as E does and cannot overflow.
    flips : ndarray of int, shape (Q,)
        Total number of spin flips. Filling in an unknown spin counts.
    rises : ndarray of int, shape (Q,), or None
        Number of flips of a ±1 spin after which the energy, recomputed over all patterns, was
        higher than before. None for synchronous updates and for the classical energy.
    """

    energies: np.ndarray
    flips: np.ndarray
    rises: np.ndarray | None = None

    @property
    def states(self) -> np.ndarray:
        """Final states of the queries, shape (Q, d)."""
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
    """Retrieval from a discrete Hopfield network or dense associative memory by spin flips.

    Parameters
    ----------
    patterns : ndarray, shape (N, d)
        Stored patterns with entries ±1, one a row.
    queries : ndarray, shape (Q, d)
        Initial states with entries ±1, or 0 for an unknown spin.
    separation : Separation, default CLASSICAL
        Function F of the overlaps in the energy.
    schedule : {"asynchronous", "synchronous"}, default "asynchronous"
        Asynchronous updates visit the spins one by one, in a new random order each sweep, which is
        the same for all queries. Synchronous updates change all spins at once and stop at a fixed
        point or a cycle of two states.
    diagonal : bool, default False
        Whether the couplings keep their diagonal w_ii = N, a field on every spin along itself.
        Only the classical memory has couplings.
    max_steps : int, default 100
        Largest number of sweeps, at least 1.
    seed : int or numpy.random.Generator, default 0
        Source of the random orders.

    Returns
    -------
    DiscreteRetrieval
        Final states, energies, numbers of flips, and whether each query converged.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape or a value is not allowed, `diagonal` is given for another than the classical
        memory, or the separation function is not finite.

    Notes
    -----
    The update sets each spin to the sign of its field, ξ_i ← sgn h_i (see `fields`). A field of
    exactly zero leaves a spin as it is, and an unknown spin becomes +1. No asynchronous flip
    raises the energy, so that asynchronous retrieval ends in a fixed point. Synchronous updates of
    the classical network end in a fixed point or a cycle of two states. Ties are decided as in
    exact arithmetic where the values of F are integers, or exponential.

    References
    ----------
    [hopfield1982neural]

    [bal2020energy, Eqs. (4), (5), (6)]

    [goleschacc1985decreasing], for synchronous updates.

    Examples
    --------
    >>> result = retrieve([[1, 1, 1, -1], [1, -1, 1, 1]], queries=[[1, 1, 0, 0]])
    >>> result.states, bool(result.converged[0])
    (array([[ 1.,  1.,  1., -1.]]), True)
    """
    patterns, states = _check(patterns, "queries", queries, separation, diagonal)
    check_choice("schedule", schedule, ("asynchronous", "synchronous"))
    max_steps = check_integer("max_steps", max_steps, low=1)
    rng = numpy_generator(seed)
    if schedule == "synchronous":
        return _synchronous(patterns, states, separation, diagonal, max_steps)
    if separation != CLASSICAL:
        return _by_overlaps(patterns, states, separation, max_steps, rng)
    couplings = hebbian_couplings(patterns, diagonal=diagonal)
    # Single precision holds every integer below 2^24 exactly and halves the memory traffic.
    if patterns.size < 2**24:
        couplings = couplings.astype(np.float32)
    result = asynchronous_dynamics(couplings, queries=states, max_steps=max_steps, seed=rng)
    if not diagonal:
        # The diagonal left out of W is −½N for each known spin; after one sweep all are known.
        result.energies[:, 0] -= 0.5 * len(patterns) * (states != 0).sum(axis=1)
        result.energies[:, 1:] -= 0.5 * patterns.size
    return result


def asynchronous_dynamics(
    couplings: np.ndarray, *, queries: np.ndarray, max_steps: int = 100, seed: Seed = 0
) -> DiscreteRetrieval:
    """Asynchronous (Glauber, zero-temperature) dynamics of a network with given couplings.

    Nothing is checked, because a check would cost more than the relaxation of a few queries.

    Parameters
    ----------
    couplings : ndarray, shape (d, d)
        Symmetric couplings W, whose diagonal is used as it is.
    queries : ndarray, shape (Q, d)
        Initial states with entries ±1, or 0 for an unknown spin.
    max_steps : int, default 100
        Largest number of sweeps.
    seed : int or numpy.random.Generator, default 0
        Source of the random orders.

    Returns
    -------
    DiscreteRetrieval
        Final states and their energies −½ ξᵀWξ.

    Notes
    -----
    Couplings in float32 are exact for integers as long as all |h_i| < 2^24.

    Examples
    --------
    >>> asynchronous_dynamics(np.ones((3, 3)) - np.eye(3), queries=np.eye(3)).states[0]
    array([1., 1., 1.])
    """
    spins = queries.astype(np.int8)
    field = queries.astype(couplings.dtype) @ couplings

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
    spins = states.astype(np.int8)
    bits = np.ascontiguousarray(patterns.T, dtype=np.int8)
    products = np.rint(states @ patterns.T).astype(np.int64)
    d = patterns.shape[1]
    relative = separation == EXPONENTIAL
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
        heights = []
        for product in products:
            depth, _, top = _depth(product, value, relative)
            # −ln Σ F, with the largest term in front, which e^x needs.
            heights.append(-(np.log(depth) + top) if relative else -depth)
        return np.array(heights)

    return replace(_relax(spins, visit, height, max_steps, rng), rises=rises)


def _synchronous(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, diagonal: bool, max_steps: int
) -> DiscreteRetrieval:
    spins = states.copy()
    before = np.full_like(spins, 2.0)  # no state: nothing returns to it
    residual = np.ones(len(spins), dtype=np.int64)
    cycling = np.zeros(len(spins), dtype=bool)

    def visit(_: np.ndarray) -> np.ndarray:
        changed = np.zeros_like(residual)
        active = np.flatnonzero((residual > 0) & ~cycling)
        now = spins[active]
        field = _fields(patterns, now, separation, diagonal)
        after = np.where(field == 0, np.where(now == 0, 1.0, now), np.sign(field))
        flips = (after != now).sum(axis=1)
        changed[active] = flips
        residual[active] = flips
        cycling[active] = (after == before[active]).all(axis=1)
        before[active] = now
        spins[active] = after
        return changed

    def height() -> np.ndarray:
        if separation == EXPONENTIAL:
            return -np.asarray(logsumexp(spins @ patterns.T, axis=1))
        return _energy(patterns, spins, separation)

    result = _relax(spins, visit, height, max_steps, numpy_generator(0))
    status = np.where(cycling, int(Status.CYCLE), status_of(residual == 0))
    return replace(result, residual=residual, status=status)


def _relax(
    spins: np.ndarray,
    visit: Callable[[np.ndarray], np.ndarray],
    height: Callable[[], np.ndarray],
    max_steps: int,
    rng: np.random.Generator,
) -> DiscreteRetrieval:
    """Sweep until nothing changes. `visit` updates `spins` (Q, d) in place, in a given order, and
    returns how many of each query flipped."""
    sweeps = np.zeros(len(spins), dtype=np.int64)
    flips = np.zeros_like(sweeps)
    changed = np.zeros_like(sweeps)
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
def _sign_update(field: float, old: np.int8) -> np.int8:
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
            new = _sign_update(field[q, i], old)
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
    d = spins.shape[1]
    flips = np.zeros(len(spins), dtype=np.int64)
    counts = np.zeros(2 * d + 1, dtype=np.int64)
    for q in range(len(spins)):
        product = products[q]
        before, scale, top = _depth(product, value, relative)
        for i in order:
            bit = bits[i]
            old = spins[q, i]
            field = 0.0
            if relative:
                field = _counted_field(product, bit, old, gain, counts)
            else:
                for mu in range(product.size):
                    field += gain[d - product[mu] + bit[mu] * old] * bit[mu]
            new = _sign_update(field, old)
            if new == old:
                continue
            flips[q] += 1
            spins[q, i] = new
            for mu in range(product.size):
                product[mu] += bit[mu] * (new - old)
            after, weight, high_top = _depth(product, value, relative)
            if old != 0 and before - after * np.exp(high_top - top) > 1e-13 * scale:
                rises[q] += 1
            before = after
            scale = weight
            top = high_top
    return flips


@njit(nogil=True, cache=True)
def _counted_field(
    product: np.ndarray, bit: np.ndarray, own: np.int8, gain: np.ndarray, counts: np.ndarray
) -> float:
    """Σ_μ gain · x_μi, relative to the largest overlap that counts: patterns are counted by their
    overlap (`counts` is scratch, zero before and after), so that opposite forces cancel
    exactly, and those further down decide, as they do in exact arithmetic."""
    d = counts.size // 2
    low = counts.size - 1
    high = 0
    for mu in range(product.size):
        place = d - product[mu] + bit[mu] * own
        counts[place] += bit[mu]
        low = min(low, place)
        high = max(high, place)
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
    """Σ_μ F and Σ_μ |F|, `relative` to e^x at the largest overlap x, which is returned (else 0)."""
    zero = (value.size - 1) // 2
    top = product.max() if relative else 0
    first = top if relative else zero
    depth = 0.0
    scale = 0.0
    for mu in range(product.size):
        entry = value[first - product[mu]]
        depth += entry
        scale += abs(entry)
    return depth, scale, top
