"""Compiled mean-field steps, `LANES` independent systems side by side.

A step is a few hundred floating-point operations and P' + T transcendentals, so a system on its
own leaves the vector units idle. Every inner loop here runs over the lanes of a block and has no
branch, so that the compiler turns it into vector instructions; the loops around it take P, U, T
and K as they come, so there is one path for every network.

Determinism: no fast-math flags. Products and sums round as IEEE 754 says, fused multiply-adds
are asked for by name, and exp and tanh are the ones below, not the C library's. A lane's numbers
therefore do not depend on the number of lanes, blocks or threads, nor on the processor.

The plain reference of a step is `spinformer.dmft.mean_field.step`; that of the tangent map,
automatic differentiation of `spinformer.dmft.mean_field.torch_step`.

Arrays of one block (last axis: lanes): `attention` (T, P, W) ring of attention vectors, slot
`cursor` the newest; `value`, `key` (T, P, W) the tokens made from the attention in the same slot;
`hidden` (U, W) = (1 − ε) tanh(β w_u·A), `query` (P, W) including γ, `weight` (T + 2, W) softmax.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 64

_MAGIC = 6755399441055744.0  # 1.5 · 2^52: adding it rounds to an integer, held in the low bits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # 21 trailing zero bits: n · _LN2_HIGH is exact
_LN2_LOW = 1.9082149292705877e-10
_ONE_BITS = 4607182418800017408  # the bits of 1.0
_MANTISSA = 4503599627370495  # 2^52 − 1
# Minimax polynomial of (e^r − 1 − r)/r² on |r| ≤ ln(2)/2, error 1e-16.
_C0, _C1 = 0.5000000000000001, 0.16666666666666669
_C2, _C3 = 0.04166666666662413, 0.008333333333330062
_C4, _C5 = 0.0013888888917213717, 0.00019841269863053618
_C6, _C7 = 2.4801521295954376e-05, 2.7557268459997064e-06
_C8, _C9 = 2.7620088445409746e-07, 2.510038549551032e-08

# Below e^−300 a softmax weight is held at e^−300: no double sees the difference in a sum, and
# the squares that a tangent map's norm needs stay clear of underflow.
EXP_FLOOR = -300.0
# Lengths below this count as an exact zero of the tangent map; log 0 is replaced by its log.
ZERO_LENGTH = 1e-140


@intrinsic
def _bits_of(typingctx, x):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _float_of(typingctx, x):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def fma(typingctx, x, y, z):
    """x·y + z rounded once."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@intrinsic
def _sqrt(typingctx, x):
    def codegen(context, builder, signature, args):
        function = builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()])
        return builder.call(function, args)

    return types.float64(types.float64), codegen


@njit(inline="always", error_model="numpy")
def _expm1_rest(r):
    # e^r − 1 − r on |r| ≤ ln(2)/2, Estrin's scheme.
    r2 = r * r
    r4 = r2 * r2
    a = fma(fma(_C3, r, _C2), r2, fma(_C1, r, _C0))
    b = fma(fma(_C7, r, _C6), r2, fma(_C5, r, _C4))
    b = fma(fma(_C9, r, _C8), r4, b)
    return r2 * fma(b, r4, a)


@njit(inline="always", error_model="numpy")
def fast_exp(x):
    """e^x for x ≤ 700, held at e^−300 below −300; within 1 ulp of math.exp."""
    x = x if x > EXP_FLOOR else EXP_FLOOR
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    return _float_of(_bits_of(1.0 + (r + _expm1_rest(r))) + (_bits_of(t) << 52))


@njit(inline="always", error_model="numpy")
def _expm1_double(x):
    # e^{2x} − 1 for |x| ≤ 300, accurate near 0.
    y = 2.0 * x
    y = y if y < 600.0 else 600.0
    y = y if y > -600.0 else -600.0
    t = fma(y, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, y))
    scale = _float_of((_bits_of(t) << 52) + _ONE_BITS)
    return fma(scale, r + _expm1_rest(r), scale - 1.0)


@njit(inline="always", error_model="numpy")
def fast_tanh(x):
    """tanh x, within 3 ulp of math.tanh for every x."""
    e = _expm1_double(x)
    return e / (e + 2.0)


@njit(error_model="numpy")
def exp_array(x):
    """`fast_exp` of every entry of a 1-D array (for tests)."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = fast_exp(x[i])
    return out


@njit(error_model="numpy")
def tanh_array(x):
    """`fast_tanh` of every entry of a 1-D array (for tests)."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = fast_tanh(x[i])
    return out


