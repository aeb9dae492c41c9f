"""Visible and hidden neurons with two time scales, of which attention is the fast limit.

[krotov2021large, Eqs. (1) and (2)], without external input, for patterns as rows x_i, (N, d):

    τ_v dv/dt = Xᵀ softmax(βh) − v ,    τ_h dh/dt = X v − h

with visible neurons v (d,) and one hidden neuron for each pattern, h (N,). Time is measured in τ_v,
so that only the ratio ρ = τ_h/τ_v is left.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.integrate import odeint

from bookmaker.tables import Rows, stored
from compendium.common.rows import numbered, parameter_product, share_rows
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import wilson_interval
from spinformer.hopfield.continuous import retrieve

Array = np.ndarray
APART = 0.05  # fixed points at a larger distance are different ones
STATIONARY = 1e-4  # the velocity that a fixed point may have


def softmax(scores: Array) -> Array:
    """Weights over the last axis; SciPy's checks take several times as long as these lines."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@record
class Times:
    """`points` times from 0 to `duration`, in units of τ_v, and the accuracy of states there."""

    duration: float
    points: int
    accuracy: float


def flow(
    patterns: Array,
    *,
    queries: Array,
    beta: float,
    ratio: float,
    times: Times,
    empty: bool = False,
) -> tuple[Array, Array]:
    """Both kinds of neurons from v = query and h = Xv, or 0 if `empty`; ρ = `ratio` > 0.

    v (S, T, d) and h (S, T, N) at T times.
    """
    width = patterns.shape[1]

    def velocity(state: Array) -> Array:
        v = state[:, :width]
        h = state[:, width:]
        drive = softmax(beta * h) @ patterns - v
        return np.concatenate([drive, (v @ patterns.T - h) / ratio], axis=1)

    hidden = queries @ patterns.T
    starts = np.concatenate([queries, 0.0 * hidden if empty else hidden], axis=1)
    states = _integrate(velocity, starts, times)
    return states[..., :width], states[..., width:]


def slow_flow(
    patterns: Array, *, queries: Array, beta: float, times: Times, ratio: float = 0.0
) -> Array:
    """The visible neurons alone: (1 + ρA) dv/dt = Xᵀ softmax(βXv) − v, A = β Cov_p(x).

    v as in `flow`. ρ = `ratio` = 0 is attention in continuous time; ρ > 0 the first correction.
    """

    def velocity(v: Array) -> Array:
        weights = softmax(beta * v @ patterns.T)
        mean = weights @ patterns
        if ratio == 0.0:
            return mean - v
        centred = patterns - mean[:, None]
        slope = beta * centred.swapaxes(-1, -2) @ (weights[..., None] * centred)
        drag = np.eye(patterns.shape[1]) + ratio * slope
        return np.asarray(np.linalg.solve(drag, (mean - v)[..., None])[..., 0])

    return _integrate(velocity, queries, times)


def _integrate(velocity: Callable[[Array], Array], starts: Array, times: Times) -> Array:
    """States (S, T, n); all S are one system whose Jacobian lies in a band."""
    count, width = starts.shape
    # LSODA measures an error by its mean square over the system: one query may have all of it.
    each = max(times.accuracy / np.sqrt(count), 1e-13)
    states, report = odeint(
        lambda _, state: velocity(state.reshape(count, width)).ravel(),
        starts.ravel(),
        np.linspace(0.0, times.duration, times.points),
        rtol=each,
        atol=each,
        ml=width - 1,
        mu=width - 1,
        mxstep=10**6,
        full_output=True,
        tfirst=True,
    )
    if report["message"] != "Integration successful.":
        raise RuntimeError(f"the integration failed: {report['message']}")
    return states.reshape(times.points, count, width).transpose(1, 0, 2)


def relaxation_rates(slopes: ArrayLike, *, ratio: float) -> Array:
    """Eigenvalues (..., 2) of the linearised flow at a fixed point, (1 + λ)(1 + ρλ) = a.

    `slopes` (...) are the eigenvalues a of the attention step, complex if values are no keys.
    """
    a = np.asarray(slopes, dtype=complex)
    both = 1.0 + ratio + np.sqrt((1.0 - ratio) ** 2 + 4.0 * ratio * a)
    # The slow one from their product (1 − a)/ρ: the difference of the roots would lose it.
    return np.stack([-both / (2.0 * ratio), -2.0 * (1.0 - a) / both], axis=-1)


def memories(count: int, *, queries: int, seed: Seed = 0) -> list[tuple[Array, Array]]:
    """`count` random memories: 24 normal patterns of width 8 and `queries` (n, 8) of each."""
    draw = numpy_generator(seed).standard_normal
    return [(draw((24, 8)), draw((queries, 8))) for _ in range(count)]


