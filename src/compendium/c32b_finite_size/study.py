"""How far a network of N bits is from its mean field: the measurements of chapter 32b.

Conventions of `dmft.tokens`: windows and paths run from old to new, overlaps are the semantic
output overlaps with their factor 1 − ε, distances between them Euclidean over the P features.

A text follows the *linear law* if its deviation from the limit is the answer of the limit's
tangent maps to the text's own noise (`dmft.finite_size.linear_fluctuations`), which is of order
N^{-1/2}. The *onset* is the size from which on the linear law misses at most a tenth of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.finite_size import (
    linear_fluctuations,
    linear_maps,
    mean_shift,
    noise_covariance,
    predicted_rms,
)
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import (
    TokenRuns,
    generate,
    mean_path,
    semantic_overlaps,
    window_of_context,
)

_GROUPS = 20  # of texts, left out one after another for the error of a ratio


@record
class Limit:
    """The mean-field path after a window, and what large networks do around it.

    path: (T + steps, L), the window first. maps: its tangent maps (`linear_maps`).
    sigma: (T + steps,) √N times the root-mean-square deviation of a single text.
    shift: (T + steps, P) N times the deviation of the average text.

    >>> fair = follow_limit(  # no coupling: every overlap is that of fair bits, and unbiased
    ...     Network.document(), 0.0, window=np.zeros((4, 3)), steps=1, position=3
    ... )
    >>> f"{fair.sigma[-1] / 0.98:.3f} {np.abs(fair.shift).max():.3f} {fair.crossing()[-1]:.3f}"
    '1.732 0.000 0.000'
    """

    network: Network
    beta: float
    position: int
    path: np.ndarray
    maps: np.ndarray
    sigma: np.ndarray
    shift: np.ndarray

    def crossing(self) -> np.ndarray:
        """(T + steps,) N at which the shift would be as large as the deviation of a single text.

        A size that theory alone names: far above it noise is small enough for a linear law.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.square(np.linalg.norm(self.shift, axis=1) / self.sigma)


def follow_limit(
    network: Network, beta: float, *, window: np.ndarray, steps: int, position: int
) -> Limit:
    """`Limit` of `steps` tokens after a window (T, L) that is drawn with N bits, too.

    `position` is that of the window's newest token. Raises ValueError for bad input.

    >>> found = follow_limit(
    ...     Network.document(), 1.2, window=np.zeros((4, 3)), steps=3, position=3
    ... )
    >>> found.sigma.shape, found.shift.shape
    ((7,), (7, 3))
    """
    path = mean_path(network, beta, window=window, steps=steps, position=position)
    first = position - network.context + 1
    maps = linear_maps(network, beta, path=path, position=first)
    shift = mean_shift(network, beta, path=path, maps=maps, position=first)
    return Limit(
        network=network,
        beta=beta,
        position=position,
        path=path,
        maps=maps,
        sigma=predicted_rms(network, noise_covariance(network, path, maps=maps)),
        shift=semantic_overlaps(network, shift),
    )


@record
class Deviation:
    """Deviation of R texts from the limit at every token of the path, T + steps of them.

    rms: (T + steps,) root mean square over the texts of |m − m_∞|.
    bias: (T + steps, P) mean over the texts of m − m_∞. The linear fluctuation is subtracted from
        every text at those tokens where that lowers the standard error, i.e. wherever noise is
        still small enough for a linear theory; its mean is zero exactly, whatever N.
    missed: (T + steps,) root mean square of what the linear law does not explain, over that of
        the linear law. |rms / linear rms − 1| is at most as large.
    """

    rms: Estimate
    bias: Estimate
    missed: Estimate


