"""Compiled steps of the mean field and its tangent maps, `LANES` independent systems side by side.

A kernel works on a `SystemBatch` at once: arrays have the lanes, W = `LANES` of them, on their last
axis, `get` and `put` move such a row between memory and a value of type `lanes`, and arithmetic on
these values reads as on numbers.

A lane's numbers depend neither on the number of lanes, blocks or threads, nor on the processor:
no fast-math, products and sums round as IEEE 754 says, fused multiply-adds are asked for by name,
and exp and tanh are polynomials of their own, not the C library's.

The plain reference of a step is `spinformer.dmft.mean_field.step`; its automatic derivative that
of `evolve_tangent` (`spinformer.dmft.mean_field.torch_step`).
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, overload, register_model

from spinformer.dmft.kernel_inputs import SystemBatch, TangentBasis, TimeIndex
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE

# 64, unless this file is executed for another width, as `narrow_kernels` does.
LANES: int = globals().get("LANES", 64)
# Lengths below this count as an exact zero of the tangent map; log 0 is replaced by its log.
_ZERO_LENGTH = 1e-140
# A direction of the basis shorter than this, in units of its length before the others were taken
# out of it or of one, whichever is longer, is what rounding left.
_ROUNDING_LENGTH = 1e-13
# Below e^−300 a softmax weight is held at e^−300: no double sees the difference in a sum, and
# the squares that a tangent map's norm needs stay clear of underflow.
_EXP_FLOOR = -300.0
# Where a token in the ring keeps its attention vector: nothing asks for its output overlaps.
SOURCE = OUTPUT
_MANTISSA = 4503599627370495  # the low 52 bits
_ONE = 4607182418800017408  # the bits of 1.0

# Kernels allocate nothing, so that arrays need no reference counts, which cost a third of the time.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def _kernel(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter's lock, division as in NumPy, and keep the result on disk."""
    # Numba keeps it by source file, name, bytecode and argument types, none of which tells how
    # many lanes there are: without them in the name one width would be given the other's code.
    function.__qualname__ += f"_{LANES}_lanes"
    return njit(nogil=True, cache=True, **_OPTIONS)(function)


# As a part of every kernel that calls it: a call would copy all of a `SystemBatch`.
_inlined: Any = njit(forceinline=True, **_OPTIONS)
# Given by the machine instructions that it stands for.
_intrinsic: Any = intrinsic


# ---- arithmetic of lanes


class _Lanes(types.Type):
    """The type of `LANES` doubles that move together."""


_lanes = _Lanes(f"lanes{LANES}")
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)

register_model(_Lanes)(lambda manager, kind: models.PrimitiveModel(manager, kind, _VECTOR))


