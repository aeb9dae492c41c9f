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
# A direction of the frame shorter than this is what rounding left of the others.
ROUNDING_LENGTH = 1e-13


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


@njit(error_model="numpy")
def _expm1_rest(r):
    # e^r − 1 − r on |r| ≤ ln(2)/2, Estrin's scheme.
    r2 = r * r
    r4 = r2 * r2
    a = fma(fma(_C3, r, _C2), r2, fma(_C1, r, _C0))
    b = fma(fma(_C7, r, _C6), r2, fma(_C5, r, _C4))
    b = fma(fma(_C9, r, _C8), r4, b)
    return r2 * fma(b, r4, a)


@njit(error_model="numpy")
def fast_exp(x):
    """e^x for x ≤ 700, held at e^−300 below −300; within 1 ulp of math.exp."""
    x = x if x > EXP_FLOOR else EXP_FLOOR
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    return _float_of(_bits_of(1.0 + (r + _expm1_rest(r))) + (_bits_of(t) << 52))


@njit(error_model="numpy")
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


@njit(error_model="numpy")
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


@njit(nogil=True, error_model="numpy", cache=True)
def _field(pattern, attention, out):
    # Σ_b pattern[b] attention[b, lane], three features a pass.
    features = attention.shape[0]
    if features >= 3:
        c, d, e = pattern[0], pattern[1], pattern[2]
        for j in range(LANES):
            out[j] = fma(e, attention[2, j], fma(d, attention[1, j], c * attention[0, j]))
    else:
        c = pattern[0]
        for j in range(LANES):
            out[j] = c * attention[0, j]
    for b in range(3 if features >= 3 else 1, features):
        c = pattern[b]
        for j in range(LANES):
            out[j] = fma(c, attention[b, j], out[j])


@njit(nogil=True, error_model="numpy", cache=True)
def _dot(x, y, out):
    # Σ_r x[r, lane] y[r, lane], several rows a pass.
    rows = x.shape[0]
    if rows >= 3:
        for j in range(LANES):
            out[j] = fma(x[2, j], y[2, j], fma(x[1, j], y[1, j], x[0, j] * y[0, j]))
        r = 3
    else:
        for j in range(LANES):
            out[j] = x[0, j] * y[0, j]
        r = 1
    while r + 3 <= rows:
        for j in range(LANES):
            s = fma(x[r, j], y[r, j], out[j])
            out[j] = fma(x[r + 2, j], y[r + 2, j], fma(x[r + 1, j], y[r + 1, j], s))
        r += 3
    while r < rows:
        for j in range(LANES):
            out[j] = fma(x[r, j], y[r, j], out[j])
        r += 1


@njit(nogil=True, error_model="numpy", cache=True)
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
        _field(patterns[u], attention[slot], hidden[u])
        for j in range(LANES):
            hidden[u, j] = (1.0 - epsilon[j]) * fast_tanh(beta[j] * hidden[u, j])
    for a in range(features):
        for role in range(1, 4):
            out = value[slot, a] if role == 1 else (query[a] if role == 2 else key[slot, a])
            c, d = readout[role, a, 0], drive[phase, role, a]
            for j in range(LANES):
                out[j] = fma(c, hidden[0, j], epsilon[j] * d)
            u = 1
            while u + 2 <= outputs:
                c, d = readout[role, a, u], readout[role, a, u + 1]
                for j in range(LANES):
                    out[j] = fma(d, hidden[u + 1, j], fma(c, hidden[u, j], out[j]))
                u += 2
            if u < outputs:
                c = readout[role, a, u]
                for j in range(LANES):
                    out[j] = fma(c, hidden[u, j], out[j])
        for j in range(LANES):
            query[a, j] *= gamma[j]


