"""Lyapunov exponents by their definition: step by step, orthonormalized by Householder's QR."""

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.dmft.lyapunov import returned


def tangent_map(network, context, beta, **parameters):
    """∂(next window)/∂(window), (T·P, T·P), which tests hold to autograd and to differences."""
    return returned(network, context, beta=beta, steps=1, **parameters)[1]


def lyapunov_spectrum_reference(network, context, beta, *, steps, count=None, align=100):
    """The `count` largest exponents (None: all T·P) of one system, (count,)."""
    state, dimension = context, network.context * network.features

    def push(frame):
        nonlocal state
        state, tangent = returned(network, state, beta=beta, steps=1)
        return tangent @ frame

    return lyapunov_exponents(
        push, dimension=dimension, count=count or dimension, steps=steps, align=align
    )