def _spread(builder: Any, values: Any) -> list[Any]:
    """As lanes: a double beside lanes is spread over all of them."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = ir.Constant(ir.IntType(32), 0)
    every = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return [
        value
        if value.type == _VECTOR
        else builder.shuffle_vector(
            builder.insert_element(undefined, value, first), undefined, every
        )
        for value in values
    ]


def _instruction(build: Callable[..., Any]) -> Any:
    """What build(builder, x, y) makes of two values, lanes or numbers spread over lanes."""

    @_intrinsic
    def compute(typingctx, x, y):
        def codegen(context, builder, signature, args):
            return build(builder, *_spread(builder, args))

        return _lanes(x, y), codegen

    return compute


def _arithmetic(symbol: Any, name: str) -> None:
    compute = _instruction(lambda builder, x, y: getattr(builder, name)(x, y))

    @overload(symbol)
    def offered(x, y):
        return (lambda x, y: compute(x, y)) if _lanes in (x, y) else None


for _symbol, _name in {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}.items():
    _arithmetic(getattr(operator, _symbol), _name)


def _chosen(symbol: str) -> Any:
    return _instruction(
        lambda builder, x, y: builder.select(builder.fcmp_ordered(symbol, x, y), x, y)
    )


_larger = _chosen(">")
_smaller = _chosen("<")


@_instruction
def _shifted(builder, x, t):
    """x · 2^n where the low bits of t hold n."""
    whole = ir.VectorType(ir.IntType(64), LANES)
    power = builder.shl(builder.bitcast(t, whole), ir.Constant(whole, [52] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(x, whole), power), _VECTOR)


@_intrinsic
def fma(typingctx, x, y, z):
    """Compute the fused multiply-add x·y + z, rounded once.

    Parameters
    ----------
    typingctx : Context
        Typing context of the compiler, not given by the caller.
    x : lanes or float
        First factor.
    y : lanes or float
        Second factor.
    z : lanes or float
        The addend.

    Returns
    -------
    lanes
        The result in every lane.
    """

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f64")
        return builder.call(function, _spread(builder, args))

    return _lanes(x, y, z), codegen


def _address(context: Any, builder: Any, kind: Any, row: Any) -> Any:
    data = context.make_array(kind)(context, builder, row).data
    return builder.bitcast(data, _VECTOR.as_pointer())


@_intrinsic
def get(typingctx, row):
    """Load the lanes of a contiguous row.

    Parameters
    ----------
    typingctx : Context
        Typing context of the compiler, not given by the caller.
    row : ndarray, shape (W,)
        The row in memory.

    Returns
    -------
    lanes
        Its values.
    """

    def codegen(context, builder, signature, args):
        return builder.load(_address(context, builder, row, args[0]), align=8)

    return _lanes(row), codegen


@_intrinsic
def put(typingctx, row, value):
    """Store lanes in a contiguous row.

    Parameters
    ----------
    typingctx : Context
        Typing context of the compiler, not given by the caller.
    row : ndarray, shape (W,)
        The row in memory, which is overwritten.
    value : lanes
        The values.

    Returns
    -------
    None
        Nothing; the row is written.
    """

    def codegen(context, builder, signature, args):
        builder.store(args[1], _address(context, builder, row, args[0]), align=8)
        return context.get_dummy_value()

    return types.none(row, value), codegen


_MAGIC = 6755399441055744.0  # 1.5 · 2^52: adding it rounds to an integer, held in the low bits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # 21 trailing zero bits: n · _LN2_HIGH is exact
_LN2_LOW = 1.9082149292705877e-10
# Minimax polynomial of (e^r − 1 − r)/r² on |r| ≤ ln(2)/2, error 1e-16.
_C0 = 0.5000000000000001
_C1 = 0.16666666666666669
_C2 = 0.04166666666662413
_C3 = 0.008333333333330062
_C4 = 0.0013888888917213717
_C5 = 0.00019841269863053618
_C6 = 2.4801521295954376e-05
_C7 = 2.7557268459997064e-06
_C8 = 2.7620088445409746e-07
_C9 = 2.510038549551032e-08


@_inlined
def _reduced(x):
    """(r, e^r − 1 − r, t): x = n ln 2 + r with |r| ≤ ln(2)/2, n in the low bits of t."""
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    # Estrin's scheme.
    r2 = r * r
    r4 = r2 * r2
    a = fma(fma(_C3, r, _C2), r2, fma(_C1, r, _C0))
    b = fma(fma(_C7, r, _C6), r2, fma(_C5, r, _C4))
    b = fma(fma(_C9, r, _C8), r4, b)
    return r, r2 * fma(b, r4, a), t


@_inlined
def exp(x):
    """Compute the exponential e^x by a polynomial, within 1 ulp of `math.exp`.

    Below x = −300 the result is held at e^−300.

    Parameters
    ----------
    x : lanes
        Exponents, at most 700.

    Returns
    -------
    lanes
        The exponentials.
    """
    r, rest, t = _reduced(_larger(x, _EXP_FLOOR))
    return _shifted(1.0 + (r + rest), t)


@_inlined
def expm1_double(x):
    """Compute e^{2x} − 1, accurate near 0, from which tanh x follows.

    With e the result, tanh x is e / (e + 2), within 3 ulp of `math.tanh` for every x. Beyond an
    absolute value of 300 it is held at that of 300.

    Parameters
    ----------
    x : lanes
        Arguments.

    Returns
    -------
    lanes
        The values e^{2x} − 1.
    """
    r, rest, t = _reduced(_larger(_smaller(2.0 * x, 600.0), -600.0))
    scale = _shifted(1.0, t)
    return fma(scale, r + rest, scale - 1.0)


@_inlined
def _dot(x, y):
    """Σ_r x[r] y[r] of numbers x (n,) or rows x (n, W), and rows y (n, W)."""
    total = fma(_at(x, 0), get(y[0]), -0.0)
    for r in range(1, y.shape[0]):
        total = fma(_at(x, r), get(y[r]), total)
    return total


@_inlined
def _at(x, r):
    """x[r], of rows as lanes."""
    return x[r] if x.ndim == 1 else get(x[r])


# ---- one step


def aligned(*shape: int) -> np.ndarray:
    """Allocate zeros of shape (..., W), aligned to a line of the cache.

    Memory that is not aligned costs up to a quarter more time.

    Parameters
    ----------
    *shape : int
        Axes in front of the lanes.

    Returns
    -------
    ndarray, shape (..., W)
        Zeros in float64.
    """
    size = math.prod(shape) * LANES
    memory = np.zeros(size + 8)
    first = -memory.ctypes.data // 8 % 8
    return memory[first : first + size].reshape(*shape, LANES)


@_inlined
def _letter_units(batch, slot):
    """Units of a network of letters: where one of bits has a tanh, a softmax over letters.

    Letters of a site that attention pushes alike form a *class*; class c holds g_c letters and has
    the logit β d_c·A relative to class 0, d_c = `patterns`, g = `degeneracy` (groups × classes,
    class 0 first; a class that a group lacks has g_c = 0). The rows of a group are c = 1, 2, …:

        y_c = (1 − ε) (p_c − (g_c / g_0) p_0),    p_c ∝ g_c exp(β d_c·A) .

    A feature averages to zero over the letters, so that class 0 needs no row. Shares p_c, c ≥ 1, go
    into `unit_slopes`, and after all of them p_0 / g_0 of every group.
    """
    groups, classes = batch.degeneracy.shape
    attention = batch.ring[slot, SOURCE]
    hidden = batch.hidden
    share = batch.unit_slopes[slot]
    beta = get(batch.beta)
    kept = 1.0 - get(batch.epsilon)
    for g in range(groups):
        rows = range(g * (classes - 1), (g + 1) * (classes - 1))
        largest = 0.0 * beta
        for u in rows:
            logit = beta * _dot(batch.patterns[u], attention)
            put(hidden[u], logit)
            largest = _larger(logit, largest)
        floor = exp(0.0 - largest)
        total = batch.degeneracy[g, 0] * floor
        for c, u in enumerate(rows):
            many = batch.degeneracy[g, c + 1]
            e = exp(get(hidden[u]) - largest)
            total = fma(many, e, total)
            put(hidden[u], many * (e - floor))
            put(share[u], many * e)
        scale = kept / total
        for u in rows:
            put(hidden[u], get(hidden[u]) * scale)
            put(share[u], get(share[u]) / total)
        put(share[hidden.shape[0] + g], floor / total)


@_inlined
def _make_token(batch, slot, phase, tangent):
    """Token at position `phase` from the attention in `slot` [poclopez2024dynamical, Eq. (15)]."""
    token = batch.ring[slot]
    hidden = batch.hidden
    beta = get(batch.beta)
    gamma = get(batch.gamma)
    epsilon = get(batch.epsilon)
    if batch.degeneracy.shape[0]:
        _letter_units(batch, slot)
    else:
        for u in range(hidden.shape[0]):
            e = expm1_double(beta * _dot(batch.patterns[u], token[SOURCE]))
            put(hidden[u], (1.0 - epsilon) * (e / (e + 2.0)))
            if tangent:
                # sech² x = 4 e^{2x} / (e^{2x} + 1)²: no cancellation where tanh saturates.
                d = 1.0 / (e + 2.0)
                put(batch.unit_slopes[slot, u], beta * (1.0 - epsilon) * 4.0 * ((e + 1.0) * d) * d)
    for a in range(token.shape[1]):
        for role in (VALUE, QUERY, KEY):
            m = epsilon * batch.drive[phase, role, a]
            for u in range(hidden.shape[0]):
                m = fma(batch.readout[role, a, u], get(hidden[u]), m)
            put(token[role, a], gamma * m if role == QUERY else m)


@_inlined
def _attend(batch, slot):
    """Attention of the token in `slot` over the window into the next slot, which is returned.

    [poclopez2024dynamical, Eqs. (4), (5), (14)]
    """
    ring = batch.ring
    weight = batch.weight
    context = ring.shape[0]
    largest = _dot(ring[slot, QUERY], ring[slot, KEY])
    put(weight[0], largest)
    for t in range(1, context):
        score = _dot(ring[slot, QUERY], ring[_aged(slot, t, context), KEY])
        put(weight[t], score)
        largest = _larger(score, largest)
    total = 0.0 * largest
    for t in range(context):
        e = exp(get(weight[t]) - largest)
        put(weight[t], e)
        total = total + e
    norm = 1.0 / total
    put(weight[context], norm)
    new = slot + 1 if slot + 1 < context else 0
    for a in range(ring.shape[2]):
        mean = get(weight[0]) * get(ring[slot, VALUE, a])
        for t in range(1, context):
            mean = fma(get(weight[t]), get(ring[_aged(slot, t, context), VALUE, a]), mean)
        put(ring[new, SOURCE, a], mean * norm)
    return new


@_inlined
def _aged(slot, age, context):
    """Slot of the token that is `age` steps older than the newest, in `slot`."""
    return slot - age if slot >= age else slot - age + context


@_inlined
def _step(batch, time, tangent):
    """One step of every lane: make a token, attend, advance the time index."""
    _make_token(batch, time.cursor, time.position, tangent)
    cursor = _attend(batch, time.cursor)
    return TimeIndex(cursor, time.position + 1 if time.position + 1 < batch.drive.shape[0] else 0)


@_inlined
def _rebuild(batch, time, tangent):
    """The tokens of a context from its attention vectors, all but the newest."""
    context = batch.ring.shape[0]
    phases = batch.drive.shape[0]
    for age in range(context - 1, 0, -1):
        slot = _aged(time.cursor, age, context)
        _make_token(batch, slot, (time.position - age) % phases, tangent)


# ---- runs of steps


@_kernel
def initialise_cache(batch, time):
    """Initialise the cached overlaps of a batch before its first step.

    Parameters
    ----------
    batch : SystemBatch
        The systems, whose ring buffer holds the attention vectors.
    time : TimeIndex
        Slot and position of the newest attention vector.

    Returns
    -------
    None
        Nothing; the batch is filled.
    """
    _rebuild(batch, time, False)


@_kernel
def advance(steps, batch, time):
    """Iterate the mean-field map of a batch.

    Parameters
    ----------
    steps : int
        Number of steps.
    batch : SystemBatch
        The systems, which are changed.
    time : TimeIndex
        The time index before the first step.

    Returns
    -------
    TimeIndex
        The time index after the last step.
    """
    for _ in range(steps):
        time = _step(batch, time, False)
    return time


@_kernel
def record(out, every, batch, time):
    """Iterate the mean-field map of a batch and record the semantic overlaps m^o.

    Parameters
    ----------
    out : ndarray, shape (n, P, W)
        Filled with the semantic m^o, its factor 1 − ε included, of the last step of each interval.
    every : int
        Sampling interval; n · every steps are run.
    batch : SystemBatch
        The systems, which are changed.
    time : TimeIndex
        The time index before the first step.

    Returns
    -------
    TimeIndex
        The time index after the last step.
    """
    for i in range(out.shape[0]):
        for _ in range(every):
            time = _step(batch, time, False)
        for a in range(out.shape[1]):
            put(out[i, a], _dot(batch.readout[OUTPUT, a], batch.hidden))
    return time


@_kernel
def accumulate_histogram(
    steps, histogram, section, sums, weights, tolerance, scale, overlap, batch, time
):
    """Accumulate histograms and weighted Birkhoff sums along an orbit.

    Parameters
    ----------
    steps : int
        Number of steps.
    histogram : ndarray of int, shape (W, bins)
        Incremented by the visits of scale · m^o_1 to equal bins of [−1, 1].
    section : ndarray of int, shape (W, bins)
        Incremented by the visits with m^o_2 within `tolerance` of zero; with one feature m^o_2 is
        m^o_1.
    sums : ndarray, shape (2, P, W)
        Incremented by the weighted m^o of two consecutive stretches of `len(weights)` steps.
    weights : ndarray, shape (n,)
        Weights of the Birkhoff average.
    tolerance : float
        Half the thickness of the section.
    scale : float
        Factor that brings m^o_1 into [−1, 1].
    overlap : ndarray, shape (P, W)
        Scratch memory.
    batch : SystemBatch
        The systems, which are changed.
    time : TimeIndex
        The time index before the first step.

    Returns
    -------
    TimeIndex
        The time index after the last step.
    """
    plane = min(1, overlap.shape[0] - 1)
    bins = histogram.shape[1]
    for n in range(steps):
        time = _step(batch, time, False)
        half = 0 if n < weights.size else 1
        w = weights[n - half * weights.size] if n < 2 * weights.size else 0.0
        for a in range(overlap.shape[0]):
            m = _dot(batch.readout[OUTPUT, a], batch.hidden)
            put(overlap[a], m)
            put(sums[half, a], fma(w, m, get(sums[half, a])))
        for j in range(LANES):
            place = overlap[0, j] * scale + 1.0
            i = min(int(place * (0.5 * bins)), bins - 1)
            histogram[j, i] += 1
            if abs(overlap[plane, j]) < tolerance:
                section[j, i] += 1
    return time


@_kernel
def smallest_period(orbit, largest, distance):
    """Find the smallest period of an orbit.

    Parameters
    ----------
    orbit : ndarray, shape (steps, P)
        The orbit, contiguous.
    largest : int
        Longest period that is searched for.
    distance : float
        Largest absolute difference, in every component, of states one period apart.

    Returns
    -------
    int
        The period in steps, 0 if there is none.
    """
    for p in range(1, largest + 1):
        n = len(orbit) - p - 1
        while n >= 0:
            gap = 0.0
            for a in range(orbit.shape[1]):
                gap = max(gap, abs(orbit[n + p, a] - orbit[n, a]))
            if gap > distance:
                break
            n -= 1
        if n < 0:
            return p
    return 0


# ---- tangent maps


def tangent_basis(batch: SystemBatch, start: np.ndarray) -> TangentBasis:
    """Construct a basis of tangent vectors, the same in every lane.

    Parameters
    ----------
    batch : SystemBatch
        The systems that it belongs to.
    start : ndarray, shape (k, T·P)
        The tangent vectors.

    Returns
    -------
    TangentBasis
        The basis, with a growth of 1.
    """
    count = len(start)
    units = len(batch.patterns)
    context, _, features = batch.ring.shape[:3]
    vectors = aligned(*start.shape)
    vectors[...] = start[..., None]
    exponent, lost = np.zeros((2, count, LANES), dtype=np.int64)
    shapes = ((count,), (context, units), (units,), (features,), (context,), (units,))
    scratch = (aligned(*shape) for shape in shapes)
    return TangentBasis(vectors, aligned(count) + 1.0, exponent, lost, *scratch)


@_inlined
def _deviate_letters(batch, steep, vector, out):
    """Change of the units of a network of letters where the attention of their token changes.

    δy_c = β (1 − ε) [p_c (δd_c − δd̄) + (g_c / g_0) p_0 δd̄], δd̄ = Σ_c p_c δd_c.
    """
    patterns = batch.patterns
    groups, classes = batch.degeneracy.shape
    scale = get(batch.beta) * (1.0 - get(batch.epsilon))
    for g in range(groups):
        first = g * (classes - 1)
        mean = 0.0 * scale
        for u in range(first, first + classes - 1):
            change = _dot(patterns[u], vector)
            put(out[u], change)
            mean = fma(change, get(steep[u]), mean)
        floor = get(steep[patterns.shape[0] + g]) * mean
        for u in range(first, first + classes - 1):
            many = batch.degeneracy[g, u - first + 1]
            put(out[u], scale * fma(get(steep[u]), get(out[u]) - mean, many * floor))


@_inlined
def _deviate(batch, slot, new, vector, by):
    """δA' = Σ_τ π_τ [δm^v_τ + (m^v_τ − A') δscore_τ] where the window changes by `vector`.

    score_τ = γ m^q·m^k_τ [poclopez2024dynamical, Eq. (14)]; δA' goes into the rows of slot `new`.
    """
    ring = batch.ring
    weight = batch.weight
    readout = batch.readout
    context = ring.shape[0]
    features = ring.shape[2]
    for t in range(context):
        s = _aged(slot, t, context)
        change = vector[s * features : (s + 1) * features]
        steep = batch.unit_slopes[s]
        if batch.degeneracy.shape[0]:
            _deviate_letters(batch, steep, change, by.units[t])
        else:
            for u in range(batch.patterns.shape[0]):
                put(by.units[t, u], get(steep[u]) * _dot(batch.patterns[u], change))
    for a in range(features):
        put(by.query[a], get(batch.gamma) * _dot(readout[QUERY, a], by.units[0]))
    for t in range(context):
        key = ring[_aged(slot, t, context), KEY]
        put(
            by.score[t],
            get(weight[t]) * (_dot(by.score_gradient, by.units[t]) + _dot(by.query, key)),
        )
    for u in range(by.mean.shape[0]):
        put(by.mean[u], _dot(weight, by.units[:, u]))
    for a in range(features):
        m = _dot(readout[VALUE, a], by.mean)
        for t in range(context):
            away = get(ring[_aged(slot, t, context), VALUE, a]) - get(ring[new, SOURCE, a])
            m = fma(get(by.score[t]), away, m)
        # The row of the token that leaves the window: nothing reads it any more.
        put(vector[new * features + a], m)


@_inlined
def _orthonormalize(tangent, length):
    """Modified Gram-Schmidt; the lengths multiply mantissa · 2^exponent."""
    vectors = tangent.vectors
    mantissa = tangent.mantissa
    exponent = tangent.binary_exponent
    for i in range(vectors.shape[0]):
        put(tangent.squared_length[i], _dot(vectors[i], vectors[i]))
    for i in range(vectors.shape[0]):
        put(length, _dot(vectors[i], vectors[i]))
        for j in range(LANES):
            r = np.sqrt(length[j])
            # A vector that grew by e^70 along the others keeps e^34 of rounding beside them.
            longest = max(1.0, np.sqrt(tangent.squared_length[i, j]))
            tangent.unresolved[i, j] += 1 if r < _ROUNDING_LENGTH * longest else 0
            grown = mantissa[i, j] * (r if r >= _ZERO_LENGTH else _ZERO_LENGTH)
            bits = np.float64(grown).view(np.int64)
            exponent[i, j] += (bits >> 52) - 1023
            mantissa[i, j] = np.int64((bits & _MANTISSA) | _ONE).view(np.float64)
            length[j] = 1.0 / r if r >= _ZERO_LENGTH else 0.0
        scale = get(length)
        for row in range(vectors.shape[1]):
            put(vectors[i, row], get(vectors[i, row]) * scale)
        # A direction that the map destroys starts anew along an axis.
        for j in range(LANES):
            vectors[i, i, j] = 1.0 if length[j] == 0.0 else vectors[i, i, j]
        for l in range(i + 1, vectors.shape[0]):
            share = 0.0 - _dot(vectors[i], vectors[l])
            for row in range(vectors.shape[1]):
                put(vectors[l, row], fma(share, get(vectors[i, row]), get(vectors[l, row])))


@_kernel
def evolve_tangent(steps, interval, tangent, batch, time):
    """Evolve tangent vectors along an orbit, with QR orthonormalization (Lyapunov exponents).

    The vectors are orthonormalized at regular intervals and at the end.

    Parameters
    ----------
    steps : int
        Number of steps.
    interval : int
        Number of steps between orthonormalizations; 0 leaves the vectors as they are.
    tangent : TangentBasis
        The tangent vectors, which are changed.
    batch : SystemBatch
        The systems, which are changed.
    time : TimeIndex
        The time index before the first step.

    Returns
    -------
    TimeIndex
        The time index after the last step.
    """
    context = batch.ring.shape[0]
    _rebuild(batch, time, True)
    for n in range(steps):
        slot = time.cursor
        time = _step(batch, time, True)
        for t in range(context):
            put(batch.weight[t], get(batch.weight[t]) * get(batch.weight[context]))
        for u in range(batch.hidden.shape[0]):
            put(tangent.score_gradient[u], _dot(batch.readout[KEY, :, u], batch.ring[slot, QUERY]))
        for i in range(tangent.vectors.shape[0]):
            _deviate(batch, slot, time.cursor, tangent.vectors[i], tangent)
        if interval and ((n + 1) % interval == 0 or n + 1 == steps):
            _orthonormalize(tangent, tangent.query[0])
    return time


# ---- texts of finite size


@njit(cache=True)
def write_texts(rng, semantic, output, place, counts, beta, gamma, context, first, tokens, means):
    """Sample texts of a finite network: every token is one binomial draw per segment.

    Parameters
    ----------
    rng : Generator
        Random generator.
    semantic : ndarray, shape (4, P, L)
        Weights, with the fractions of the segments and 1 − ε multiplied in.
    output : ndarray, shape (P, L)
        Output weights W^o.
    place : ndarray, shape (2^K, 4, P)
        Overlaps of the positional code times ε.
    counts : ndarray of int, shape (L,)
        Number of bits of each segment.
    beta : float
        Inverse temperature β of the tokens.
    gamma : float
        Inverse temperature γ of attention.
    context : int
        Context length T.
    first : int
        Position of the first token.
    tokens : ndarray, shape (R, T + steps, L)
        Segment means; rows after the first T of every run are filled.
    means : ndarray, shape (R, T + steps, L)
        Conditional means of the tokens; rows after the first T are filled.

    Returns
    -------
    None
        Nothing; `tokens` and `means` are filled.
    """
    runs, length, segments = tokens.shape
    features = output.shape[0]
    seen = np.empty((4, context, features))  # overlaps of the window's tokens, round and round
    weight = np.empty(context)
    attention = np.empty(features)
    for run in range(runs):
        for time in range(length):
            if time >= context:
                highest = -np.inf
                for row in range(context):
                    score = 0.0
                    for a in range(features):
                        score += seen[QUERY, (time - 1) % context, a] * seen[KEY, row, a]
                    weight[row] = gamma * score
                    highest = max(highest, weight[row])
                total = 0.0
                for row in range(context):
                    weight[row] = np.exp(weight[row] - highest)
                    total += weight[row]
                for a in range(features):
                    mean = 0.0
                    for row in range(context):
                        mean += weight[row] * seen[VALUE, row, a]
                    attention[a] = mean / total
                for s in range(segments):
                    field = 0.0
                    for a in range(features):
                        field += output[a, s] * attention[a]
                    means[run, time, s] = np.tanh(beta * field)
                    ups = rng.binomial(counts[s], 0.5 * (1.0 + means[run, time, s]))
                    tokens[run, time, s] = 2.0 * ups / counts[s] - 1.0
            for role in (VALUE, QUERY, KEY):
                for a in range(features):
                    m = place[(first + time) % place.shape[0], role, a]
                    for s in range(segments):
                        m += semantic[role, a, s] * tokens[run, time, s]
                    seen[role, time % context, a] = m