@njit(nogil=True, error_model="numpy", cache=True)
def _attend(slot, attention, value, key, query, weight):
    """Attention of the token in `slot` over the window: document 002, Eqs. (4), (5), (14)."""
    context, features = attention.shape[0], attention.shape[1]
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        _dot(query, key[s], weight[t])
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
        out = attention[new, a]
        for j in range(LANES):
            out[j] = weight[0, j] * value[slot, a, j]
        t = 1
        while t + 3 <= context:
            x = slot - t if slot >= t else slot - t + context
            y = slot - t - 1 if slot >= t + 1 else slot - t - 1 + context
            z = slot - t - 2 if slot >= t + 2 else slot - t - 2 + context
            for j in range(LANES):
                s = fma(weight[t, j], value[x, a, j], out[j])
                s = fma(weight[t + 1, j], value[y, a, j], s)
                out[j] = fma(weight[t + 2, j], value[z, a, j], s)
            t += 3
        while t < context:
            x = slot - t if slot >= t else slot - t + context
            for j in range(LANES):
                out[j] = fma(weight[t, j], value[x, a, j], out[j])
            t += 1
        for j in range(LANES):
            out[j] *= total[j]
    return new


@njit(nogil=True, error_model="numpy", cache=True)
def _output(a, hidden, readout, out):
    # Semantic part of m^o_a, (1 − ε) included, into out[lane].
    c = readout[0, a, 0]
    for j in range(LANES):
        out[j] = c * hidden[0, j]
    for u in range(1, hidden.shape[0]):
        c = readout[0, a, u]
        for j in range(LANES):
            out[j] = fma(c, hidden[u, j], out[j])


@njit(nogil=True, error_model="numpy", cache=True)
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


@njit(nogil=True, error_model="numpy", cache=True)
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


@njit(nogil=True, error_model="numpy", cache=True)
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


# ---- streamed statistics


@njit(nogil=True, error_model="numpy", cache=True)
def survey(
    steps, start, observed, plane, tolerance, histogram, section, window, sums,
    cursor, position, attention, value, key, query, hidden, weight, par, net,
):  # fmt: skip
    """Histograms and weighted Birkhoff sums over `steps` steps, in constant memory.

    histogram, section (W, bins) count m^o_observed on [−1, 1], the second only where
    |m^o_plane| < tolerance. Step `start` + n adds window[n'] m^o to sums[half] (2, P, W), where
    half and n' say where in two stretches of window.size steps it falls.
    """
    beta, gamma, epsilon = par
    patterns, readout, drive = net
    phases, features, bins = drive.shape[0], attention.shape[1], histogram.shape[1]
    overlap = np.empty((features, LANES))
    for n in range(start, start + steps):
        _make_token(
            cursor, position,
            attention, value, key, query, hidden, beta, gamma, epsilon, patterns, readout, drive,
        )  # fmt: skip
        cursor = _attend(cursor, attention, value, key, query, weight)
        position = position + 1 if position + 1 < phases else 0
        half = 0 if n < window.size else 1
        w = window[n - half * window.size] if n < 2 * window.size else 0.0
        for a in range(features):
            _output(a, hidden, readout, overlap[a])
            for j in range(LANES):
                sums[half, a, j] = fma(w, overlap[a, j], sums[half, a, j])
        for j in range(LANES):
            i = int((overlap[observed, j] + 1.0) * (0.5 * bins))
            i = i if i < bins else bins - 1
            histogram[j, i] += 1
            if abs(overlap[plane, j]) < tolerance:
                section[j, i] += 1
    return cursor, position


@njit(nogil=True, error_model="numpy", cache=True)
def smallest_period(orbit, largest, distance):
    """Smallest p ≤ `largest` with |orbit[n + p] − orbit[n]| < distance for all n, or 0.

    orbit: (steps, P). The comparison covers all the steps there are.
    """
    steps, features = orbit.shape
    for p in range(1, largest + 1):
        same = True
        for n in range(steps - p - 1, -1, -1):
            for a in range(features):
                if abs(orbit[n + p, a] - orbit[n, a]) > distance:
                    same = False
            if not same:
                break
        if same:
            return p
    return 0


# ---- tangent maps


