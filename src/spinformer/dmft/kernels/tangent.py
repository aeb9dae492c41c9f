"""Tangent maps of the compiled step: frames of tangent vectors pushed, and their growth.

The plain reference of a tangent map is `spinformer.dmft.lyapunov.tangent_map`, and automatic
differentiation of `compendium.c36_learning_through_the_limit.differentiable.torch_step`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinformer.dmft.kernels.arithmetic import (
    MANTISSA,
    ONE_BITS,
    bits_of,
    expm1_double,
    float_of,
    fma,
    sqrt,
)
from spinformer.dmft.kernels.compiling import inlined, kernel
from spinformer.dmft.kernels.lanes import LANES, dot, field
from spinformer.dmft.kernels.letters import letter_change, letter_shares
from spinformer.dmft.kernels.stepping import step

# Lengths below this count as an exact zero of the tangent map; log 0 is replaced by its log.
ZERO_LENGTH = 1e-140
# A direction of the frame shorter than this is what rounding left of the others.
ROUNDING_LENGTH = 1e-13


class Frame(NamedTuple):
    """k tangent vectors of a block and what became of their lengths.

    vectors: (k, T·P, W), components in the order of the ring: slot · P + feature.
    mantissa, exponent: (k, W), growth so far = mantissa · 2^exponent.
    lost: (k, W), how many lengths were below `ROUNDING_LENGTH`.
    """

    vectors: np.ndarray
    mantissa: np.ndarray
    exponent: np.ndarray
    lost: np.ndarray


class Derivatives(NamedTuple):
    """Scratch memory of a tangent map.

    slope: (U, W), with letters (U + groups, W), the shares of their classes. bend: (P, U, W), with
        letters alone, derivatives of the hidden rows. value, key: (T, P, P, W), query: (P, P, W),
        derivatives of a token by its own attention vector. rows: (P, T·P, W), ∂A'/∂window.
        spread: (P, P, W), pull: (P, W), scratch: (W,).
    """

    slope: np.ndarray
    bend: np.ndarray
    value: np.ndarray
    key: np.ndarray
    query: np.ndarray
    rows: np.ndarray
    spread: np.ndarray
    pull: np.ndarray
    scratch: np.ndarray


@kernel
def subtract(x, c, y):
    """y[r, lane] −= c[lane] x[r, lane], four rows a pass."""
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


@inlined
def letter_slopes(slot, block, by):
    """`slopes` of a network of letters."""
    patterns, readout, degeneracy = block.patterns, block.readout, block.degeneracy
    slope, bend, dvalue, dquery, dkey = by.slope, by.bend, by.value, by.query, by.key
    outputs, features = patterns.shape
    letter_shares(patterns, degeneracy, block.attention[slot], block.beta, slope, block.weight)
    for b in range(features):
        pushed = bend[b]
        for u in range(outputs):
            c = patterns[u, b]
            for j in range(LANES):
                pushed[u, j] = c
        letter_change(pushed, degeneracy, block.beta, block.epsilon, slope, pushed, block.weight)
        for a in range(features):
            for role in range(1, 4):
                if role == 1:
                    out = dvalue[slot, a, b]
                elif role == 2:
                    out = dquery[b, a]
                else:
                    out = dkey[slot, b, a]
                for j in range(LANES):
                    out[j] = 0.0
                for u in range(outputs):
                    c = readout[role, a, u]
                    for j in range(LANES):
                        out[j] = fma(c, pushed[u, j], out[j])
            for j in range(LANES):
                dquery[b, a, j] *= block.gamma[j]


@inlined
def slopes(slot, block, by):
    """Derivatives of the token in `slot` by its attention vector; the query's includes γ."""
    attention, patterns, readout = block.attention, block.patterns, block.readout
    beta, gamma, epsilon = block.beta, block.gamma, block.epsilon
    slope, dvalue, dquery, dkey, scratch = by.slope, by.value, by.query, by.key, by.scratch
    outputs, features = patterns.shape
    if block.degeneracy.shape[0]:
        letter_slopes(slot, block, by)
        return
    for u in range(outputs):
        field(patterns[u], attention[slot], scratch)
        for j in range(LANES):
            # sech² x = 4 e^{2x} / (e^{2x} + 1)²: no cancellation where tanh saturates.
            e = expm1_double(beta[j] * scratch[j])
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