def deviation(runs: TokenRuns, *, limit: Limit) -> Deviation:
    """Compare at least forty texts with the limit they should follow.

    The fluctuation is subtracted with the regression coefficient 1, so the subtraction introduces
    no bias of its own: what is left resolves the 1/N bias with a thousand texts, where plain
    averaging would need of the order of N of them. The error of `missed` is the jackknife's over
    twenty groups of texts. Raises ValueError for fewer texts or another path.

    >>> limit = follow_limit(
    ...     Network.document(), 0.5, window=np.zeros((4, 3)), steps=3, position=3
    ... )
    >>> runs = sample(limit, 3 * 10**8, runs=50, seed=0)
    >>> found = deviation(runs, limit=limit)
    >>> bool(found.missed.value[-1] < 1e-3)
    True
    """
    check_instance("runs", runs, TokenRuns)
    check_instance("limit", limit, Limit)
    network = runs.network
    check_array("path of limit", limit.path, shape=runs.tokens.shape[1:])
    check_integer("number of runs", len(runs.tokens), low=2 * _GROUPS)
    raw = semantic_overlaps(network, runs.tokens - limit.path)
    linear = semantic_overlaps(network, linear_fluctuations(runs, maps=limit.maps))
    square = mean_estimate((raw**2).sum(axis=2))
    rms = np.sqrt(square.value)
    # d√x = dx / 2√x; without any deviation there is no error either.
    rms_error = np.divide(square.error, 2.0 * rms, out=np.zeros_like(rms), where=rms > 0.0)
    plain, less = mean_estimate(raw), mean_estimate(raw - linear)
    better = ((less.error**2).sum(axis=1) < (plain.error**2).sum(axis=1))[:, None]
    return Deviation(
        rms=Estimate(value=rms, error=rms_error, samples=square.samples),
        bias=Estimate(
            value=np.where(better, less.value, plain.value),
            error=np.where(better, less.error, plain.error),
            samples=plain.samples,
        ),
        missed=_root_ratio(((raw - linear) ** 2).sum(axis=2), (linear**2).sum(axis=2)),
    )


def _root_ratio(above: np.ndarray, below: np.ndarray) -> Estimate:
    """√(Σ above / Σ below) over the texts, axis 0, with the jackknife's error; 0 for 0 / 0."""

    def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
        return np.sqrt(np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0.0))

    parts = [
        ratio(above.sum(0) - above[i::_GROUPS].sum(0), below.sum(0) - below[i::_GROUPS].sum(0))
        for i in range(_GROUPS)
    ]
    return Estimate(
        value=ratio(above.sum(0), below.sum(0)),
        error=np.sqrt(_GROUPS - 1.0) * np.std(parts, axis=0),
        samples=len(above),
    )


def sample(limit: Limit, size: int, *, runs: int, seed: Seed) -> TokenRuns:
    """Texts of N = `size` bits a token that should follow `limit`; see `tokens.generate`.

    >>> limit = follow_limit(Network.document(), 1.2, window=np.zeros((4, 3)), steps=3, position=3)
    >>> sample(limit, 30, runs=5, seed=0).tokens.shape
    (5, 7, 3)
    """
    context = limit.network.context
    return generate(
        limit.network,
        size,
        beta=limit.beta,
        window=limit.path[:context],
        steps=len(limit.path) - context,
        runs=runs,
        seed=seed,
        position=limit.position,
    )


def onset_size(
    sizes: ArrayLike, *, missed: ArrayLike, errors: ArrayLike, threshold: float = 0.1
) -> Estimate:
    """ln N of the onset: where what the linear law misses falls below `threshold` for good.

    sizes: (n,), ascending. missed, errors: (n,) or (n, k), as in `Deviation.missed`; value and
    error of the estimate have shape () or (k,). Between the last size above the threshold and the
    next one the logarithm is interpolated, and the error of the crossing is that of `missed` over
    its slope. Minus infinity where no size is above, plus infinity where the largest one is: the
    onset is then only known to lie beyond (censored). Raises ValueError for bad input.

    >>> sizes = np.array([10.0, 100.0, 1000.0])
    >>> found = onset_size(sizes, missed=[0.4, 0.2, 0.05], errors=[0.0, 0.0, 0.0])
    >>> f"{np.exp(found.value):.1f}"
    '316.2'
    """
    sizes = check_array("sizes", sizes, ndim=1, low=0.0, open_low=True)
    if not (np.diff(sizes) > 0.0).all():
        raise ValueError(f"sizes must ascend, got {sizes}")
    missed = check_array("missed", missed, low=0.0)
    if missed.ndim not in (1, 2) or len(missed) != len(sizes):
        raise ValueError(f"missed must have shape ({len(sizes)}, ...), got {missed.shape}")
    errors = check_array("errors", errors, shape=missed.shape, low=0.0)
    threshold = check_real("threshold", threshold, low=0.0, open_low=True)
    found = [
        _crossing(np.log(sizes), column, error, threshold)
        for column, error in zip(
            missed.reshape(len(sizes), -1).T, errors.reshape(len(sizes), -1).T, strict=True
        )
    ]
    values, deviations = (
        np.array(part).reshape(missed.shape[1:]) for part in zip(*found, strict=True)
    )
    return Estimate(value=values[()], error=deviations[()])


