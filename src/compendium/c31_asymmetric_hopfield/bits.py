"""Tokens drawn bit by bit from explicit weights: the plain form of `finite_size.generate`."""

from __future__ import annotations

import numpy as np

from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import OUTPUT, Network


def generate_bits_reference(
    weights: np.ndarray,
    network: Network,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    seed: Seed,
    position: int,
) -> np.ndarray:
    """One run from weights (4, P, N); int8 array (T + steps, N) [poclopez2024dynamical, Eq. (8)].

    Of `network` only the position weights, T, γ and ε are used. `window`, (T, N) of ±1, holds
    the initial tokens, `position` is that of the newest. Slow (N draws a token), simple, and
    independent of the segments.
    """
    rng = numpy_generator(seed)
    path = list(window)
    for step in range(steps):
        recent = np.array(path[-network.context :])
        overlaps = np.einsum("rai,ti->tra", weights, recent) / weights.shape[2]
        m = network.placed(overlaps, position + step + np.arange(1 - network.context, 1))
        mean = np.tanh(beta * (attend(m, gamma=network.gamma, newest=-1) @ weights[OUTPUT]))
        path.append(np.where(rng.random(len(mean)) < 0.5 * (1.0 + mean), 1.0, -1.0))
    return np.array(path, dtype=np.int8)