@inlined
def tangent_rows(slot, new, block, by):
    """rows[a, s·P + b] = ∂A'_a / ∂A_{s,b}, s the slots of the window.

    ∂A' = Σ_τ π_τ [∂m^v_τ + (m^v_τ − A') ∂score_τ], score_τ = γ m^q·m^k_τ, the derivative of
    [poclopez2024dynamical, Eq. (14)]. Normalizes the softmax weights of the block.
    """
    attention, weight = block.attention, block.weight
    value, key, query = block.value, block.key, block.query
    dvalue, dquery, dkey = by.value, by.query, by.key
    rows, pull, spread, scratch = by.rows, by.pull, by.spread, by.scratch
    context, features = attention.shape[0], attention.shape[1]
    norm = weight[context + 1]
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        # weight holds unnormalized softmax weights, norm their inverse sum.
        for j in range(LANES):
            weight[t, j] *= norm[j]
        for b in range(features):
            dot(query, dkey[s, b], pull[b])
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
            dot(spread[a], dquery[b], scratch)
            for j in range(LANES):
                rows[a, row, j] += scratch[j]


@inlined
def orthonormalize(tangent, length):
    """Modified Gram-Schmidt; the lengths multiply mantissa · 2^exponent."""
    frame, mantissa = tangent.vectors, tangent.mantissa
    exponent, lost = tangent.exponent, tangent.lost
    count, rows = frame.shape[0], frame.shape[1]
    for i in range(count):
        dot(frame[i], frame[i], length)
        for j in range(LANES):
            r = sqrt(length[j])
            dead = r < ZERO_LENGTH
            lost[i, j] += 1 if r < ROUNDING_LENGTH else 0
            r = ZERO_LENGTH if dead else r
            bits = bits_of(mantissa[i, j] * r)
            exponent[i, j] += (bits >> 52) - 1023
            mantissa[i, j] = float_of((bits & MANTISSA) | ONE_BITS)
            length[j] = 0.0 if dead else 1.0 / r
        for row in range(rows):
            for j in range(LANES):
                frame[i, row, j] *= length[j]
        # A direction that the map destroys starts anew along an axis.
        for j in range(LANES):
            frame[i, i, j] = 1.0 if length[j] == 0.0 else frame[i, i, j]
        for l in range(i + 1, count):
            dot(frame[i], frame[l], length)
            subtract(frame[i], length, frame[l])


@inlined
def derivatives_of(block, clock):
    """Scratch memory, with the derivatives of all tokens of the window but the newest."""
    context, features = block.attention.shape[0], block.attention.shape[1]
    groups = block.degeneracy.shape[0]
    by = Derivatives(
        np.empty((block.patterns.shape[0] + groups, LANES)),
        np.empty((features, block.patterns.shape[0] if groups else 0, LANES)),
        np.empty((context, features, features, LANES)),
        np.empty((context, features, features, LANES)),
        np.empty((features, features, LANES)),
        np.empty((features, context * features, LANES)),
        np.empty((features, features, LANES)),
        np.empty((features, LANES)),
        np.empty(LANES),
    )
    for age in range(context - 1, 0, -1):
        slopes((clock.cursor - age) % context, block, by)
    return by


@inlined
def push_once(vectors, fresh, by, block, clock):
    """One step of the lanes and of the tangent vectors (k, T·P, W)."""
    features = block.attention.shape[1]
    slot = clock.cursor
    slopes(slot, block, by)
    clock = step(block, clock)
    tangent_rows(slot, clock.cursor, block, by)
    for i in range(vectors.shape[0]):
        for a in range(features):
            dot(by.rows[a], vectors[i], fresh[a])
        for a in range(features):
            for j in range(LANES):
                vectors[i, clock.cursor * features + a, j] = fresh[a, j]
    return clock


@kernel
def push(steps, vectors, block, clock):
    """`steps` steps of tangent vectors (k, T·P, W), as they come, in place; returns the clock."""
    by = derivatives_of(block, clock)
    fresh = np.empty((block.attention.shape[1], LANES))
    for _ in range(steps):
        clock = push_once(vectors, fresh, by, block, clock)
    return clock


@kernel
def lyapunov(steps, every, tangent, block, clock):
    """`steps` steps of a `Frame`, orthonormalized every `every` steps and at the end."""
    by = derivatives_of(block, clock)
    fresh = np.empty((block.attention.shape[1], LANES))
    for n in range(steps):
        clock = push_once(tangent.vectors, fresh, by, block, clock)
        if (n + 1) % every == 0 or n + 1 == steps:
            orthonormalize(tangent, by.scratch)
    return clock
