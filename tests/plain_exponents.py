"""The tangent map and Lyapunov exponents of a network in plain NumPy, beside the compiled ones."""

import numpy as np
from scipy.special import softmax

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.dmft.mean_field import step, tokens
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE


def tangent_map(network, context, beta, *, gamma=None, epsilon=None):
    """∂(next window)/∂(window), (T·P, T·P), of one system: by age (newest first), then feature."""
    network = network.with_parameters(gamma=gamma, epsilon=epsilon)
    size, features, gamma = network.context, network.features, network.gamma
    window = tokens(network, context, beta)
    query, value, key = window[0, QUERY], window[:, VALUE], window[:, KEY]
    if network.semantic.ndim == 4:  # letters
        by = network.response(context.attention, beta=np.array(beta))
    else:
        output = network.semantic[OUTPUT]
        slope = beta / np.cosh(beta * context.attention @ output) ** 2
        by = np.einsum("ral,tl,bl->trab", network.semantic * network.fractions, slope, output)
    by = (1.0 - network.epsilon) * by  # ∂m^r_a / ∂A_b of the token of age t
    share = softmax(gamma * key @ query)
    lean = share[:, None] * (value - share @ value)
    blocks = share[:, None, None] * by[:, VALUE]
    blocks += np.einsum("ta,tb->tab", lean, gamma * np.einsum("c,tcb->tb", query, by[:, KEY]))
    blocks[0] += gamma * np.einsum("ta,tc,cb->ab", lean, key, by[0, QUERY])
    full = np.eye(size * features, k=-features)
    full[:features] = np.concatenate(list(blocks), axis=1)
    return full


def lyapunov_spectrum_reference(
    network, context, beta, *, steps, count=None, align=100, gamma=None, epsilon=None
):
    """The `count` largest exponents (None: all T·P) of one system, (count,).

    `core.lyapunov.lyapunov_exponents` of `tangent_map` along `mean_field.step`.
    """
    state = context

    def push(frame):
        nonlocal state
        moved = tangent_map(network, state, beta, gamma=gamma, epsilon=epsilon) @ frame
        state, _ = step(network, state, beta, gamma=gamma, epsilon=epsilon)
        return moved

    dimension = network.context * network.features
    return lyapunov_exponents(
        push,
        dimension=dimension,
        count=dimension if count is None else count,
        steps=steps,
        align=align,
    )
