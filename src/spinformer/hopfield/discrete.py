"""Discrete associative memories: E(ξ) = −Σ_μ F(x_μ·ξ) on spins, retrieved by flipping spins.

One family (document 001, section 3): the separation function F decides how sharply stored
patterns are told apart. F(x) = x²/2 is Hopfield's network (1982) with the Hebbian couplings
W = Σ_μ x_μ x_μᵀ, F(x) = x^a the dense memory of Krotov and Hopfield (2016), F = exp that of
Demircigil et al. (2017).

Conventions. Patterns are the rows of an (N, d) array of ±1, the document's X transposed. States
are rows of a (Q, d) array; entries may be ±1 or, in a query, 0 for "unknown". Energies carry no
β. A bias b adds +b·ξ to the energy, with the document's sign.

The field of spin i is half the energy it would cost to turn that spin down instead of up,
h_i = ½[E(ξ_i = −1) − E(ξ_i = +1)], everything else kept; the update is ξ_i ← sgn h_i. For the
classical energy that is h_i = Σ_{j≠i} w_ij ξ_j − b_i: since ξ_i² = 1, the diagonal of W is a
constant of the energy and never enters an energy difference. The document's rule, the sign of
minus the gradient, does contain it: h_i = −∂E/∂ξ_i = Σ_j w_ij ξ_j − b_i with w_ii = N, a pull of
every spin towards itself. `diagonal=True` selects that rule, for every F.

A field of exactly zero leaves a spin as it is (an unknown spin becomes +1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from scipy.special import logsumexp
from tqdm import tqdm

from spinformer.core.checks import check_array, check_choice, check_integer

SCHEDULES = ("asynchronous", "synchronous")
KERNELS = ("auto", "couplings", "overlaps", "plain")


@dataclass(frozen=True)
class Separation:
    """The separation function F of the energy E = −Σ_μ F(x_μ·ξ).

    kind: "classical" (F = x²/2), "polynomial" (F = x^degree) or "exponential" (F = e^x).
    degree: used by "polynomial" only, an integer ≥ 2. Odd degrees tell ξ from −ξ, even ones and
    the classical energy do not.
    """

    kind: str
    degree: int = 2

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("classical", "polynomial", "exponential"))
        check_integer("degree", self.degree, low=2, high=20)

    def __call__(self, overlaps: np.ndarray) -> np.ndarray:
        """F of the unnormalised overlaps x_μ·ξ, elementwise."""
        if self.kind == "classical":
            return 0.5 * overlaps**2
        if self.kind == "polynomial":
            return _power(overlaps, self.degree)
        return np.exp(overlaps)

    def derivative(self, overlaps: np.ndarray) -> np.ndarray:
        """F′, elementwise."""
        if self.kind == "classical":
            return overlaps
        if self.kind == "polynomial":
            return self.degree * _power(overlaps, self.degree - 1)
        return np.exp(overlaps)


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """By repeated squaring: exact for integers below 2^53 and far faster than `**`."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        base, exponent = base * base, exponent >> 1
    return result


CLASSICAL = Separation("classical")
EXPONENTIAL = Separation("exponential")


def polynomial(degree: int) -> Separation:
    """F(x) = x^degree. Degree 2 is twice the classical energy: same fields, same retrieval."""
    return Separation("polynomial", degree)


@dataclass(frozen=True)
class Retrieval:
    """What `retrieve` returns for Q queries.

    states: (Q, d), ±1, where each query ended.
    energies: (Q, sweeps + 1), energy before the first and after each sweep; for the exponential
        memory −log Σ_μ exp(x_μ·ξ), which orders states as E does and cannot overflow.
    period: (Q,), 1 for a fixed point, 2 for a cycle of two states, 0 if neither was reached.
    sweeps: (Q,), sweeps in which at least one spin changed.
    flips: (Q,), spins changed in all (filling in an unknown spin counts).
    rises: (Q,), flips of a ±1 spin after which the energy, summed anew over all patterns, was
        higher than before; None unless the "overlaps" kernel ran.
    """

    states: np.ndarray
    energies: np.ndarray
    period: np.ndarray
    sweeps: np.ndarray
    flips: np.ndarray
    rises: np.ndarray | None = None

    @property
    def converged(self) -> np.ndarray:
        """(Q,) bool: the query reached a fixed point."""
        return self.period == 1


def overlaps(patterns: Any, *, states: Any) -> np.ndarray:
    """m_qμ = x_μ·ξ_q / d, shape (Q, N): 1 for a state equal to the pattern, −1 for its negative."""
    patterns, states = _check(patterns, states)
    return states @ patterns.T / patterns.shape[1]


