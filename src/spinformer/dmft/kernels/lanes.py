"""Sums over features and over rows, lane by lane."""

from __future__ import annotations

from spinformer.dmft.kernels.arithmetic import fma
from spinformer.dmft.kernels.compiling import kernel

LANES = 64


@kernel
def field(pattern, attention, out):
    """Σ_b pattern[b] attention[b, lane] into `out`, three features a pass."""
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


@kernel
def dot(x, y, out):
    """Σ_r x[r, lane] y[r, lane] into `out`, several rows a pass."""
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
