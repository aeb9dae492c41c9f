"""Averages over all texts of a network of few bits."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from spinformer.dmft.finite_size import token_states, transition_probabilities
from spinformer.dmft.network import Network


def exact_moments(
    network: Network, size: int, *, beta: float, window: np.ndarray, steps: int, position: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (T + steps, L) and covariance (T + steps, L, L) of every token over all texts.

    window: (T, L) means that the first T tokens are drawn from. `position` is that of the
    window's newest token.
    """
    states, counts = token_states(network, size), network.counts(size)
    # Chances depend on the position of the newest token alone: one table for each of them.
    tables: dict[int, np.ndarray] = {}
    means, covariances = [], []

    def note(weights: np.ndarray) -> None:
        mean = weights @ states
        means.append(mean)
        covariances.append((states - mean).T @ (weights[:, None] * (states - mean)))

    law = np.ones(())
    for token in window:
        chance = np.ones(1)
        for segment, bits in enumerate(counts):
            ups = binom.pmf(np.arange(bits + 1), bits, 0.5 * (1.0 + token[segment]))
            chance = np.outer(chance, ups).ravel()
        note(chance)
        law = law[..., None] * chance
    for step in range(steps):
        place = (position + step) % network.positions
        if place not in tables:
            tables[place] = transition_probabilities(network, size, beta=beta, position=place)
        law = np.einsum("i...,i...j->...j", law, tables[place])
        note(law.reshape(-1, len(states)).sum(axis=0))
    return np.array(means), np.array(covariances)
