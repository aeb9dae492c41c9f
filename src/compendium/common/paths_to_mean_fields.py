"""What the mean field is made of and what it costs: the measurements of chapter 32."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spinformer.dmft.finite_size import attention_of_window
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Context, Network


def order_sensitivity(network: Network, *, window: np.ndarray, position: int) -> float:
    """Largest change of attention when the older tokens of a window (T, L) swap their places.

    All but the newest are put in reverse order; `position` is that of the newest. 0 without a
    position code.
    """
    shuffled = np.concatenate([window[:-1][::-1], window[-1:]])
    both = attention_of_window(network, np.stack([window, shuffled]), position=position)
    return float(np.abs(both[1] - both[0]).max())


def step_operations(network: Network, context: Context, *, beta: float) -> tuple[np.ndarray, int]:
    """One step of the mean field in plain loops, counted: the new attention (P,), operations.

    A sum, a product, a quotient, an exponential and a hyperbolic tangent count one each. What
    older tokens project onto is known from the steps that made them; β and the fractions of the
    bits are multiplied into the weights beforehand.
    """
    output = beta * network.semantic[OUTPUT].T  # (L, P)
    weights = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()
    count = 0

    def dot(left: Sequence[float], right: Sequence[float]) -> float:
        nonlocal count
        count += 2 * len(left) - 1
        return sum(a * b for a, b in zip(left, right, strict=True))

    projected = []
    for age, vector in reversed(list(enumerate(context.attention))):
        count = 0  # what older tokens cost was paid before
        bits = [math.tanh(dot(row, vector)) for row in output]
        count += len(bits)
        code = place[(context.position - age) % network.positions]
        token = {}
        for role in (VALUE, QUERY, KEY):
            pairs = zip(weights[role], code[role], strict=True)
            token[role] = [dot(row, bits) + p for row, p in pairs]
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
