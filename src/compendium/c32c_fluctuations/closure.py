"""Mean field of a finite network: texts taken as Gaussian, their mean and covariance followed.

The mean field puts the mean window into attention. In a network of N bits the window scatters,
and attention averages over the scatter. Take the window w (T tokens of L segment means) as
Gaussian with mean μ and covariance C. The next token x has the conditional mean f(w) and, in a
segment of n bits, the conditional variance (1 − f²)/n. Its exact moments under this assumption,

    ⟨x⟩ = ⟨f⟩,   Cov(x, w) = Cov(f, w),   Cov(x, x) = Cov(f, f) + ⟨1 − f²⟩/n ,

make the next Gaussian, ⟨·⟩ the average over N(μ, C): the mean field of [aguilera2021unifying],
whose Gaussian fields stand in front of a tanh, for a nonlinearity with a softmax in it. For
N → ∞ the covariance shrinks and the plain mean field is left; to order 1/N the mean is that of
`c32b_finite_size.corrections.mean_shift`, since the nodes below have exact second moments.

The average is taken over fixed nodes: Sobol points made normal, with their mirror images, scaled to
covariance one exactly. They are the same for every call.

Conventions of `tokens`: windows run from old to new.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtri, softmax
from scipy.stats import qmc

from compendium.c32_paths_to_mean_fields.functional import propagate
from spinformer.dmft.finite_size import semantic_overlaps, token_states
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


def gaussian_closure(
    network: Network, size: int, *, beta: float, window: np.ndarray, steps: int, position: int,
    nodes: int = 512,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Mean (T + steps, L) and covariance (T + steps, L, L) of the tokens of N = `size` bits.

    window: (T, L) means that the first T tokens are drawn from. `position` is that of the
    window's newest token. nodes: half the number of nodes, a power of two.
    """
    context, segments = network.context, network.segments
    bits = network.counts(size)
    normal = _nodes(context * segments, nodes)
    mean = window.ravel()
    covariance = np.diag(((1.0 - window**2) / bits).ravel())
    means = list(window)
    covariances = [np.diag((1.0 - token**2) / bits) for token in window]
    for step in range(steps):
        level, turn = np.linalg.eigh(covariance)
        away = normal @ (turn * np.sqrt(np.maximum(level, 0.0))).T
        windows = (mean + away).reshape(-1, context, segments)
        answer = next_means(network, windows, beta=beta, position=position + step)
        newest = answer.mean(axis=0)
        spread = answer - newest
        across = spread.T @ away / len(away)
        own = spread.T @ spread / len(away) + np.diag((1.0 - answer**2).mean(axis=0) / bits)
        mean = np.concatenate([mean[segments:], newest])
        kept = covariance[segments:, segments:]
        covariance = np.block([[kept, across[:, segments:].T], [across[:, segments:], own]])
        means.append(newest)
        covariances.append(own)
    return np.array(means), np.array(covariances)


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


def next_means(network: Network, windows: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Mean tokens (..., L) after windows (..., T, L) of any real numbers.

    `tokens.attention_of_window` and `tokens.window_means` in one, for averages over Gaussian
    windows, whose tails leave [−1, 1].
    """
    places = (position + np.arange(1 - network.context, 1)) % network.positions
    place = network.epsilon * network.position_overlaps()[places]
    value, key = (
        semantic_overlaps(network, windows, role=role) + place[:, role] for role in (VALUE, KEY)
    )
    query = semantic_overlaps(network, windows[..., -1, :], role=QUERY) + place[-1, QUERY]
    weight = softmax(network.gamma * np.einsum("...tb,...b->...t", key, query), axis=-1)
    attention = np.einsum("...t,...ta->...a", weight, value)
    return np.tanh(beta * (attention @ network.semantic[OUTPUT]))


@cache
def _nodes(dimension: int, count: int) -> np.ndarray:
    """2 · count points (…, dimension) with mean zero and covariance one, both exact."""
    # Moved by half a cell: the first point would be at minus infinity. No random numbers.
    half = ndtri(qmc.Sobol(dimension, scramble=False).random(count) + 0.5 / count)
    points = np.concatenate([half, -half])
    level, turn = np.linalg.eigh(points.T @ points / len(points))
    points = points @ (turn / np.sqrt(level)) @ turn.T
    points.setflags(write=False)
    return points