def couplings(patterns: Any, *, diagonal: bool = False) -> np.ndarray:
    """The Hebbian weights W = Σ_μ x_μ x_μᵀ, (d, d), no factor 1/d; w_ii = 0, or N if `diagonal`."""
    patterns = check_array("patterns", patterns, ndim=2, values=(-1, 1))
    weights = patterns.T @ patterns
    if not diagonal:
        np.fill_diagonal(weights, 0.0)
    return weights


def energy(
    patterns: Any, *, states: Any, separation: Separation = CLASSICAL, bias: Any = None
) -> np.ndarray:
    """E(ξ) = −Σ_μ F(x_μ·ξ) + b·ξ, shape (Q,).

    The classical energy is −½ ξᵀWξ + b·ξ with the whole W, its diagonal included (with w_ii = 0
    it is larger by the constant N·d/2). Raises ValueError for an exponential memory whose
    energy would overflow (overlaps above 700): use `log_energy`.
    """
    patterns, states = _check(patterns, states)
    bias = _check_bias(bias, patterns.shape[1], separation)
    products = states @ patterns.T
    if separation.kind == "exponential" and products.max() > 700.0:
        raise ValueError(
            f"states overlap with patterns by up to {products.max():.0f}, whose exponential "
            "overflows; use log_energy"
        )
    return -separation(products).sum(axis=1) + states @ bias


def log_energy(patterns: Any, *, states: Any) -> np.ndarray:
    """−log Σ_μ exp(x_μ·ξ) = −log(−E) of the exponential memory, shape (Q,): same order as E."""
    patterns, states = _check(patterns, states)
    return -logsumexp(states @ patterns.T, axis=1)


def fields(
    patterns: Any,
    *,
    states: Any,
    separation: Separation = CLASSICAL,
    diagonal: bool = False,
    bias: Any = None,
) -> np.ndarray:
    """The fields h_i of all spins of all states at once, shape (Q, d); see the module's text.

    For the exponential memory h is divided by exp(max_μ x_μ·ξ), a positive factor for each
    state, and a tie is decided by rounding; the other energies are exact as long as their
    integers stay below 2^53.
    """
    patterns, states = _check(patterns, states)
    bias = _check_bias(bias, patterns.shape[1], separation)
    return _fields(patterns, states, separation, diagonal) - bias


def retrieve(
    patterns: Any,
    *,
    queries: Any,
    separation: Separation = CLASSICAL,
    schedule: str = "asynchronous",
    diagonal: bool = False,
    bias: Any = None,
    max_sweeps: int = 100,
    seed: int = 0,
    kernel: str = "auto",
    progress: bool = False,
) -> Retrieval:
    """Let the queries, (Q, d) with entries ±1 or 0, relax until nothing changes.

    schedule: "asynchronous" visits the spins one by one, in a new random order each sweep (the
        same order for all queries), each seeing the latest state of the others; "synchronous"
        updates all spins at once and stops at a fixed point or a cycle of two states.
    diagonal: use the sign of minus the gradient (w_ii = N) instead of the energy difference.
    kernel: asynchronous only. "couplings" keeps the fields and costs d per flip (classical
        energy); "overlaps" keeps the x_μ·ξ and costs N per visit (any F) and counts energy
        rises; "plain" is their readable NumPy reference; "auto" takes "couplings" where it can.
    max_sweeps: at least 1; queries still moving then have period 0.

    With the energy difference, and for convex F also with the gradient, no asynchronous flip
    raises the energy: it ends in a fixed point. Synchronous updates of the classical network end
    in a fixed point or a 2-cycle (Goles-Chacc, Fogelman-Soulie and Pellegrin 1985).
    """
    patterns, states = _check(patterns, queries, name="queries")
    bias = _check_bias(bias, patterns.shape[1], separation)
    check_choice("schedule", schedule, SCHEDULES)
    max_sweeps = check_integer("max_sweeps", max_sweeps, low=1)
    seed = check_integer("seed", seed, low=0)
    check_choice("kernel", kernel, KERNELS)
    if kernel == "couplings" and separation.kind != "classical":
        raise ValueError(f"kernel 'couplings' needs the classical energy, got {separation}")
    if kernel == "auto":
        kernel = "couplings" if separation.kind == "classical" else "overlaps"
    if schedule == "synchronous":
        return _synchronous(patterns, states, separation, diagonal, bias, max_sweeps, progress)
    if kernel == "couplings":
        weights = couplings(patterns, diagonal=diagonal)
        found = retrieve_with_couplings(
            weights, queries=states, bias=bias, max_sweeps=max_sweeps, seed=seed, progress=progress
        )
        if diagonal:
            return found
        # The diagonal left out of W is −½N for each known spin; after one sweep all are known.
        shift = np.full(found.energies.shape, 0.5 * patterns.size)
        shift[:, 0] = 0.5 * patterns.shape[0] * (states != 0).sum(axis=1)
        return replace(found, energies=found.energies - shift)
    return _asynchronous(
        patterns, states, separation, diagonal, bias, max_sweeps, seed, kernel, progress
    )


