"""Two texts that share their random numbers: Lyapunov exponents of a finite network.

A network of N bits is a random map: uniform numbers u and the window make the next token, in each
segment of n bits the u-quantile of a binomial distribution. Two texts with one u and different
windows see the same noise, and how fast they part is the Lyapunov exponent of the random map,
which tends to that of the mean field as N → ∞ (`lyapunov.lyapunov_spectrum`). The quantile jumps
in steps of 2/n, so that the distance of the two must stay far above it: it is set back to a tenth
of N^{-1/2}, the size of the noise, after every few tokens. Texts nearer than a step *merge*, and
stay together for ever.

Conventions of `tokens`.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from compendium.c32c_fluctuations.closure import next_means
from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.network import Network

# Tokens between two times that the distance is set back: once around the clock of the document.
_EVERY = 4


@record
class Growth:
    """growth: nats per token, mean and error over the pairs (NaN of a single one; −∞ if none ever
    parted); merged: share of the stretches of four tokens at whose end the two texts were equal,
    which are left out of the mean."""

    growth: Estimate
    merged: float


def coupled_growth(
    network: Network,
    size: int,
    *,
    beta: float,
    windows: np.ndarray,
    position: int,
    steps: int,
    transient: int,
    seed: Seed,
    distance: float = 0.1,
) -> Growth:
    """Growth of the distance of pairs of texts of N = `size` bits that share their noise.

    windows: (R, T, L), where the R pairs begin; the first copy is drawn from there on with noise,
    the second begins at `distance`/√N in a random direction. `transient` tokens turn it into its
    own direction, `steps` are averaged over. Raises ValueError for bad input.

    >>> machine = Network.document().with_parameters(gamma=0.0, epsilon=0.0)
    >>> still = np.zeros((2, 4, 3))
    >>> found = coupled_growth(machine, 3 * 10**8, beta=0.5, windows=still, position=3, steps=40,
    ...                        transient=40, seed=0)  # no attractor but rest
    >>> bool(found.growth.value < -0.1)
    True
    """
    check_instance("network", network, Network)
    context, segments = network.context, network.segments
    counts = network.counts(size)
    beta = check_real("beta", beta, low=0.0)
    first = check_array("windows", windows, shape=(None, context, segments), low=-1.0, high=1.0)
    steps = check_integer("steps", steps, low=_EVERY)
    transient = check_integer("transient", transient, low=0)
    position = check_integer("position", position)
    reach = check_real("distance", distance, low=0.0, open_low=True) / np.sqrt(size)
    rng = numpy_generator(seed)
    away = rng.standard_normal(first.shape)
    logs = []
    for begin in range(0, transient + steps, _EVERY):
        length = np.sqrt((away**2).sum(axis=(1, 2), keepdims=True))
        # Merged pairs begin anew in a direction of their own.
        fresh = rng.standard_normal(first.shape)
        fresh /= np.sqrt((fresh**2).sum(axis=(1, 2), keepdims=True))
        away = np.where(length > 0.0, away / np.where(length > 0.0, length, 1.0), fresh)
        second = first + reach * away
        for step in range(begin, begin + _EVERY):
            uniform = rng.random((len(first), segments))
            first, second = (
                np.concatenate(
                    [
                        window[:, 1:],
                        _quantile(
                            next_means(network, window, beta=beta, position=position + step),
                            uniform,
                            counts,
                        )[:, None],
                    ],
                    axis=1,
                )
                for window in (first, second)
            )
        away = second - first
        if begin >= transient:
            with np.errstate(divide="ignore"):
                logs.append(np.log(np.sqrt((away**2).sum(axis=(1, 2))) / reach) / _EVERY)
    table = np.array(logs)
    whole = np.isfinite(table)
    parted = whole.sum(axis=0)
    means = np.where(whole, table, 0.0).sum(axis=0)[parted > 0] / parted[parted > 0]
    growth = Estimate(value=-np.inf, error=0.0)
    if len(means):
        one = Estimate(value=means[0], error=np.nan, samples=1)
        growth = mean_estimate(means) if len(means) > 1 else one
    return Growth(growth=growth, merged=float(1.0 - whole.mean()))


def _quantile(means: np.ndarray, uniform: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Segment means (R, L) of which the shares `uniform` of all draws are not larger."""
    return np.asarray(2.0 * binom.ppf(uniform, counts, 0.5 * (1.0 + means)) / counts - 1.0)
