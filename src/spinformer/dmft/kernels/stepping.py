"""One step for a block of lanes, written once; runs of steps that keep nothing or the overlaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinformer.dmft.kernels.arithmetic import exp, fma, tanh
from spinformer.dmft.kernels.compiling import inlined, kernel

LANES = 64


class Block(NamedTuple):
    """`LANES` systems of one network: state, scratch memory, parameters, weights; last axis W.

    attention: (T, P, W), a ring of attention vectors. value, key: (T, P, W), of the tokens made
        from the attention in the same slot.
    query: (P, W), γ included. hidden: (U, W), (1 − ε) tanh(β w_u·A). weight: (T + 2, W), softmax.
    beta, gamma, epsilon: (W,).
    patterns, readout, drive: `Network.output_patterns()` and `Network.position_overlaps()`.
    """

    attention: np.ndarray
    value: np.ndarray
    key: np.ndarray
    query: np.ndarray
    hidden: np.ndarray
    weight: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    epsilon: np.ndarray
    patterns: np.ndarray
    readout: np.ndarray
    drive: np.ndarray


class Clock(NamedTuple):
    """The slot of the newest attention vector, and the position of the token that it makes."""

    cursor: int
    position: int


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


@inlined
def make_token(block, slot, phase):
    """Token at position `phase` from the attention in `slot` [poclopez2024dynamical, Eq. (15)]."""
    attention, hidden = block.attention, block.hidden
    value, key, query = block.value, block.key, block.query
    beta, gamma, epsilon = block.beta, block.gamma, block.epsilon
    patterns, readout, drive = block.patterns, block.readout, block.drive
    features, outputs = attention.shape[1], patterns.shape[0]
    for u in range(outputs):
        field(patterns[u], attention[slot], hidden[u])
        for j in range(LANES):
            hidden[u, j] = (1.0 - epsilon[j]) * tanh(beta[j] * hidden[u, j])
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


@inlined
def attend(block, slot):
    """Attention of the token in `slot` over the window into the next slot, which is returned.

    [poclopez2024dynamical, Eqs. (4), (5), (14)]; `weight` is left with the unnormalized softmax
    weights by age and, in its last row, the inverse of their sum.
    """
    attention, weight = block.attention, block.weight
    value, key, query = block.value, block.key, block.query
    context, features = attention.shape[0], attention.shape[1]
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        dot(query, key[s], weight[t])
    largest, total = weight[context], weight[context + 1]
    for j in range(LANES):
        largest[j] = weight[0, j]
        total[j] = 0.0
    for t in range(1, context):
        for j in range(LANES):
            largest[j] = weight[t, j] if weight[t, j] > largest[j] else largest[j]
    for t in range(context):
        for j in range(LANES):
            e = exp(weight[t, j] - largest[j])
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


@inlined
def step(block, clock):
    """Make a token, attend, move the clock: one step of every lane."""
    make_token(block, clock.cursor, clock.position)
    cursor = attend(block, clock.cursor)
    position = clock.position + 1 if clock.position + 1 < block.drive.shape[0] else 0
    return Clock(cursor, position)


@inlined
def output(block, a, out):
    """Semantic part of m^o_a of the last token, 1 − ε included, into out[lane]."""
    hidden, readout = block.hidden, block.readout
    c = readout[0, a, 0]
    for j in range(LANES):
        out[j] = c * hidden[0, j]
    for u in range(1, hidden.shape[0]):
        c = readout[0, a, u]
        for j in range(LANES):
            out[j] = fma(c, hidden[u, j], out[j])


@kernel
def warm(block, clock):
    """Rebuild the tokens of a context from its attention vectors, all but the newest."""
    context, phases = block.attention.shape[0], block.drive.shape[0]
    for age in range(context - 1, 0, -1):
        make_token(block, (clock.cursor - age) % context, (clock.position - age) % phases)


@kernel
def advance(steps, block, clock):
    """`steps` steps; returns the clock after them."""
    for _ in range(steps):
        clock = step(block, clock)
    return clock


@kernel
def record(out, every, block, clock):
    """Run out.shape[0] · every steps, m^o of the last step of each stretch in out[i] (P, W)."""
    for i in range(out.shape[0]):
        for _ in range(every):
            clock = step(block, clock)
        for a in range(out.shape[1]):
            output(block, a, out[i, a])
    return clock