def retrieve_with_couplings(
    weights: Any,
    *,
    queries: Any,
    bias: Any = None,
    max_sweeps: int = 100,
    seed: int = 0,
    progress: bool = False,
) -> Retrieval:
    """Asynchronous retrieval with symmetric couplings W, (d, d), given outright.

    Energy −½ ξᵀWξ + b·ξ; spins see h = Wξ − b, the diagonal of W as it stands. Fields are kept
    up to date, so a sweep costs d plus d per flip. With integer W and no bias every number is an
    exact integer.
    """
    weights = check_array("weights", weights, ndim=2, symmetric=True)
    d = weights.shape[0]
    states = check_array("queries", queries, shape=(None, d), values=(-1, 0, 1))
    bias = np.zeros(d) if bias is None else check_array("bias", bias, shape=(d,))
    max_sweeps = check_integer("max_sweeps", max_sweeps, low=1)
    seed = check_integer("seed", seed, low=0)
    # Single precision holds every integer below 2^24 exactly and halves the memory traffic.
    largest = float(np.abs(weights).sum(axis=1).max())
    exact = not bias.any() and largest < 2**24 and bool((weights == np.rint(weights)).all())
    rows = np.ascontiguousarray(weights, dtype=np.float32 if exact else np.float64)
    return descend(
        rows, queries=states, bias=bias, max_sweeps=max_sweeps, seed=seed, progress=progress
    )


def descend(
    rows: np.ndarray,
    *,
    queries: np.ndarray,
    bias: np.ndarray,
    max_sweeps: int,
    seed: int,
    progress: bool = False,
) -> Retrieval:
    """`retrieve_with_couplings` without validation, which costs more than relaxing a few queries.

    For loops that built the couplings themselves: `rows` symmetric, C-contiguous, float32 (with
    all |h_i| below 2^24, integer, and no bias) or float64, `queries` of ±1 and 0, `bias` (d,).
    """
    spins = queries.astype(np.int8)
    field = np.ascontiguousarray(queries.astype(rows.dtype) @ rows - bias, dtype=rows.dtype)

    def visit(order: np.ndarray) -> tuple[np.ndarray, None]:
        return _sweep_couplings(rows, spins, field, order), None

    def value() -> np.ndarray:
        now = spins.astype(np.float64)
        return -0.5 * ((field + bias) * now).sum(axis=1) + now @ bias

    return _relax(spins, visit, value, max_sweeps, seed, progress)


# -- fields of all spins ---------------------------------------------------------------------


def _fields(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, diagonal: bool
) -> np.ndarray:
    """Fields without bias. Two matrix products: flipping spin i changes x_μ·ξ by −2 x_μi ξ_i, so
    the change of F takes one of two values, and any function of x_μi = ±1 is linear in it."""
    products = states @ patterns.T
    if separation.kind == "exponential":
        products = products - products.max(axis=1, keepdims=True)
    if diagonal:
        return separation.derivative(products) @ patterns
    up, down = separation(products + 2.0), separation(products - 2.0)
    even = (separation(products) - 0.5 * (up + down)).sum(axis=1, keepdims=True)
    field = 0.5 * (even * states + 0.5 * (up - down) @ patterns)
    unknown = states == 0
    if unknown.any():
        # Without a spin of its own the state of i enters no overlap: x_μ·ξ moves by ±x_μi.
        odd = separation(products + 1.0) - separation(products - 1.0)
        field = np.where(unknown, 0.5 * odd @ patterns, field)
    return field


def _signs(field: np.ndarray, states: np.ndarray) -> np.ndarray:
    kept = np.where(states == 0, 1.0, states)
    return np.where(field > 0, 1.0, np.where(field < 0, -1.0, kept))


