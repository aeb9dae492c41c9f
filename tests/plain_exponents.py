"""Lyapunov exponents of a network in plain NumPy, which the compiled ones are held against."""

from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.dmft.lyapunov import tangent_map
from spinformer.dmft.mean_field import step


def lyapunov_spectrum_reference(
    network, context, beta, *, steps, count=None, align=100, gamma=None, epsilon=None
):
    """The `count` largest exponents (None: all T·P) of one system, (count,), in plain NumPy.

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
