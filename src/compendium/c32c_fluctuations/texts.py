"""Averages over all texts of a network of few bits."""

from __future__ import annotations

import numpy as np

from compendium.c32_paths_to_mean_fields.functional import propagate
from spinformer.dmft.finite_size import token_states
from spinformer.dmft.network import Network


def exact_moments(
    network: Network, size: int, *, beta: float, window: np.ndarray, steps: int, position: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (T + steps, L) and covariance (T + steps, L, L) of every token over all texts.

    window: (T, L) means that the first T tokens are drawn from. `position` is that of the
    window's newest token.
    """
    laws = propagate(
        network, size, beta=beta, window=window, steps=steps, position=position, draw_window=True
    )
    states = token_states(network, size)
    means = laws @ states
    gaps = states - means[:, None]
    return means, np.einsum("ts,tsl,tsm->tlm", laws, gaps, gaps)
