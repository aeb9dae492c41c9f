"""One step for a block of lanes, written once; runs of steps that keep nothing or the overlaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinformer.dmft.kernels.arithmetic import exp, fma, tanh
from spinformer.dmft.kernels.compiling import inlined, kernel
from spinformer.dmft.kernels.lanes import LANES, dot, field
from spinformer.dmft.kernels.letters import letter_units


class Block(NamedTuple):
    """`LANES` systems of one network: state, scratch memory, parameters, weights; last axis W.

    attention: (T, P, W), a ring of attention vectors. value, key: (T, P, W), of the tokens made
        from the attention in the same slot.
    query: (P, W), γ included. hidden: (U, W), (1 − ε) tanh(β w_u·A). weight: (T + 2, W), softmax.
    beta, gamma, epsilon: (W,).
        With letters the rows of hidden are those of `kernels.letters`.
    patterns, readout, degeneracy, drive: `AttentionNetwork.hidden_units()` and
        `AttentionNetwork.position_overlaps()`.
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
    degeneracy: np.ndarray
    drive: np.ndarray


class Clock(NamedTuple):
    """The slot of the newest attention vector, and the position of the token that it makes."""

    cursor: int
    position: int


@inlined
def make_token(block, slot, phase):
    """Token at position `phase` from the attention in `slot` [poclopez2024dynamical, Eq. (15)]."""
    attention, hidden = block.attention, block.hidden
    value, key, query = block.value, block.key, block.query
    beta, gamma, epsilon = block.beta, block.gamma, block.epsilon
    patterns, readout, drive = block.patterns, block.readout, block.drive
    features, outputs = attention.shape[1], patterns.shape[0]
    if block.degeneracy.shape[0]:
        letter_units(
            patterns, block.degeneracy, attention[slot], beta, epsilon, hidden, block.weight
        )
    else:
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
