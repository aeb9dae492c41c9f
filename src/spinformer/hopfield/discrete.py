"""Discrete associative memories: E(ξ) = −Σ_μ F(x_μ·ξ) on spins, retrieved by flipping spins.

F decides how sharply stored patterns are told apart: x²/2 is Hopfield's network
[hopfield1982neural] with the Hebbian couplings W = Σ_μ x_μ x_μᵀ, x^a the dense memory
[krotov2016dense; bal2020energy, Eq. (5)], e^x the exponential one [demircigil2017model;
bal2020energy, Eq. (6)]. Any other F is a `Separation` of one's own.

Conventions. Patterns are the rows of an (N, d) array of ±1, the document's X transposed. States
are rows of a (Q, d) array; entries may be ±1 or, in a query, 0 for "unknown". Energies carry no
β. A bias b adds +b·ξ to the energy, with the document's sign.

One update for every F: ξ_i ← sgn h_i, where the field h_i is half the energy it would cost to turn
spin i down instead of up, everything else kept,

    h_i = ½[E(ξ_i = −1) − E(ξ_i = +1)] = Σ_μ x_μi G(x_μ·ξ − x_μi ξ_i) − b_i,
    G(x) = ½[F(x + 1) − F(x − 1)].

For the classical energy G(x) = x and h_i = Σ_{j≠i} w_ij ξ_j − b_i: since ξ_i² = 1, the diagonal of
W is a constant of the energy and never enters an energy difference. The document's rule (its
Eq. (4)), the sign of minus the gradient, does contain it: h_i = −∂E/∂ξ_i = Σ_j w_ij ξ_j − b_i with
w_ii = N, a pull of every spin towards itself. `diagonal=True` selects that rule, for every F:
h_i = Σ_μ x_μi F′(x_μ·ξ) − b_i. A field of exactly zero leaves a spin as it is (an unknown spin
becomes +1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

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

_Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Separation:
    """A separation function, elementwise on NumPy arrays of overlaps x_μ·ξ, not divided by d.

    function: F, a pure function (its tables are kept). derivative: F′; needed only by the update
    that follows the gradient. log and log_derivative: ln F and ln F′ for a positive F that
    overflows; energies are then −ln Σ F, which orders states as −Σ F does.

    >>> rectified = Separation(name="rectified cube", function=lambda x: np.maximum(x, 0) ** 3)
    >>> rectified(np.array([-2.0, 2.0]))
    array([0., 8.])
    """

    name: str
    function: _Function
    derivative: _Function | None = None
    log: _Function | None = None
    log_derivative: _Function | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for what is not a function."""
        for name in ("function", "derivative", "log", "log_derivative"):
            given = getattr(self, name)
            if given is not None or name == "function":
                check_function(name, given)

    def __call__(self, overlaps: np.ndarray) -> np.ndarray:
        """F of the overlaps."""
        return np.asarray(self.function(overlaps))

    def __str__(self) -> str:
        """The name."""
        return self.name


