"""The average over the bits of a token, written in three ways."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from spinformer.core.checks import check_array
from spinformer.core.states import spin_states
from spinformer.dmft.network import OUTPUT, Network


def overlaps_explicit(
    weights: np.ndarray, *, attention: np.ndarray, beta: float | np.ndarray
) -> np.ndarray:
    """From explicit weights (4, P, N): a sum over bits, [poclopez2024dynamical, Eq. (13)]."""
    weights = check_array("weights", weights, shape=(4, None, None))
    attention, beta = _average_of(weights.shape[1], attention, beta)
    field = beta[..., None] * (attention @ weights[OUTPUT])
    return np.einsum("rai,...i->...ra", weights, np.tanh(field)) / weights.shape[2]


def overlaps_segments(
    network: Network, attention: np.ndarray, *, beta: float | np.ndarray
) -> np.ndarray:
    """From a network: a sum over segments weighted by their fractions."""
    attention, beta = _average_of(network.features, attention, beta)
    return network.mean_overlaps(attention, beta=beta)


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
    correlations: Mapping[tuple[int, ...], np.ndarray],
    attention: np.ndarray,
    *,
    beta: float | np.ndarray,
) -> np.ndarray:
    """From `odd_correlations` alone, for any P [poclopez2024dynamical, Eq. (29)].

    2^{−P} Σ_{σ∈{±1}^P} [Σ_{S odd} (Π_{b∈S} σ_b) C^α_{S,a}] tanh(β Σ_b σ_b A_b); tanh is odd, so the
    half with σ_1 = 1 counts twice.
    """
    sizes = {subset[0] for subset in correlations if len(subset) == 1}
    features = len(sizes)
    if sizes != set(range(features)) or len(correlations) != 2 ** (features - 1):
        raise ValueError(
            "correlations must hold every odd subset of the features, "
            f"got {len(correlations)} subsets over features {sorted(sizes)}"
        )
    attention, beta = _average_of(features, attention, beta)
    rest = spin_states(features - 1)[::-1]
    signs = np.column_stack([np.ones(len(rest)), rest])
    parity = np.array([signs[:, list(subset)].prod(axis=1) for subset in correlations])
    moments = np.array([check_array(f"correlations[{s}]", c, shape=(4, features))
                        for s, c in correlations.items()])  # fmt: skip
    readout = np.einsum("sra,sn->ran", moments, parity) / 2 ** (features - 1)
    hidden = np.tanh(beta[..., None] * (attention @ signs.T))
    return np.einsum("ran,...n->...ra", readout, hidden)


def _average_of(
    features: int, attention: np.ndarray, beta: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    attention = check_array("attention", attention)
    if attention.shape[-1:] != (features,):
        raise ValueError(
            f"attention must have a last axis of {features} features, got shape {attention.shape}"
        )
    return attention, check_array("beta", beta, low=0.0)