def _value(
    patterns: np.ndarray, states: np.ndarray, separation: Separation, bias: np.ndarray
) -> np.ndarray:
    products = states @ patterns.T
    if separation.kind == "exponential":
        return -logsumexp(products, axis=1)
    return -separation(products).sum(axis=1) + states @ bias


# -- schedules -------------------------------------------------------------------------------


def _synchronous(
    patterns: np.ndarray,
    states: np.ndarray,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
    max_sweeps: int,
    progress: bool,
) -> Retrieval:
    count = states.shape[0]
    period, sweeps, flips = (np.zeros(count, dtype=np.int64) for _ in range(3))
    energies = [_value(patterns, states, separation, bias)]
    before = np.full_like(states, np.nan)
    states = states.copy()
    for _ in tqdm(range(max_sweeps), disable=not progress, desc="sweeps"):
        active = np.flatnonzero(period == 0)
        if active.size == 0:
            break
        now = states[active]
        after = _signs(_fields(patterns, now, separation, diagonal) - bias, now)
        changed = (after != now).sum(axis=1)
        returned = (after == before[active]).all(axis=1) & (changed > 0)
        flips[active] += changed
        sweeps[active] += changed > 0
        period[active[changed == 0]] = 1
        period[active[returned]] = 2
        before[active], states[active] = now, after
        energies.append(_value(patterns, states, separation, bias))
    return Retrieval(states, np.stack(energies, axis=1), period, sweeps, flips)


