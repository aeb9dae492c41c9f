"""Sampled texts of finite networks beside their mean field, as two chapters measure them.

`path` (T + steps, L) is that of `mean_path`, its first T tokens drawn with N bits, too; `maps` are
its `linear_maps`. Overlaps are the semantic output overlaps with their factor 1 − ε.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.corrections import FiniteSizeCorrections, linear_fluctuations
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.finite_size import generate, semantic_overlaps, window_of_context
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network

_GROUPS = 20  # of texts, left out one after another for the error of a ratio


class Deviation(NamedTuple):
    """Deviation of texts from the limit at every token of the path.

    rms: (T + steps,) root mean square over the texts of |m − m_∞|.
    bias: (T + steps, P) mean over the texts of m − m_∞. The linear fluctuation, whose mean is zero
        exactly, is subtracted at those tokens where that lowers the standard error.
    missed: (T + steps,) root mean square of what the linear law does not explain, over its own.
    """

    rms: Estimate
    bias: Estimate
    missed: Estimate


def deviation(limit: FiniteSizeCorrections, size: int, *, texts: int, seed: Seed) -> Deviation:
    """Compare at least forty texts of N = `size` bits a token with the limit they should follow."""
    network = limit.network
    context = limit.network.context
    runs = generate(
        network,
        size,
        beta=limit.beta,
        window=limit.path[:context],
        steps=len(limit.path) - context,
        runs=texts,
        seed=seed,
        position=limit.position,
    )
    raw = semantic_overlaps(network, runs.tokens - limit.path)
    linear = semantic_overlaps(network, linear_fluctuations(runs, maps=limit.maps))
    square = mean_estimate((raw**2).sum(axis=2))
    rms = np.sqrt(square.value)
    # d√x = dx / 2√x; without any deviation there is no error either.
    rms_error = np.divide(square.error, 2.0 * rms, out=np.zeros_like(rms), where=rms > 0.0)
    plain = mean_estimate(raw)
    less = mean_estimate(raw - linear)
    better = ((less.error**2).sum(axis=1) < (plain.error**2).sum(axis=1))[:, None]
    value, error = np.where(better, [less.value, less.error], [plain.value, plain.error])
    return Deviation(
        rms=Estimate(value=rms, error=rms_error),
        bias=Estimate(value=value, error=error),
        missed=_root_ratio(((raw - linear) ** 2).sum(axis=2), (linear**2).sum(axis=2)),
    )


def _root_ratio(above: np.ndarray, below: np.ndarray) -> Estimate:
    """√(Σ above / Σ below) over the texts, axis 0, with the jackknife's error; 0 for 0 / 0."""

    def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
        return np.sqrt(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0.0))

    whole = np.array([above.sum(0), below.sum(0)])
    groups = (range(i, len(above), _GROUPS) for i in range(_GROUPS))
    parts = [ratio(*(whole - [above[own].sum(0), below[own].sum(0)])) for own in groups]
    return Estimate(value=ratio(*whole), error=np.sqrt(_GROUPS - 1.0) * np.std(parts, axis=0))


def median_slope(x: np.ndarray, *, rows: ArrayLike, seed: Seed) -> Estimate:
    """Slope against x (n,) of the median over the `rows` (R, n), with its bootstrap error.

    Infinite entries are censored: larger (or smaller) than all others. NaN for an infinite median.
    """
    table = np.asarray(rows, dtype=float)
    rng = numpy_generator(seed)

    def slope(drawn: np.ndarray) -> float:
        # 'lower' never averages a number with infinity.
        middle = np.quantile(drawn, 0.5, axis=0, method="lower")
        return float(np.polyfit(x, middle, 1)[0]) if np.isfinite(middle).all() else np.nan

    again = [slope(table[rng.integers(len(table), size=len(table))]) for _ in range(400)]
    return Estimate(value=slope(table), error=float(np.std(again, ddof=1)), samples=len(table))


def settled_ensemble(start: Seed, *, beta: float, count: int, settle: int) -> Ensemble:
    """Random contexts (count,) of the published network, `settle` tokens on."""
    network = Network.poclopez2024()
    contexts = random_contexts(network, start, count=count)
    ensemble = Ensemble(network, contexts, beta=beta, threads=1)
    ensemble.advance(settle)
    return ensemble


def spread_windows(beta: float, *, count: int, settle: int, seed: Seed) -> tuple[np.ndarray, int]:
    """Windows (count, T, L) of random contexts after `settle` tokens, and their position."""
    state = settled_ensemble(seed, beta=beta, count=count, settle=settle).state()
    return window_of_context(Network.poclopez2024(), state, beta=beta), state.position


def limit_exponents(beta: float, *, count: int = 64, transient: int = 30_000) -> np.ndarray:
    """Leading exponents (count,) of the limit from random contexts, over 20,000 tokens."""
    network = Network.poclopez2024()
    starts = random_contexts(network, 0, count=count)
    spectrum = lyapunov_spectrum(
        network, starts, beta=beta, transient=transient, steps=20_000, count=1, threads=1
    )
    return np.asarray(spectrum.exponents.value[:, 0])


def whole_bits(bits: float) -> int:
    """The nearest number of bits that the three published segments share evenly."""
    return 3 * round(bits / 3)
