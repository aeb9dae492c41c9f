"""What the mean field is made of and what it costs: the measurements of chapter 32.

Conventions of `dmft.tokens`: windows and paths run from old to new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network
from spinformer.dmft.state import Context, fitting
from spinformer.dmft.tokens import attention_of_window, window_of_context


def order_sensitivity(network: Network, *, window: np.ndarray, position: int) -> float:
    """Largest change of attention when the older tokens of a window (T, L) swap their places.

    All but the newest are put in reverse order; `position` is that of the newest. 0 without a
    position code. Raises ValueError for a window of another shape.

    >>> blind = Network.document().with_parameters(epsilon=0.0)
    >>> window = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    >>> order_sensitivity(blind, window=window, position=3) < 1e-12
    True
    """
    check_instance("network", network, Network)
    window = check_array("window", window, shape=(network.context, network.segments))
    shuffled = np.concatenate([window[:-1][::-1], window[-1:]])
    ordered = attention_of_window(network, window, position=position)
    return float(np.abs(attention_of_window(network, shuffled, position=position) - ordered).max())


def settled_start(
    network: Network, beta: float, context: Context, *, settle: int, look: int = 120
) -> tuple[np.ndarray, int]:
    """A well-defined point of an attractor to start paths from: window (T, L), its position.

    Every context of the batch is followed for `settle` tokens and then for `look` more. Each run
    has its own largest m^o_1; of the value reached most often (the most common attractor) the
    start is the window whose newest token has it. On a periodic attractor that is one point,
    the same on every machine, however the transients went. Raises ValueError for counts out of
    range.

    >>> still = Network.document().with_parameters(epsilon=0.0)
    >>> origin = Context(attention=np.full((4, 3), 0.5), position=0)
    >>> window, position = settled_start(still, 0.5, origin, settle=500, look=4)
    >>> window.shape, bool(np.abs(window).max() < 1e-6)  # only rest is left at this β
    ((4, 3), True)
    """
    fitting(network, context)
    settle = check_integer("settle", settle, low=0)
    look = check_integer("look", look, low=1)
    overlaps, _ = trajectory(network, context, beta=beta, steps=look, transient=settle)
    # Points that agree to seven digits are one point.
    heights = np.round(overlaps.reshape(-1, look, network.features)[..., 0], 7)
    peaks, times = np.unique(heights.max(axis=1), return_counts=True)
    best = peaks[::-1][np.argmax(times[::-1])]
    run, token = np.argwhere(heights == best)[0]
    attention = context.attention.reshape(-1, network.context, network.features)[run]
    single = Context(attention=attention, position=context.position)
    if settle + token > 0:
        # A run of n tokens ends in the context whose newest token is token n, not yet recorded.
        _, single = trajectory(
            network, single, beta=beta, steps=1, transient=settle + int(token) - 1
        )
    return window_of_context(network, single, beta=beta), single.position


def step_operations(network: Network, context: Context, *, beta: float) -> tuple[np.ndarray, int]:
    """One step of the mean field in plain loops, counted: the new attention (P,), operations.

    A sum, a product, a quotient, an exponential and a hyperbolic tangent count one each. What
    older tokens project onto is known from the steps that made them; β and the fractions of the
    bits are multiplied into the weights beforehand. Raises TypeError or ValueError for bad input.

    >>> start = Context(np.full((4, 3), 0.2), 3)
    >>> attention, count = step_operations(Network.document(), start, beta=1.2)
    >>> attention.shape, count < 500
    ((3,), True)
    """
    vectors, position = fitting(network, context)
    output = check_real("beta", beta, low=0.0) * network.semantic[OUTPUT].T  # (L, P)
    weights = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()
    count = 0

    def dot(left: Sequence[float], right: Sequence[float]) -> float:
        nonlocal count
        count += 2 * len(left) - 1
        return sum(a * b for a, b in zip(left, right, strict=True))

    projected = []
    for age, vector in reversed(list(enumerate(vectors))):
        count = 0  # what older tokens cost was paid before
        bits = []
        for row in output:
            bits.append(math.tanh(dot(row, vector)))
            count += 1
        code = place[(position - age) % network.positions]
        token = {}
        for role in (VALUE, QUERY, KEY):
            token[role] = [
                dot(row, bits) + p for row, p in zip(weights[role], code[role], strict=True)
            ]
            count += network.features
        projected.append(token)
    query = [network.gamma * q for q in projected[-1][QUERY]]
    count += network.features
    scores = [dot(token[KEY], query) for token in projected]
    powers = [math.exp(score - max(scores)) for score in scores]
    total = sum(powers)
    count += 3 * len(scores) - 1
    columns = zip(*(token[VALUE] for token in projected), strict=True)
    attention = [dot(powers, column) / total for column in columns]
    return np.array(attention), count + network.features
