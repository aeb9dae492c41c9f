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
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from compendium.c32b_finite_size.corrections import next_means
from compendium.c32b_finite_size.study import Limit

_HALF = 512  # of the nodes, a power of two


def gaussian_closure(limit: Limit, size: int) -> np.ndarray:
    """Means (T + steps, L) of the tokens of N = `size` bits, along the path of a limit."""
    network, window = limit.network, limit.path[: limit.network.context]
    segments, bits = network.segments, network.counts(size)
    normal = _nodes(window.size)
    mean, covariance = window.ravel(), np.diag(((1.0 - window**2) / bits).ravel())
    means = list(window)
    for step in range(len(limit.path) - len(window)):
        level, turn = np.linalg.eigh(covariance)
        away = normal @ (turn * np.sqrt(np.maximum(level, 0.0))).T
        windows, place = (mean + away).reshape(-1, *window.shape), limit.position + step
        answer = next_means(network, windows, beta=limit.beta, position=place)
        newest = answer.mean(axis=0)
        spread, fresh = answer - newest, np.diag((1.0 - answer**2).mean(axis=0) / bits)
        own, across = (
            spread.T @ spread / len(away) + fresh,
            (spread.T @ away / len(away))[:, segments:],
        )
        kept = covariance[segments:, segments:]
        covariance = np.block([[kept, across.T], [across, own]])
        mean = np.append(mean[segments:], newest)
        means.append(newest)
    return np.array(means)


@cache
def _nodes(dimension: int) -> np.ndarray:
    """Sobol points made normal and their mirror images, mean zero and covariance one exactly."""
    # Moved by half a cell: the first point would be at minus infinity. No random numbers.
    half = ndtri(qmc.Sobol(dimension, scramble=False).random(_HALF) + 0.5 / _HALF)
    points = np.concatenate([half, -half])
    level, turn = np.linalg.eigh(points.T @ points / len(points))
    return points @ (turn / np.sqrt(level)) @ turn.T
