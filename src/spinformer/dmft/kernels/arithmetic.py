"""exp, tanh, square root and fused multiply-add, the same to the last bit on every processor.

No fast-math: products and sums round as IEEE 754 says, fused multiply-adds are asked for by name,
and exp and tanh are polynomials of their own, not the C library's. None has a branch, so a loop
over lanes that calls them becomes vector instructions.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from spinformer.dmft.kernels.compiling import instruction, kernel

_MAGIC = 6755399441055744.0  # 1.5 · 2^52: adding it rounds to an integer, held in the low bits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # 21 trailing zero bits: n · _LN2_HIGH is exact
_LN2_LOW = 1.9082149292705877e-10
ONE_BITS = 4607182418800017408  # the bits of 1.0
MANTISSA = 4503599627370495  # 2^52 − 1
# Minimax polynomial of (e^r − 1 − r)/r² on |r| ≤ ln(2)/2, error 1e-16.
_C0, _C1 = 0.5000000000000001, 0.16666666666666669
_C2, _C3 = 0.04166666666662413, 0.008333333333330062
_C4, _C5 = 0.0013888888917213717, 0.00019841269863053618
_C6, _C7 = 2.4801521295954376e-05, 2.7557268459997064e-06
_C8, _C9 = 2.7620088445409746e-07, 2.510038549551032e-08

# Below e^−300 a softmax weight is held at e^−300: no double sees the difference in a sum, and
# the squares that a tangent map's norm needs stay clear of underflow.
EXP_FLOOR = -300.0


@instruction
def bits_of(typingctx, x):
    """The bits of a double, as an integer."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@instruction
def float_of(typingctx, x):
    """The double that has these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@instruction
def fma(typingctx, x, y, z):
    """x·y + z rounded once."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@instruction
def sqrt(typingctx, x):
    """√x, rounded once."""

    def codegen(context, builder, signature, args):
        function = builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()])
        return builder.call(function, args)

    return types.float64(types.float64), codegen


@kernel
def _expm1_rest(r):
    # e^r − 1 − r on |r| ≤ ln(2)/2, Estrin's scheme.
    r2 = r * r
    r4 = r2 * r2
    a = fma(fma(_C3, r, _C2), r2, fma(_C1, r, _C0))
    b = fma(fma(_C7, r, _C6), r2, fma(_C5, r, _C4))
    b = fma(fma(_C9, r, _C8), r4, b)
    return r2 * fma(b, r4, a)


@kernel
def exp(x):
    """e^x for x ≤ 700, held at e^−300 below −300; within 1 ulp of math.exp."""
    x = x if x > EXP_FLOOR else EXP_FLOOR
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    return float_of(bits_of(1.0 + (r + _expm1_rest(r))) + (bits_of(t) << 52))


@kernel
def expm1_double(x):
    """e^{2x} − 1 for |x| ≤ 300, accurate near 0."""
    y = 2.0 * x
    y = y if y < 600.0 else 600.0
    y = y if y > -600.0 else -600.0
    t = fma(y, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, y))
    scale = float_of((bits_of(t) << 52) + ONE_BITS)
    return fma(scale, r + _expm1_rest(r), scale - 1.0)


@kernel
def tanh(x):
    """tanh x, within 3 ulp of math.tanh for every x."""
    e = expm1_double(x)
    return e / (e + 2.0)


@kernel
def exp_array(x):
    """`exp` of every entry of a 1-D array (for tests)."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = exp(x[i])
    return out


@kernel
def tanh_array(x):
    """`tanh` of every entry of a 1-D array (for tests)."""
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = tanh(x[i])
    return out