def _asynchronous(
    patterns: np.ndarray,
    states: np.ndarray,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
    max_sweeps: int,
    seed: int,
    kernel: str,
    progress: bool,
) -> Retrieval:
    d = patterns.shape[1]
    spins = states.astype(np.int8)
    bits = np.ascontiguousarray(patterns.T, dtype=np.int8)
    products = np.rint(states @ patterns.T).astype(np.int64)
    levels = np.arange(-d - 1, d + 2, dtype=np.float64)
    exponential = separation.kind == "exponential"
    if exponential:
        # Only ratios matter: table[k] = e^{−k} is the weight of a pattern k below the top one.
        table = slope = np.exp(-(levels + d + 1))
    else:
        table, slope = separation(levels), separation.derivative(levels)

    def visit(order: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if kernel == "plain":
            return _sweep_plain(patterns, spins, order, separation, diagonal, bias), None
        return _sweep_overlaps(
            bits, spins, products, order, table, slope, exponential, diagonal, bias
        )

    def value() -> np.ndarray:
        if exponential and kernel == "overlaps":  # its overlaps are up to date
            return -np.array([_log_sum(row) for row in products])
        return _value(patterns, spins.astype(np.float64), separation, bias)

    return _relax(spins, visit, value, max_sweeps, seed, progress)


def _relax(
    spins: np.ndarray, visit: Any, value: Any, max_sweeps: int, seed: int, progress: bool
) -> Retrieval:
    """Sweep in random orders until a whole sweep changes nothing; `visit` works in place."""
    count, d = spins.shape
    rng = np.random.default_rng(seed)
    sweeps, flips, rises = (np.zeros(count, dtype=np.int64) for _ in range(3))
    changed, counted = np.ones(count, dtype=np.int64), False
    energies = [value()]
    for _ in tqdm(range(max_sweeps), disable=not progress, desc="sweeps"):
        changed, raised = visit(rng.permutation(d))
        flips += changed
        sweeps += changed > 0
        if raised is not None:
            rises += raised
            counted = True
        energies.append(value())
        if not changed.any():
            break
    return Retrieval(
        spins.astype(np.float64),
        np.stack(energies, axis=1),
        (changed == 0).astype(np.int64),
        sweeps,
        flips,
        rises if counted else None,
    )


def _sweep_plain(
    patterns: np.ndarray,
    spins: np.ndarray,
    order: np.ndarray,
    separation: Separation,
    diagonal: bool,
    bias: np.ndarray,
) -> np.ndarray:
    """Reference of both kernels: at every visit, the energy with the spin up and with it down."""
    flips = np.zeros(spins.shape[0], dtype=np.int64)
    for q in range(spins.shape[0]):
        state = spins[q].astype(np.float64)
        for i in order:
            old = state[i]
            if diagonal:
                products = patterns @ state
                if separation.kind == "exponential":
                    products = products - products.max()
                field = separation.derivative(products) @ patterns[:, i] - bias[i]
            else:
                up, down = state.copy(), state.copy()
                up[i], down[i] = 1.0, -1.0
                pair = _value(patterns, np.stack([up, down]), separation, bias)
                field = pair[1] - pair[0]
            state[i] = _signs(np.asarray(field), np.asarray(old))
            flips[q] += state[i] != old
        spins[q] = state
    return flips


@njit(nogil=True)
def _sweep_couplings(
    weights: np.ndarray, spins: np.ndarray, field: np.ndarray, order: np.ndarray
) -> np.ndarray:
    count, d = spins.shape
    flips = np.zeros(count, dtype=np.int64)
    for q in range(count):
        for i in order:
            old = spins[q, i]
            new = old
            if field[q, i] > 0:
                new = np.int8(1)
            elif field[q, i] < 0:
                new = np.int8(-1)
            elif old == 0:
                new = np.int8(1)
            if new != old:
                step = weights.dtype.type(new - old)
                row = weights[i]
                for j in range(d):
                    field[q, j] += step * row[j]
                spins[q, i] = new
                flips[q] += 1
    return flips


@njit(nogil=True)
def _log_sum(products: np.ndarray) -> float:
    top = products.max()
    total = 0.0
    for product in products:
        total += np.exp(float(product - top))
    return float(top) + np.log(total)


@njit(nogil=True)
def _sweep_overlaps(
    bits: np.ndarray,
    spins: np.ndarray,
    products: np.ndarray,
    order: np.ndarray,
    table: np.ndarray,
    slope: np.ndarray,
    exponential: bool,
    diagonal: bool,
    bias: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """One sweep at a cost of N per visit. For F = exp the patterns are counted by their overlap
    before the exponentials are summed: two patterns that differ in one spin then cancel exactly,
    and the patterns e^{−d} further down decide, as they do in exact arithmetic."""
    count, d = spins.shape
    number = bits.shape[1]
    flips = np.zeros(count, dtype=np.int64)
    rises = np.zeros(count, dtype=np.int64)
    levels = np.zeros(2 * d + 3, dtype=np.int64)
    zero = d + 1
    for q in range(count):
        product = products[q]
        for i in order:
            old = spins[q, i]
            bit = bits[i]
            field = 0.0
            if exponential:
                own = 0 if diagonal else old
                low, high = 2 * d + 2, 0
                for mu in range(number):
                    k = product[mu] - bit[mu] * own + zero
                    levels[k] += bit[mu]
                    low, high = min(low, k), max(high, k)
                # Without the spin itself, e^{k+1} − e^{k−1} for every pattern at k: a positive
                # factor times e^k, as with it.
                top = high
                while top > low and levels[top] == 0:
                    top -= 1
                for k in range(top, low - 1, -1):
                    field += levels[k] * table[top - k]
                levels[low : high + 1] = 0
            elif diagonal:
                for mu in range(number):
                    field += slope[product[mu] + zero] * bit[mu]
                field -= bias[i]
            else:
                for mu in range(number):
                    rest = product[mu] - bit[mu] * old + zero
                    field += table[rest + bit[mu]] - table[rest - bit[mu]]
                field = 0.5 * field - bias[i]
            new = old
            if field > 0:
                new = np.int8(1)
            elif field < 0:
                new = np.int8(-1)
            elif old == 0:
                new = np.int8(1)
            if new == old:
                continue
            flips[q] += 1
            spins[q, i] = new
            before, after, scale = 0.0, 0.0, 0.0
            if exponential:
                before = -_log_sum(product)
                for mu in range(number):
                    product[mu] += bit[mu] * (new - old)
                after = -_log_sum(product)
                scale = abs(before)
            else:
                before, after = old * bias[i], new * bias[i]
                for mu in range(number):
                    before -= table[product[mu] + zero]
                    scale += abs(table[product[mu] + zero])
                    product[mu] += bit[mu] * (new - old)
                    after -= table[product[mu] + zero]
            if old != 0 and after > before + 1e-13 * scale:
                rises[q] += 1
    return flips, rises


# -- input -----------------------------------------------------------------------------------


def _check(patterns: Any, states: Any, name: str = "states") -> tuple[np.ndarray, np.ndarray]:
    patterns = check_array("patterns", patterns, ndim=2, values=(-1, 1))
    if 0 in patterns.shape:
        raise ValueError(f"patterns must hold at least one pattern, got shape {patterns.shape}")
    return patterns, check_array(name, states, shape=(None, patterns.shape[1]), values=(-1, 0, 1))


def _check_bias(bias: Any, d: int, separation: Separation) -> np.ndarray:
    if bias is None:
        return np.zeros(d)
    if separation.kind == "exponential":
        raise ValueError("bias must be None for the exponential memory, whose energy is scaled")
    return check_array("bias", bias, shape=(d,))
