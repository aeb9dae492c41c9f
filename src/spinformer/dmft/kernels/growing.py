"""Growth of one small deviation, without the matrix of the tangent map.

A frame of several vectors is pushed by the matrix (`tangent.lyapunov`), whose P × T·P entries are
most of the work. A single vector goes through the step itself, as a derivative in its direction:
δA' = Σ_τ π_τ [δm^v_τ + (m^v_τ − A') δscore_τ], with the derivatives of a token kept, like the
token, for as long as it is in the window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinformer.dmft.kernels.arithmetic import expm1_double, fma
from spinformer.dmft.kernels.compiling import inlined, kernel
from spinformer.dmft.kernels.lanes import LANES, dot, field
from spinformer.dmft.kernels.letters import letter_change, letter_shares
from spinformer.dmft.kernels.stepping import step
from spinformer.dmft.kernels.tangent import orthonormalize


class Deviation(NamedTuple):
    """Scratch memory: derivatives of tokens in the direction of the vector.

    hidden: (U, W). value, key: (T, P, W). query, fresh: (P, W). shares: (U + groups, W), used
    with letters alone. scratch, lean: (W,).
    """

    hidden: np.ndarray
    value: np.ndarray
    key: np.ndarray
    query: np.ndarray
    fresh: np.ndarray
    shares: np.ndarray
    scratch: np.ndarray
    lean: np.ndarray


@inlined
def deviate(slot, vector, block, by):
    """Derivative of the token in `slot`, made of the deviation of its attention vector."""
    attention, beta, gamma, epsilon = block.attention, block.beta, block.gamma, block.epsilon
    patterns, readout = block.patterns, block.readout
    hidden, value, key, query, scratch = by.hidden, by.value, by.key, by.query, by.scratch
    outputs, features = patterns.shape
    here = vector[slot * features : (slot + 1) * features]
    if block.degeneracy.shape[0]:
        letter_shares(patterns, block.degeneracy, attention[slot], beta, by.shares, block.weight)
        for u in range(outputs):
            field(patterns[u], here, hidden[u])
        letter_change(hidden, block.degeneracy, beta, epsilon, by.shares, hidden, block.weight)
    else:
        for u in range(outputs):
            field(patterns[u], attention[slot], scratch)
            field(patterns[u], here, hidden[u])
            for j in range(LANES):
                # sech² x = 4 e^{2x} / (e^{2x} + 1)²: no cancellation where tanh saturates.
                e = expm1_double(beta[j] * scratch[j])
                d = 1.0 / (e + 2.0)
                hidden[u, j] *= beta[j] * (1.0 - epsilon[j]) * 4.0 * ((e + 1.0) * d) * d
    for a in range(features):
        for role in range(1, 4):
            out = value[slot, a] if role == 1 else (query[a] if role == 2 else key[slot, a])
            c = readout[role, a, 0]
            for j in range(LANES):
                out[j] = c * hidden[0, j]
            for u in range(1, outputs):
                c = readout[role, a, u]
                for j in range(LANES):
                    out[j] = fma(c, hidden[u, j], out[j])
        for j in range(LANES):
            query[a, j] *= gamma[j]


@inlined
def push(slot, new, vector, block, by):
    """Deviation of the new attention vector, into the vector's rows of its slot."""
    attention, weight = block.attention, block.weight
    value, key, query = block.value, block.key, block.query
    fresh, scratch, lean = by.fresh, by.scratch, by.lean
    context, features = attention.shape[0], attention.shape[1]
    norm = weight[context + 1]
    fresh[:] = 0.0
    for t in range(context):
        s = slot - t if slot >= t else slot - t + context
        dot(query, by.key[s], scratch)
        dot(by.query, key[s], lean)
        for j in range(LANES):
            weight[t, j] *= norm[j]
            scratch[j] += lean[j]
        for a in range(features):
            for j in range(LANES):
                d = fma(value[s, a, j] - attention[new, a, j], scratch[j], by.value[s, a, j])
                fresh[a, j] = fma(weight[t, j], d, fresh[a, j])
    for a in range(features):
        for j in range(LANES):
            vector[new * features + a, j] = fresh[a, j]


@kernel
def grow(steps, every, tangent, block, clock):
    """`steps` steps of a `Frame` of one vector, normalized every `every` steps and at the end."""
    context, features = block.attention.shape[0], block.attention.shape[1]
    vector = tangent.vectors[0]
    by = Deviation(
        np.empty((block.patterns.shape[0], LANES)),
        np.empty((context, features, LANES)),
        np.empty((context, features, LANES)),
        np.empty((features, LANES)),
        np.empty((features, LANES)),
        np.empty((block.patterns.shape[0] + block.degeneracy.shape[0], LANES)),
        np.empty(LANES),
        np.empty(LANES),
    )
    for age in range(context - 1, 0, -1):
        deviate((clock.cursor - age) % context, vector, block, by)
    for n in range(steps):
        slot = clock.cursor
        deviate(slot, vector, block, by)
        clock = step(block, clock)
        push(slot, clock.cursor, vector, block, by)
        if (n + 1) % every == 0 or n + 1 == steps:
            # Leaves the inverse lengths in the scratch row, 0 for a vector that starts anew.
            orthonormalize(tangent, by.scratch)
            anew = False
            for j in range(LANES):
                anew = anew or by.scratch[j] == 0.0
            if anew:
                for age in range(context - 1, 0, -1):
                    deviate((clock.cursor - age) % context, vector, block, by)
            else:
                for s in range(context):
                    for a in range(features):
                        for j in range(LANES):
                            by.value[s, a, j] *= by.scratch[j]
                            by.key[s, a, j] *= by.scratch[j]
    return clock