def _power(base: np.ndarray, *, exponent: int, factor: float = 1.0) -> np.ndarray:
    """By repeated squaring: exact for integers below 2^53 and far faster than `**`."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return factor * result


def _same(overlaps: np.ndarray) -> np.ndarray:
    return overlaps


def polynomial(degree: int) -> Separation:
    """F(x) = x^degree, an integer from 2 to 20. Degree 2 is twice the classical energy.

    Odd degrees tell ξ from −ξ, even ones and the classical energy do not.

    >>> float(polynomial(3)(np.array(-2.0)))
    -8.0
    """
    return _POLYNOMIALS[check_integer("degree", degree, low=2, high=max(_POLYNOMIALS))]


# One object a degree: tables are kept by it.
_POLYNOMIALS = {
    degree: Separation(
        name=f"polynomial of degree {degree}",
        function=partial(_power, exponent=degree),
        derivative=partial(_power, exponent=degree - 1, factor=float(degree)),
    )
    for degree in range(2, 21)
}
CLASSICAL = Separation(
    name="classical", function=partial(_power, exponent=2, factor=0.5), derivative=_same
)
EXPONENTIAL = Separation(
    name="exponential", function=np.exp, derivative=np.exp, log=_same, log_derivative=_same
)


# -- energies and fields of all spins at once ------------------------------------------------


def energy(
    patterns: Any, *, states: Any, separation: Separation = CLASSICAL, bias: Any = None
) -> np.ndarray:
    """E(ξ) = −Σ_μ F(x_μ·ξ) + b·ξ, shape (Q,) [bal2020energy, Eqs. (2), (5), (6)].

    The classical energy is −½ ξᵀWξ + b·ξ with the whole W, its diagonal included (with w_ii = 0
    it is larger by the constant N·d/2). Raises ValueError where the energy would overflow, as
    the exponential one does for overlaps above 700; `retrieve` follows −ln Σ F there.

    >>> energy([[1, 1, -1]], states=[[1, 1, -1], [1, 0, 1]])
    array([-4.5,  0. ])
    """
    memory, states = _check(patterns, "states", states, separation, False, bias)
    with np.errstate(over="ignore"):
        result = _plain_energy(memory, states, states @ memory.patterns.T)
    if not np.isfinite(result).all():
        raise ValueError(
            f"states overlap with patterns so much that the sum of {separation} overflows"
        )
    return result


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
    return _fields(*_check(patterns, "states", states, separation, diagonal, bias))


class _Memory(NamedTuple):
    patterns: np.ndarray
    separation: Separation
    diagonal: bool
    push: np.ndarray


def _plain_energy(memory: _Memory, states: np.ndarray, products: np.ndarray) -> np.ndarray:
    return -memory.separation(products).sum(axis=1) + states @ memory.push


def _fields(memory: _Memory, states: np.ndarray) -> np.ndarray:
    """Two matrix products: flipping spin i changes x_μ·ξ by −2 x_μi ξ_i, so
    the change of F takes one of two values, and any function of x_μi = ±1 is linear in it."""
    patterns, separation, diagonal, push = memory
    products, d = states @ patterns.T, patterns.shape[1]
    log, top = separation.log, np.zeros((len(states), 1))
    if log is not None:
        top = log(products).max(axis=1, keepdims=True)
    if diagonal:
        slope = _slope(separation)(products)
        return (slope if log is None else np.exp(slope - top)) @ patterns - push

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
    return field - push


def _slope(separation: Separation) -> _Function:
    name = "derivative" if separation.log is None else "log_derivative"
    slope: _Function | None = getattr(separation, name)
    if slope is None:
        raise ValueError(f"separation must have a {name} for diagonal=True, got {separation}")
    return slope


def _check(
    patterns: Any, name: str, states: Any, separation: Any, diagonal: Any, bias: Any
) -> tuple[_Memory, np.ndarray]:
    """A memory of patterns (N, d) of ±1 with a bias (d,), and states (Q, d) of ±1 and 0."""
    patterns = check_array("patterns", patterns, ndim=2, values=(-1, 1))
    if 0 in patterns.shape:
        raise ValueError(f"patterns must hold at least one pattern, got shape {patterns.shape}")
    dim = patterns.shape[1]
    states = check_array(name, states, shape=(None, dim), values=(-1, 0, 1))
    check_instance("separation", separation, Separation)
    check_flag("diagonal", diagonal)
    if bias is not None and separation.log is not None:
        raise ValueError(f"bias must be None for {separation}, whose energy is scaled")
    push = np.zeros(dim) if bias is None else check_array("bias", bias, shape=(dim,))
    return _Memory(patterns, separation, diagonal, push), states


# -- retrieval -------------------------------------------------------------------------------


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
    memory, states = _check(patterns, "queries", queries, separation, diagonal, bias)
    patterns, push = memory.patterns, memory.push
    check_choice("schedule", schedule, ("asynchronous", "synchronous"))
    check_choice("kernel", kernel, ("auto", "couplings", "overlaps"))
    check_flag("throw", throw)
    max_steps, rng = check_integer("max_steps", max_steps, low=1), numpy_generator(seed)
    if kernel == "couplings" and separation != CLASSICAL:
        raise ValueError(f"kernel 'couplings' needs the classical energy, got {separation}")
    if schedule == "synchronous":
        found = _synchronous(memory, states, max_steps)
    elif kernel == "overlaps" or separation != CLASSICAL:
        found = _by_overlaps(memory, states, max_steps, rng)
    else:
        couplings = hebbian_couplings(patterns, diagonal=diagonal)
        # Single precision holds every integer below 2^24 exactly and halves the memory traffic.
        if patterns.size < 2**24 and not push.any():
            couplings = couplings.astype(np.float32)
        found = descend(couplings, queries=states, bias=push, max_steps=max_steps, seed=rng)
        if not diagonal:
            # The diagonal left out of W is −½N for each known spin; after one sweep all are known.
            found.energies[:, 0] -= 0.5 * len(patterns) * (states != 0).sum(axis=1)
            found.energies[:, 1:] -= 0.5 * patterns.size
    if throw:
        found.require("a fixed point of the memory")
    return found


def descend(
    couplings: np.ndarray,
    *,
    queries: np.ndarray,
    bias: np.ndarray | float = 0.0,
    max_steps: int = 100,
    seed: Seed = 0,
) -> DiscreteRetrieval:
    """Asynchronous retrieval with symmetric couplings W, (d, d), given outright.

    Energy −½ ξᵀWξ + b·ξ, the diagonal of W as it stands. For loops that build W themselves:
    nothing is checked, which would cost more than relaxing a few queries. float32 is exact for
    integers while all |h_i| < 2^24.

    >>> descend(np.ones((3, 3)) - np.eye(3), queries=np.eye(3)).states[0]
    array([1., 1., 1.])
    """
    spins, kind = queries.astype(np.int8), couplings.dtype
    field = np.ascontiguousarray(queries.astype(kind) @ couplings - bias, dtype=kind)

    def visit(order: np.ndarray) -> np.ndarray:
        return _sweep_couplings(couplings, spins, field, order)

    def value() -> np.ndarray:
        now = spins.astype(np.float64)
        return -0.5 * ((field + bias) * now).sum(axis=1) + (now * bias).sum(axis=1)

    return _relax(spins, visit, value, max_steps, numpy_generator(seed))


def _by_overlaps(
    memory: _Memory, states: np.ndarray, max_steps: int, rng: np.random.Generator
) -> DiscreteRetrieval:
    patterns, separation, diagonal, push = memory
    count, d = patterns.shape
    spins, bits = states.astype(np.int8), np.ascontiguousarray(patterns.T, dtype=np.int8)
    products = np.rint(states @ patterns.T).astype(np.int64)
    tables, rises = _tabulate(separation, d, count, diagonal), np.zeros(len(spins), dtype=np.int64)

    def visit(order: np.ndarray) -> np.ndarray:
        return _sweep_overlaps(bits, spins, products, order, tables, diagonal, push, rises)

    def value() -> np.ndarray:
        if separation.log is None:
            return _plain_energy(memory, spins, products.astype(np.float64))
        sums = [_depth(product, *tables[3:]) for product in products]
        return -np.array([np.log(found) + power * np.log(2.0) for found, _, power in sums])

    return replace(_relax(spins, visit, value, max_steps, rng), rises=rises)


def _synchronous(memory: _Memory, states: np.ndarray, max_steps: int) -> DiscreteRetrieval:
    patterns, log = memory.patterns, memory.separation.log
    spins = states.copy()
    before = np.full_like(spins, 2.0)  # no state: nothing returns to it
    residual, cycling = np.ones(len(spins), dtype=np.int64), np.zeros(len(spins), dtype=bool)

    def visit(_: np.ndarray) -> np.ndarray:
        changed = np.zeros_like(residual)
        active = np.flatnonzero((residual > 0) & ~cycling)
        now = spins[active]
        field = _fields(memory, now)
        after = np.where(field == 0, np.where(now == 0, 1.0, now), np.sign(field))
        changed[active] = residual[active] = (after != now).sum(axis=1)
        cycling[active] = (after == before[active]).all(axis=1) & (changed[active] > 0)
        before[active], spins[active] = now, after
        return changed

    def value() -> np.ndarray:
        products = spins @ patterns.T
        if log is None:
            return _plain_energy(memory, spins, products)
        return -np.asarray(logsumexp(log(products), axis=1))

    found = _relax(spins, visit, value, max_steps, numpy_generator(0))
    status = np.where(cycling, int(Status.CYCLE), status_of(residual == 0))
    return replace(found, residual=residual, status=status)


def _relax(
    spins: np.ndarray,
    visit: _Function,
    value: Callable[[], np.ndarray],
    max_steps: int,
    rng: np.random.Generator,
) -> DiscreteRetrieval:
    """Sweep until a whole sweep changes nothing. `visit` turns `spins` (Q, d) in place, in a given
    order, and tells how many of each query."""
    sweeps, flips, changed = (np.zeros(len(spins), dtype=np.int64) for _ in range(3))
    energies = [value()]
    for _ in range(max_steps):
        changed = visit(rng.permutation(spins.shape[1]))
        flips += changed
        sweeps += changed > 0
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
    )


# -- compiled sweeps -------------------------------------------------------------------------
#
# A memory of d spins needs F and the gain, G or F′, at the overlaps −d … d only: they are
# tabulated once. Integers are summed as they are, without rounding. Others are kept as mantissa
# and power of two, so that none overflows, and patterns are counted by their overlap before
# anything is rounded: patterns of opposite pull then cancel exactly, and those further down
# decide, as they do in exact arithmetic.

# 2^−k: weights of entries k doublings below the largest; what is further down does not count.
_DOUBLINGS = 1100
_HALVES = 0.5 ** np.arange(_DOUBLINGS)


@lru_cache(maxsize=64)
def _tabulate(separation: Separation, dim: int, count: int, diagonal: bool) -> tuple[Any, ...]:
    """(gain, gain_power, rank, value, value_power) at the overlaps −d … d, for `count` patterns.

    Exact integers in the order of overlaps, without powers; or the gains in falling order of
    magnitude, that of the overlap d − k at `rank[k]`, or at k where `rank` is empty."""
    levels, nothing = np.arange(-dim, dim + 1.0), np.zeros(0, dtype=np.int64)

    def at_levels(function: _Function) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(function(levels), dtype=float)
        if found.shape != levels.shape or not np.isfinite(found).all():
            raise ValueError(
                f"function of separation must be finite, {separation} is not at overlaps "
                f"from {-dim} to {dim}; one that overflows needs its log"
            )
        return found

    value = at_levels(separation.function if separation.log is None else separation.log)
    up, down = value[2:], value[:-2]
    gain_sign = value_sign = np.ones(levels.size)
    with np.errstate(divide="ignore"):
        if diagonal:
            gain = at_levels(_slope(separation))
        elif separation.log is None:
            gain = np.pad(0.5 * (up - down), 1)  # no spin reads the ends
        else:
            gain_sign = np.pad(np.sign(up - down), 1)
            fall = np.log(-0.5 * np.expm1(-np.abs(up - down)))
            gain = np.pad(np.maximum(up, down) + fall, 1)
        if separation.log is None:
            whole = all((table == np.rint(table)).all() for table in (gain, 2.0 * value))
            if whole and count * max(np.abs(gain).max(), 2.0 * np.abs(value).max()) < 2.0**53:
                return gain, nothing, nothing, value, nothing
            gain_sign, value_sign = np.sign(gain), np.sign(value)
            gain, value = np.log(np.abs(gain)), np.log(np.abs(value))
    gain, power = (table[::-1] for table in _split(gain_sign, gain))
    order = np.argsort(-power, kind="stable")
    inner = power[1:-1]
    rank = nothing if (np.diff(inner) <= 0).all() else np.argsort(order)
    if rank.size:
        gain, power = gain[order], power[order]
    return np.ascontiguousarray(gain), np.ascontiguousarray(power), rank, *_split(value_sign, value)


def _split(sign: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mantissa and power of two of sign · e^logs; zero has the least power."""
    finite = np.where(sign == 0, 0.0, logs)
    power = np.floor(finite / np.log(2.0)) + 1.0
    mantissa = sign * np.exp(finite - power * np.log(2.0))
    return mantissa, np.where(sign == 0, power.min(), power).astype(np.int64)


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
    tables: tuple[Any, ...],
    diagonal: bool,
    push: np.ndarray,
    rises: np.ndarray,
) -> np.ndarray:
    """One sweep at a cost of N per visit, for any F. bits: (d, N), patterns transposed. products:
    (Q, N) x_μ·ξ, kept up to date, as are the rises (Q,). Returns flips (Q,)."""
    gain, gain_power, rank, value, value_power = tables
    d, flips = spins.shape[1], np.zeros(len(spins), dtype=np.int64)
    counts = np.zeros(2 * d + 1, dtype=np.int64)
    biased = push.any()
    for q in range(len(spins)):
        product = products[q]
        before, scale, low = _depth(product, value, value_power)
        for i in order:
            bit, old = bits[i], spins[q, i]
            own = np.int8(0) if diagonal else old
            if gain_power.size == 0:
                field = 0.0
                for mu in range(product.size):
                    field += gain[product[mu] - bit[mu] * own + d] * bit[mu]
            else:
                field, power = _counted_field(bit, product, own, gain, gain_power, rank, counts)
                if biased:
                    field *= 2.0**power
            if biased:
                field -= push[i]
            new = _turned(field, old)
            if new == old:
                continue
            flips[q] += 1
            spins[q, i] = new
            change = new - old
            for mu in range(product.size):
                product[mu] += bit[mu] * change
            after, weight, high = _depth(product, value, value_power)
            top = 0 if biased else max(low, high)
            rise = before * 2.0 ** (low - top) - after * 2.0 ** (high - top)
            if biased:
                rise += change * push[i]
            if old != 0 and rise > 1e-13 * scale * 2.0 ** (low - top):
                rises[q] += 1
            before, scale, low = after, weight, high
    return flips