@njit(nogil=True, error_model="numpy", cache=True)
def _subtract(x, c, y):
    # y[r, lane] −= c[lane] x[r, lane], four rows a pass.
    rows = x.shape[0]
    r = 0
    while r + 4 <= rows:
        for j in range(LANES):
            d = -c[j]
            y[r, j] = fma(d, x[r, j], y[r, j])
            y[r + 1, j] = fma(d, x[r + 1, j], y[r + 1, j])
            y[r + 2, j] = fma(d, x[r + 2, j], y[r + 2, j])
            y[r + 3, j] = fma(d, x[r + 3, j], y[r + 3, j])
        r += 4
    while r < rows:
        for j in range(LANES):
            y[r, j] = fma(-c[j], x[r, j], y[r, j])
        r += 1


@njit(nogil=True, error_model="numpy", cache=True)
def _slopes(slot, attention, slope, dvalue, dquery, dkey, scratch, beta, gamma, epsilon,
            patterns, readout):  # fmt: skip
    """Derivatives of the token in `slot` by its attention vector; the query's includes γ."""
    outputs, features = patterns.shape
    for u in range(outputs):
        _field(patterns[u], attention[slot], scratch)
        for j in range(LANES):
            # sech² x = 4 e^{2x} / (e^{2x} + 1)²: no cancellation where tanh saturates.
            e = _expm1_double(beta[j] * scratch[j])
            d = 1.0 / (e + 2.0)
            slope[u, j] = beta[j] * (1.0 - epsilon[j]) * 4.0 * ((e + 1.0) * d) * d
    # Query and key derivatives are stored with the attention's feature first, as they are summed.
    for a in range(features):
        for b in range(features):
            c = patterns[0, b]
            for role in range(1, 4):
                if role == 1:
                    out = dvalue[slot, a, b]
                elif role == 2:
                    out = dquery[b, a]
                else:
                    out = dkey[slot, b, a]
                d = c * readout[role, a, 0]
                for j in range(LANES):
                    out[j] = d * slope[0, j]
                u = 1
                while u + 2 <= outputs:
                    d = patterns[u, b] * readout[role, a, u]
                    e = patterns[u + 1, b] * readout[role, a, u + 1]
                    for j in range(LANES):
                        out[j] = fma(e, slope[u + 1, j], fma(d, slope[u, j], out[j]))
                    u += 2
                if u < outputs:
                    d = patterns[u, b] * readout[role, a, u]
                    for j in range(LANES):
                        out[j] = fma(d, slope[u, j], out[j])
            for j in range(LANES):
                dquery[b, a, j] *= gamma[j]


@njit(nogil=True, error_model="numpy", cache=True)
def _tangent_rows(slot, new, attention, value, key, query, weight, dvalue, dquery, dkey,
                  rows, pull, spread, scratch):  # fmt: skip
    """rows[a, s·P + b] = ∂A'_a / ∂A_{s,b}, s the slots of the window; document 002, Eq. (14).

    ∂A' = Σ_τ π_τ [∂m^v_τ + (m^v_τ − A') ∂score_τ], score_τ = γ m^q·m^k_τ.
    """
    context, features = attention.shape[0], attention.shape[1]
    norm = weight[context + 1]
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        # weight holds unnormalised softmax weights, norm their inverse sum.
        for j in range(LANES):
            weight[t, j] *= norm[j]
        for b in range(features):
            _dot(query, dkey[s, b], pull[b])
        for a in range(features):
            for j in range(LANES):
                scratch[j] = weight[t, j] * (value[s, a, j] - attention[new, a, j])
            for b in range(features):
                row = s * features + b
                if t == 0:
                    for j in range(LANES):
                        rows[a, row, j] = fma(
                            weight[t, j], dvalue[s, a, b, j], scratch[j] * pull[b, j]
                        )
                        spread[a, b, j] = scratch[j] * key[s, b, j]
                else:
                    for j in range(LANES):
                        rows[a, row, j] = fma(
                            weight[t, j], dvalue[s, a, b, j], scratch[j] * pull[b, j]
                        )
                        spread[a, b, j] = fma(scratch[j], key[s, b, j], spread[a, b, j])
    for a in range(features):
        for b in range(features):
            row = slot * features + b
            _dot(spread[a], dquery[b], scratch)
            for j in range(LANES):
                rows[a, row, j] += scratch[j]


