"""The average over the bits of a token, written in ways that `Network.mean_overlaps` is not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spinformer.core.states import spin_states
from spinformer.dmft.network import OUTPUT


def overlaps_explicit(weights: np.ndarray, *, attention: np.ndarray, beta: float) -> np.ndarray:
    """From explicit weights (4, P, N): a sum over bits, [poclopez2024dynamical, Eq. (13)]."""
    bits = np.tanh(beta * (attention @ weights[OUTPUT]))
    return np.einsum("rai,...i->...ra", weights, bits) / weights.shape[2]


def overlaps_correlations(
    correlations: Mapping[tuple[int, ...], np.ndarray], attention: np.ndarray, *, beta: float
) -> np.ndarray:
    """From `Network.correlations()` alone, for any P [poclopez2024dynamical, Eq. (29)].

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