@njit(nogil=True, cache=True)
def _depth(product: np.ndarray, value: np.ndarray, power: np.ndarray) -> tuple[float, float, int]:
    """Σ_μ F as (sum, sum of magnitudes, power of two that multiplies both)."""
    zero = (value.size - 1) // 2
    found, scale, top = 0.0, 0.0, 0
    if power.size:
        top = power[product[0] + zero]
        for mu in range(1, product.size):
            top = max(top, power[product[mu] + zero])
    for mu in range(product.size):
        k = product[mu] + zero
        entry = value[k]
        if power.size:
            entry *= _HALVES[min(top - power[k], _DOUBLINGS - 1)]
        found += entry
        scale += abs(entry)
    return found, scale, top


@njit(nogil=True, cache=True)
def _counted_field(
    bit: np.ndarray,
    product: np.ndarray,
    own: np.int8,
    gain: np.ndarray,
    gain_power: np.ndarray,
    rank: np.ndarray,
    counts: np.ndarray,
) -> tuple[float, int]:
    """Σ_μ gain · x_μi as (sum, power of two); `counts` is scratch, zero before and after."""
    zero = (counts.size - 1) // 2
    low, high = counts.size - 1, 0
    for mu in range(product.size):
        place = zero - product[mu] + bit[mu] * own
        if rank.size:
            place = rank[place]
        counts[place] += bit[mu]
        low, high = min(low, place), max(high, place)
    first = low
    while first < high and counts[first] == 0:
        first += 1
    top = gain_power[first]
    field = 0.0
    for place in range(first, high + 1):
        weight = _HALVES[min(top - gain_power[place], _DOUBLINGS - 1)]
        # All that is left is below the last digit of the sum.
        if product.size * weight < 1e-17 * abs(field):
            break
        field += counts[place] * gain[place] * weight
    counts[low : high + 1] = 0
    return field, top
