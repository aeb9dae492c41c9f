"""What a step of the mean field is made of: odd moments of the weights, and operations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from spinformer.core.checks import check_array
from spinformer.core.states import spin_states
from spinformer.dmft.mean_field import tokens
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Context, Network


def odd_correlations(network: Network) -> dict[tuple[int, ...], np.ndarray]:
    """C^α_{S,a} = ⟨Π_{b∈S} W^o_b · W^α_a⟩ over the bits, (4, P), for every odd set S of features.

    ValueError for output features that are not signs.
    """
    output = check_array("semantic[OUTPUT]", network.semantic[OUTPUT], values=(-1.0, 1.0))
    weighted = network.semantic * network.fractions
    return {
        subset: weighted @ output[list(subset)].prod(axis=0)
        for size in range(1, network.features + 1, 2)
        for subset in combinations(range(network.features), size)
    }


def overlaps_correlations(
    correlations: Mapping[tuple[int, ...], np.ndarray], attention: np.ndarray, *, beta: float
) -> np.ndarray:
    """Overlaps from `odd_correlations` alone, for any P [poclopez2024dynamical, Eq. (29)].

    2^{−P} Σ_{σ∈{±1}^P} [Σ_{S odd} (Π_{b∈S} σ_b) C^α_{S,a}] tanh(β Σ_b σ_b A_b); tanh is odd, so the
    half with σ_1 = 1 counts twice.
    """
    features = attention.shape[-1]
    rest = spin_states(features - 1)[::-1]
    signs = np.column_stack([np.ones(len(rest)), rest])
    parity = np.array([signs[:, list(subset)].prod(axis=1) for subset in correlations])
    moments = np.array(list(correlations.values()))
    readout = np.einsum("sra,sn->ran", moments, parity) / 2 ** (features - 1)
    return np.einsum("ran,...n->...ra", readout, np.tanh(beta * (attention @ signs.T)))


def step_operations(network: Network, context: Context, *, beta: float) -> tuple[np.ndarray, int]:
    """One step of the mean field in plain loops, counted: the new attention (P,), operations.

    What older tokens project onto is known from the steps that made them; β and the fractions of
    the bits are multiplied into the weights beforehand.
    """
    output = beta * network.semantic[OUTPUT].T  # (L, P)
    weights = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()[context.position]
    count = 0

    def dot(left: Sequence[float], right: Sequence[float]) -> float:
        nonlocal count
        count += 2 * len(left) - 1
        return sum(a * b for a, b in zip(left, right, strict=True))

    bits = [math.tanh(dot(row, context.attention[0])) for row in output]
    count += len(bits)
    known = tokens(network, context, beta)
    for role in (VALUE, QUERY, KEY):
        known[0, role] = [
            dot(row, bits) + p for row, p in zip(weights[role], place[role], strict=True)
        ]
    count += 3 * network.features
    query = network.gamma * known[0, QUERY]
    count += network.features
    scores = [dot(key, query) for key in known[:, KEY]]
    powers = [math.exp(score - max(scores)) for score in scores]
    total = sum(powers)
    count += 3 * len(scores) - 1
    attention = [dot(powers, column) / total for column in known[:, VALUE].T]
    return np.array(attention), count + network.features