@njit(nogil=True, error_model="numpy")
def _make_token(
    slot,
    phase,
    attention,
    value,
    key,
    query,
    hidden,
    beta,
    gamma,
    epsilon,
    patterns,
    readout,
    drive,
):
    """Token at position `phase` from the attention in `slot`: document 002, Eq. (15)."""
    features, outputs = attention.shape[1], patterns.shape[0]
    for u in range(outputs):
        c = patterns[u, 0]
        for j in range(LANES):
            hidden[u, j] = c * attention[slot, 0, j]
        for b in range(1, features):
            c = patterns[u, b]
            for j in range(LANES):
                hidden[u, j] = fma(c, attention[slot, b, j], hidden[u, j])
        for j in range(LANES):
            hidden[u, j] = (1.0 - epsilon[j]) * fast_tanh(beta[j] * hidden[u, j])
    for a in range(features):
        dv, dq, dk = drive[phase, 1, a], drive[phase, 2, a], drive[phase, 3, a]
        for j in range(LANES):
            e = epsilon[j]
            value[slot, a, j] = e * dv
            query[a, j] = e * dq
            key[slot, a, j] = e * dk
        for u in range(outputs):
            rv, rq, rk = readout[1, a, u], readout[2, a, u], readout[3, a, u]
            for j in range(LANES):
                h = hidden[u, j]
                value[slot, a, j] = fma(rv, h, value[slot, a, j])
                query[a, j] = fma(rq, h, query[a, j])
                key[slot, a, j] = fma(rk, h, key[slot, a, j])
        for j in range(LANES):
            query[a, j] *= gamma[j]


@njit(nogil=True, error_model="numpy")
def _attend(slot, attention, value, key, query, weight):
    """Attention of the token in `slot` over the window: document 002, Eqs. (4), (5), (14)."""
    context, features = attention.shape[0], attention.shape[1]
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        for j in range(LANES):
            weight[t, j] = query[0, j] * key[s, 0, j]
        for a in range(1, features):
            for j in range(LANES):
                weight[t, j] = fma(query[a, j], key[s, a, j], weight[t, j])
    largest, total = weight[context], weight[context + 1]
    for j in range(LANES):
        largest[j] = weight[0, j]
        total[j] = 0.0
    for t in range(1, context):
        for j in range(LANES):
            largest[j] = weight[t, j] if weight[t, j] > largest[j] else largest[j]
    for t in range(context):
        for j in range(LANES):
            e = fast_exp(weight[t, j] - largest[j])
            weight[t, j] = e
            total[j] += e
    for j in range(LANES):
        total[j] = 1.0 / total[j]
    new = slot + 1 if slot + 1 < context else 0
    for a in range(features):
        for j in range(LANES):
            attention[new, a, j] = weight[0, j] * value[slot, a, j]
        for t in range(1, context):
            s = slot - t if slot >= t else slot - t + context
            for j in range(LANES):
                attention[new, a, j] = fma(weight[t, j], value[s, a, j], attention[new, a, j])
        for j in range(LANES):
            attention[new, a, j] *= total[j]
    return new


@njit(nogil=True, error_model="numpy")
def _output(a, hidden, readout, out):
    # Semantic part of m^o_a, (1 − ε) included, into out[lane].
    c = readout[0, a, 0]
    for j in range(LANES):
        out[j] = c * hidden[0, j]
    for u in range(1, hidden.shape[0]):
        c = readout[0, a, u]
        for j in range(LANES):
            out[j] = fma(c, hidden[u, j], out[j])


@njit(nogil=True, error_model="numpy")
def warm(cursor, position, attention, value, key, query, hidden, weight, par, net):
    """Rebuild the tokens of a context from its attention vectors, all but the newest."""
    beta, gamma, epsilon = par
    patterns, readout, drive = net
    context, phases = attention.shape[0], drive.shape[0]
    for age in range(context - 1, 0, -1):
        _make_token(
            (cursor - age) % context,
            (position - age) % phases,
            attention, value, key, query, hidden, beta, gamma, epsilon, patterns, readout, drive,
        )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def advance(steps, cursor, position, attention, value, key, query, hidden, weight, par, net):
    """`steps` steps; returns (cursor, position)."""
    beta, gamma, epsilon = par
    patterns, readout, drive = net
    phases = drive.shape[0]
    for _ in range(steps):
        _make_token(
            cursor, position,
            attention, value, key, query, hidden, beta, gamma, epsilon, patterns, readout, drive,
        )  # fmt: skip
        cursor = _attend(cursor, attention, value, key, query, weight)
        position = position + 1 if position + 1 < phases else 0
    return cursor, position


@njit(nogil=True, error_model="numpy")
def record(out, every, cursor, position, attention, value, key, query, hidden, weight, par, net):
    """Run out.shape[0] · every steps, m^o of the last step of each stretch in out[i] (P, W)."""
    beta, gamma, epsilon = par
    patterns, readout, drive = net
    phases = drive.shape[0]
    for i in range(out.shape[0]):
        for _ in range(every):
            _make_token(
                cursor, position,
                attention, value, key, query, hidden, beta, gamma, epsilon,
                patterns, readout, drive,
            )  # fmt: skip
            cursor = _attend(cursor, attention, value, key, query, weight)
            position = position + 1 if position + 1 < phases else 0
        for a in range(out.shape[1]):
            _output(a, hidden, readout, out[i, a])
    return cursor, position
