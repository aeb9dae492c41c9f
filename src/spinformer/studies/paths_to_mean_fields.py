"""How well a network of N bits follows its mean field: the measurements of chapter 32.

Conventions of `dmft.tokens`: windows and paths run from old to new, overlaps are the semantic
output overlaps with their factor 1 − ε, distances between them Euclidean over the P features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_instance, check_integer
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.finite_size import linear_fluctuations
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context, fitting
from spinformer.dmft.tokens import (
    TokenRuns,
    attention_of_window,
    semantic_overlaps,
    window_of_context,
)


@record
class Deviation:
    """Deviation of R runs from the mean field at every token of the path, T + steps of them.

    rms: (T + steps,) root mean square over the runs of |m − m_∞|.
    bias: (T + steps, P) mean over the runs of m − m_∞. The linear fluctuation is subtracted from
        every run at those tokens where that lowers the standard error, i.e. wherever noise is
        still small enough for a linear theory.
    plain: the same mean without any subtraction, for comparison.
    """

    rms: Estimate
    bias: Estimate
    plain: Estimate


def deviation(runs: TokenRuns, *, path: np.ndarray, maps: np.ndarray) -> Deviation:
    """Compare at least two runs with the mean-field path (T + steps, L) they should follow.

    maps: from `finite_size.linear_maps` along `path`. The fluctuation is subtracted with the
    regression coefficient 1, so the subtraction introduces no bias of its own: what is left
    resolves the 1/N bias with a thousand runs, where plain averaging would need of the order of
    N of them. Raises ValueError for a single run or shapes that do not fit.

    >>> from spinformer.dmft.finite_size import linear_maps
    >>> from spinformer.dmft.tokens import generate, mean_path
    >>> machine = Network.document()
    >>> window = np.zeros((4, 3))
    >>> path = mean_path(machine, 0.5, window=window, steps=3)
    >>> maps = linear_maps(machine, 0.5, path=path, position=0)
    >>> runs = generate(machine, 3 * 10**8, beta=0.5, window=window, steps=3, runs=50, seed=0)
    >>> found = deviation(runs, path=path, maps=maps)
    >>> bool(found.bias.error[-1].max() < 0.01 * found.plain.error[-1].max())
    True
    """
    check_instance("runs", runs, TokenRuns)
    network = runs.network
    path = check_array("path", path, shape=runs.tokens.shape[1:])
    check_integer("number of runs", len(runs.tokens), low=2)
    raw = semantic_overlaps(network, runs.tokens - path)
    corrected = raw - semantic_overlaps(network, linear_fluctuations(runs, maps=maps))
    square = mean_estimate((raw**2).sum(axis=2))
    rms = np.sqrt(square.value)
    # d√x = dx / 2√x; without any deviation there is no error either.
    rms_error = np.divide(square.error, 2.0 * rms, out=np.zeros_like(rms), where=rms > 0.0)
    plain, less = mean_estimate(raw), mean_estimate(corrected)
    better = ((less.error**2).sum(axis=1) < (plain.error**2).sum(axis=1))[:, None]
    return Deviation(
        rms=Estimate(value=rms, error=rms_error, samples=square.samples),
        bias=Estimate(
            value=np.where(better, less.value, plain.value),
            error=np.where(better, less.error, plain.error),
            samples=plain.samples,
        ),
        plain=plain,
    )


def onset_size(
    sizes: ArrayLike, *, measured: ArrayLike, predicted: ArrayLike, tolerance: ArrayLike
) -> float:
    """Smallest N from which on every measured value is within `tolerance` of the prediction.

    sizes, measured, predicted: (n,), sizes ascending; a prediction of zero is met by zero alone.
    tolerance: relative, one for all sizes or one each. NaN where even the largest size misses
    it. Raises ValueError otherwise.

    >>> onset_size([10, 100, 1000], measured=[5.0, 1.02, 1.0], predicted=np.ones(3), tolerance=0.1)
    100.0
    """
    sizes = check_array("sizes", sizes, ndim=1)
    if not (np.diff(sizes) > 0.0).all():
        raise ValueError(f"sizes must ascend, got {sizes}")
    measured = check_array("measured", measured, shape=sizes.shape)
    predicted = check_array("predicted", predicted, shape=sizes.shape)
    tolerance = check_array("tolerance", tolerance, low=0.0)
    if tolerance.shape not in ((), sizes.shape):
        raise ValueError(
            f"tolerance must be one number or have shape {sizes.shape}, got {tolerance.shape}"
        )
    without = np.where(measured == 0.0, 1.0, np.inf)
    ratio = np.divide(measured, predicted, out=without, where=predicted != 0.0)
    good = np.abs(ratio - 1.0) <= tolerance
    bad = np.flatnonzero(~good)
    start = 0 if bad.size == 0 else int(bad[-1]) + 1
    return float(sizes[start]) if start < len(sizes) else float("nan")


def mean_slope(x: ArrayLike, *, rows: ArrayLike) -> Estimate:
    """Slope against x (n,) of each of the `rows` (R, n), over its finite entries; their mean.

    A row with fewer than two finite entries is left out; the error is the scatter of the slopes
    of the others, `samples` their number; both are NaN if fewer than two are left. Raises
    ValueError for rows of another length.

    >>> print(mean_slope([0.0, 1.0, 2.0], rows=[[0.0, 1.0, 2.0], [0.0, np.nan, 6.0]]))
    2.0(10)
    """
    x = check_array("x", x, ndim=1)
    rows = np.asarray(rows, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != len(x):
        raise ValueError(f"rows must have shape (R, {len(x)}), got {rows.shape}")
    each = []
    for row in rows:
        good = np.isfinite(row)
        if good.sum() > 1:
            each.append(np.polyfit(x[good], row[good], 1)[0])
    if len(each) < 2:
        return Estimate(value=np.nan, error=np.nan, samples=len(each))
    return mean_estimate(each)


def order_sensitivity(network: Network, *, window: np.ndarray, position: int) -> float:
    """Largest change of attention when the older tokens of a window (T, L) swap their places.

    All but the newest are put in reverse order; `position` is that of the newest. 0 without a
    position code. Raises ValueError for a window of another shape.

    >>> blind = Network.document().with_parameters(epsilon=0.0)
    >>> window = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    >>> order_sensitivity(blind, window=window, position=3) < 1e-12
    True
    """
    check_instance("network", network, Network)
    window = check_array("window", window, shape=(network.context, network.segments))
    shuffled = np.concatenate([window[:-1][::-1], window[-1:]])
    ordered = attention_of_window(network, window, position=position)
    return float(np.abs(attention_of_window(network, shuffled, position=position) - ordered).max())


def settled_start(
    network: Network, beta: float, context: Context, *, settle: int, look: int = 120
) -> tuple[np.ndarray, int]:
    """A well-defined point of an attractor to start paths from: window (T, L), its position.

    Every context of the batch is followed for `settle` tokens and then for `look` more. Each run
    has its own largest m^o_1; of the value reached most often (the most common attractor) the
    start is the window whose newest token has it. On a periodic attractor that is one point,
    the same on every machine, however the transients went. Raises ValueError for counts out of
    range.

    >>> still = Network.document().with_parameters(epsilon=0.0)
    >>> origin = Context(attention=np.full((4, 3), 0.5), position=0)
    >>> window, position = settled_start(still, 0.5, origin, settle=500, look=4)
    >>> window.shape, bool(np.abs(window).max() < 1e-6)  # only rest is left at this β
    ((4, 3), True)
    """
    fitting(network, context)
    settle = check_integer("settle", settle, low=0)
    look = check_integer("look", look, low=1)
    overlaps, _ = trajectory(network, context, beta=beta, steps=look, transient=settle)
    # Points that agree to seven digits are one point.
    heights = np.round(overlaps.reshape(-1, look, network.features)[..., 0], 7)
    peaks, times = np.unique(heights.max(axis=1), return_counts=True)
    best = peaks[::-1][np.argmax(times[::-1])]
    run, token = np.argwhere(heights == best)[0]
    attention = context.attention.reshape(-1, network.context, network.features)[run]
    single = Context(attention=attention, position=context.position)
    if settle + token > 0:
        # A run of n tokens ends in the context whose newest token is token n, not yet recorded.
        _, single = trajectory(
            network, single, beta=beta, steps=1, transient=settle + int(token) - 1
        )
    return window_of_context(network, single, beta=beta), single.position