def _crossing(
    logs: np.ndarray, missed: np.ndarray, errors: np.ndarray, threshold: float
) -> tuple[float, float]:
    above = np.flatnonzero(missed > threshold)
    if not above.size:
        return -np.inf, np.nan
    last = int(above[-1])
    if last == len(logs) - 1:
        return np.inf, np.nan
    low, high = max(missed[last + 1], 1e-300), missed[last]
    share = np.log(high / threshold) / np.log(high / low)
    steepness = np.log(high / low) / (logs[last + 1] - logs[last])
    # The two neighbours' relative errors, weighted as the interpolation weighs them.
    relative = np.hypot((1 - share) * errors[last] / high, share * errors[last + 1] / low)
    return float(logs[last] + share * (logs[last + 1] - logs[last])), float(relative / steepness)


def onsets(
    limits: list[Limit], *, tokens: np.ndarray, sizes: np.ndarray, runs: int, seed: Seed
) -> np.ndarray:
    """ln N of the onset after each of the starts, at given tokens: (starts, tokens).

    tokens: (k,) numbers of the tokens after the window, from 1. Infinite entries as in
    `onset_size`. Raises ValueError for bad input.

    >>> limit = follow_limit(Network.document(), 0.5, window=np.zeros((4, 3)), steps=3, position=3)
    >>> found = onsets(
    ...     [limit], tokens=np.array([3]), sizes=np.array([30, 3000, 300000]), runs=40, seed=0
    ... )
    >>> found.shape, bool(30 < np.exp(found[0, 0]) < 3e5)
    ((1, 1), True)
    """
    rng = numpy_generator(seed)
    rows = []
    for limit in limits:
        at = limit.network.context - 1 + tokens
        ladder = [
            deviation(sample(limit, int(size), runs=runs, seed=rng), limit=limit).missed
            for size in sizes
        ]
        missed = np.array([one.value[at] for one in ladder])
        errors = np.array([one.error[at] for one in ladder])
        rows.append(onset_size(sizes, missed=missed, errors=errors).value)
    return np.array(rows)


def settled_limits(
    network: Network, beta: float, *, count: int, settle: int, steps: int, seed: Seed
) -> list[Limit]:
    """Limits of `steps` tokens from `count` random contexts, `settle` tokens later.

    Short enough that rounding, which chaos amplifies, does not reach the numbers: they are the
    same on every machine.

    >>> len(settled_limits(Network.document(), 1.28, count=2, settle=20, steps=3, seed=0))
    2
    """
    contexts = random_contexts(network, seed, count=count)
    _, last = trajectory(network, contexts, beta=beta, steps=1, transient=settle)
    return [
        follow_limit(network, beta, window=window, steps=steps, position=last.position)
        for window in window_of_context(network, last, beta=beta)
    ]


def median_slope(x: ArrayLike, *, rows: ArrayLike, seed: Seed, draws: int = 400) -> Estimate:
    """Slope against x (n,) of the median over the `rows` (R, n), with its bootstrap error.

    Infinite entries are censored values: they count as larger (or smaller) than all others, and
    nothing is dropped. NaN where a median itself is infinite. Raises ValueError for bad input.

    >>> rows = [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, np.inf]]
    >>> f"{median_slope([0.0, 1.0, 2.0], rows=rows, seed=0).value:.3f}"
    '1.000'
    """
    x = check_array("x", x, ndim=1)
    rows = np.asarray(rows, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != len(x) or len(rows) < 2 or np.isnan(rows).any():
        raise ValueError(f"rows must be (R, {len(x)}) numbers, R at least 2, got {rows.shape}")
    rng = numpy_generator(seed)

    def slope(table: np.ndarray) -> float:
        # 'lower' never averages a number with infinity.
        middle = np.quantile(table, 0.5, axis=0, method="lower")
        return float(np.polyfit(x, middle, 1)[0]) if np.isfinite(middle).all() else np.nan

    again = [slope(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(draws)]
    return Estimate(value=slope(rows), error=float(np.std(again, ddof=1)), samples=len(rows))


def agreement_times(limit: Limit, *, sizes: np.ndarray, share: float) -> np.ndarray:
    """Tokens for which linear noise stays below `share` of the orbit's own width: (sizes,).

    The width is the root-mean-square distance of two independent points of the limit's path. The
    first token at which σ/√N exceeds it; the length of the path where none does.

    >>> limit = follow_limit(Network.document(), 1.27, window=np.ones((4, 3)), steps=9, position=3)
    >>> times = agreement_times(limit, sizes=np.array([30, 10**12]), share=0.1)
    >>> bool(times[0] < times[1])
    True
    """
    share = check_real("share", share, low=0.0, open_low=True)
    context = limit.network.context
    width = np.sqrt(2.0 * semantic_overlaps(limit.network, limit.path).var(axis=0).sum())
    beyond = limit.sigma[context:] > share * width * np.sqrt(sizes)[:, None]
    return np.where(beyond.any(axis=1), beyond.argmax(axis=1), beyond.shape[1])