def distances(
    drawn: Sequence[tuple[Array, Array]], *, beta: float, ratios: Sequence[float]
) -> Array:
    """Largest distance of v from attention and from its first correction, (2, ratios).

    Over queries and 61 times up to 3 τ_v, a time in which few basins matter.
    """
    times = Times(duration=3.0, points=61, accuracy=1e-11)
    gaps = np.empty((len(drawn), 2, len(ratios)))
    for gap, (patterns, queries) in zip(gaps, drawn, strict=True):
        attention = slow_flow(patterns, queries=queries, beta=beta, times=times)
        for index, ratio in enumerate(ratios):
            full, _ = flow(patterns, queries=queries, beta=beta, ratio=ratio, times=times)
            better = slow_flow(patterns, queries=queries, beta=beta, ratio=ratio, times=times)
            gap[:, index] = [_length(full - other).max() for other in (attention, better)]
    return gaps.max(axis=0)


def ends(
    drawn: Sequence[tuple[Array, Array]], *, beta: float, ratio: float | None, empty: bool = False
) -> tuple[Array, Array]:
    """Where all queries end, (n, d), and whether they are stationary there, (n,) booleans.

    `ratio` ρ; 0 for attention in continuous time; None for its unit steps.
    """
    points = []
    stationary = []
    times = Times(duration=200.0 * max(1.0, ratio or 0.0), points=2, accuracy=1e-6)
    for patterns, queries in drawn:
        if ratio:
            visible, neurons = flow(
                patterns, queries=queries, beta=beta, ratio=ratio, times=times, empty=empty
            )
            end = visible[:, -1]
            hidden = neurons[:, -1]
        elif ratio is None:
            end = retrieve(
                torch.as_tensor(patterns),
                queries=torch.as_tensor(queries),
                beta=beta,
                tolerance=1e-8,
            ).states.numpy()
            hidden = end @ patterns.T
        else:
            end = slow_flow(patterns, queries=queries, beta=beta, times=times)[:, -1]
            hidden = end @ patterns.T
        visible_stays = _length(softmax(beta * hidden) @ patterns - end) <= STATIONARY
        points.append(end)
        stationary.append(visible_stays & (_length(end @ patterns.T - hidden) <= STATIONARY))
    return np.concatenate(points), np.concatenate(stationary)


def _length(vectors: Array) -> Array:
    return np.asarray(np.linalg.norm(vectors, axis=-1))


def elsewhere(one: tuple[Array, Array], *, other: tuple[Array, Array]) -> dict[str, float]:
    """How many of the queries that are stationary in both ends `one` and `other` are apart there.

    The count, of those tried, and Wilson's interval.
    """
    both = one[1] & other[1]
    apart = _length(one[0] - other[0]) > APART
    count = int((apart & both).sum())
    tried = int(both.sum())
    low, high = wilson_interval(count, trials=tried)
    return {"count": count, "tried": tried, "low": low, "high": high}


@stored(
    "ends",
    parameter_product(start=["in balance"], ratio=(0.03, 0.3, 1.0, 3.0, 30.0))
    + parameter_product(start=["empty"], ratio=(0.03, 0.3, 1.0, 3.0, 10.0))
    + parameter_product(start=["unit steps"], ratio=[0.0]),
    seconds=1.0,
    within={"count": 2, "tried": 2, "low": 0.02, "high": 0.02},
)
def ends_table(start: str, ratio: float) -> Rows:
    """Of 200 queries, how many end elsewhere than in attention in continuous time, β = 0.8."""
    drawn = memories(10, queries=20, seed=0)
    other = ends(drawn, beta=0.8, ratio=ratio or None, empty=start == "empty")
    return [elsewhere(ends(drawn, beta=0.8, ratio=0.0), other=other)]


_WITHIN = dict.fromkeys(("value", "low", "high"), 0.02)


@stored(
    "settings_A9b",
    numbered(
        2
        * parameter_product(
            start=("in balance", "empty"), ratio=(0.1, 1.0, 10.0), beta=(0.5, 0.8, 1.2)
        )
    ),
    seconds=2.0,
    within=_WITHIN,
)
def settings_A9b(data: int, start: str, ratio: float, beta: float) -> Rows:
    """One tenth minus the fraction of queries that end elsewhere than in attention."""
    drawn = memories(10, queries=20, seed=100 + data)
    reference = ends(drawn, beta=beta, ratio=0.0)
    result = elsewhere(reference, other=ends(drawn, beta=beta, ratio=ratio, empty=start == "empty"))
    return share_rows(int(result["count"]), trials=int(result["tried"]), bound=0.1, sign=-1)


@stored(
    "confirm_A9b",
    numbered(
        parameter_product(start=("in balance",), ratio=(0.03, 0.3, 3.0, 30.0), beta=(0.6, 1.0, 1.5))
        + parameter_product(start=("in balance",), ratio=(0.1, 10.0), beta=(0.8, 1.2)),
        first=201,
    ),
    seconds=2.0,
    within=_WITHIN,
)
def confirm_A9b(data: int, start: str, ratio: float, beta: float) -> Rows:
    """Fresh memories, other ratios and temperatures, in balance."""
    return settings_A9b.rows(data, start=start, ratio=ratio, beta=beta)