@njit(nogil=True, error_model="numpy", cache=True)
def _orthonormalise(frame, mantissa, exponent, lost, length):
    """Modified Gram-Schmidt; the lengths multiply mantissa · 2^exponent."""
    count, rows = frame.shape[0], frame.shape[1]
    for i in range(count):
        _dot(frame[i], frame[i], length)
        for j in range(LANES):
            r = _sqrt(length[j])
            dead = r < ZERO_LENGTH
            lost[i, j] += 1 if r < ROUNDING_LENGTH else 0
            r = ZERO_LENGTH if dead else r
            bits = _bits_of(mantissa[i, j] * r)
            exponent[i, j] += (bits >> 52) - 1023
            mantissa[i, j] = _float_of((bits & _MANTISSA) | _ONE_BITS)
            length[j] = 0.0 if dead else 1.0 / r
        for row in range(rows):
            for j in range(LANES):
                frame[i, row, j] *= length[j]
        # A direction that the map destroys starts anew along an axis.
        for j in range(LANES):
            frame[i, i, j] = 1.0 if length[j] == 0.0 else frame[i, i, j]
        for l in range(i + 1, count):
            _dot(frame[i], frame[l], length)
            _subtract(frame[i], length, frame[l])


@njit(nogil=True, error_model="numpy", cache=True)
def lyapunov(
    steps, every, frame, mantissa, exponent, lost,
    cursor, position, attention, value, key, query, hidden, weight, par, net,
):  # fmt: skip
    """`steps` steps of the tangent frame (k, T·P, W), orthonormalised every `every` steps.

    Growth of direction i: mantissa[i] · 2^exponent[i] (both updated); lost[i] counts lengths
    below `ROUNDING_LENGTH`. Rows of the frame follow the ring: slot · P + feature.
    """
    beta, gamma, epsilon = par
    patterns, readout, drive = net
    phases = drive.shape[0]
    context, features = attention.shape[0], attention.shape[1]
    count = frame.shape[0]
    slope = np.empty((patterns.shape[0], LANES))
    dvalue = np.empty((context, features, features, LANES))
    dkey = np.empty((context, features, features, LANES))
    dquery = np.empty((features, features, LANES))
    rows = np.empty((features, context * features, LANES))
    spread = np.empty((features, features, LANES))
    pull = np.empty((features, LANES))
    scratch = np.empty(LANES)
    fresh = np.empty((features, LANES))
    for age in range(context - 1, 0, -1):
        _slopes((cursor - age) % context, attention, slope, dvalue, dquery, dkey, scratch,
                beta, gamma, epsilon, patterns, readout)  # fmt: skip
    for n in range(steps):
        slot = cursor
        _slopes(slot, attention, slope, dvalue, dquery, dkey, scratch,
                beta, gamma, epsilon, patterns, readout)  # fmt: skip
        _make_token(
            slot, position,
            attention, value, key, query, hidden, beta, gamma, epsilon, patterns, readout, drive,
        )  # fmt: skip
        cursor = _attend(slot, attention, value, key, query, weight)
        position = position + 1 if position + 1 < phases else 0
        _tangent_rows(slot, cursor, attention, value, key, query, weight, dvalue, dquery, dkey,
                      rows, pull, spread, scratch)  # fmt: skip
        for i in range(count):
            for a in range(features):
                _dot(rows[a], frame[i], fresh[a])
            for a in range(features):
                for j in range(LANES):
                    frame[i, cursor * features + a, j] = fresh[a, j]
        if (n + 1) % every == 0 or n + 1 == steps:
            _orthonormalise(frame, mantissa, exponent, lost, scratch)
    return cursor, position
