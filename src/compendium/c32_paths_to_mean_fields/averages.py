"""The average over the bits of a token, written in ways that `Network.mean_overlaps` is not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from spinformer.core.checks import check_array
from spinformer.core.states import spin_states
from spinformer.dmft.network import OUTPUT, Network


def overlaps_explicit(weights: np.ndarray, *, attention: np.ndarray, beta: float) -> np.ndarray:
    """From explicit weights (4, P, N): a sum over bits, [poclopez2024dynamical, Eq. (13)]."""
    bits = np.tanh(beta * (attention @ weights[OUTPUT]))
    return np.einsum("rai,...i->...ra", weights, bits) / weights.shape[2]


def odd_correlations(network: Network) -> dict[tuple[int, ...], np.ndarray]:
    """C^α_{S,a} = ⟨Π_{b∈S} W^o_b · W^α_a⟩ over the bits, (4, P), for every odd set S of features.

    Keys are the sorted subsets of range(P), 2^{P−1} of them. ValueError for output features that
    are not signs.
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
    """From `odd_correlations` alone, for any P [poclopez2024dynamical, Eq. (29)].

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
