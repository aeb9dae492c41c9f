"""Random continuous memories: when the others outweigh a pattern, what retrieval keeps, basins.

Patterns are rows of d components and mean square 1 (`random_energy.ENSEMBLES`). Single
precision, in chunks: what is counted is decided by differences of scores of order one. Errors
are standard errors over independent memories. From finite d to the limit leads a straight line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate

_CHUNK = 2**14
QUERIES = 100
# At rest where no component of the overlaps moves more in a step; kept above this overlap.
_REST = 1e-5
KEPT = 0.5


@record
class Kept:
    """What is left of stored patterns: mean overlap, and share with an overlap above ½."""

    overlap: Estimate
    share: Estimate


def draw_patterns(
    count: int, *, dim: int, ensemble: str = "spherical", seed: Seed = 0
) -> np.ndarray:
    """(count, dim) float32 patterns of the ensemble, mean square 1."""
    rng = numpy_generator(seed)
    if ensemble == "binary":
        return (2 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1).astype(np.float32)
    rows = rng.standard_normal((count, dim), dtype=np.float32)
    if ensemble == "spherical":
        rows *= np.sqrt(dim) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def outweighed_at(
    dim: int,
    *,
    beta: float,
    ensemble: str = "spherical",
    queries: int = 64,
    limit: int = 2**20,
    seed: Seed = 0,
) -> np.ndarray:
    """Number of other patterns at which each of `queries` patterns' own weight falls below ½.

    One memory grows pattern by pattern, until more than half of the queries are outweighed or it
    holds `limit`; (queries,), infinite for those that are not. One step: the state is the pattern.
    """
    rng = numpy_generator(seed)
    own = draw_patterns(queries, dim=dim, ensemble=ensemble, seed=rng)
    top = beta * (own.astype(np.float64) ** 2).sum(axis=1)
    total, found = np.zeros(len(own)), np.full(len(own), np.inf)
    for begin in range(0, limit, _CHUNK):
        rows = min(_CHUNK, limit - begin)
        others = draw_patterns(rows, dim=dim, ensemble=ensemble, seed=rng)
        scores = beta * (own @ others.T).astype(np.float64) - top[:, None]
        sums = total[:, None] + np.cumsum(np.exp(scores), axis=1)
        new = np.isinf(found) & (sums[:, -1] >= 1.0)
        found[new] = begin + 1 + np.argmax(sums[new] >= 1.0, axis=1)
        total = sums[:, -1]
        if np.isfinite(found).sum() > len(own) // 2 + 1:
            break
    return found


def iterate(
    patterns: np.ndarray, *, starts: np.ndarray, targets: np.ndarray, beta: float
) -> np.ndarray:
    """Overlaps with their `targets` of what the update makes of `starts` (Q, d), at rest, (Q,).

    Plain iteration of the softmax mean, for at most 400 steps.
    """
    # Patterns may be large: no copy in double precision is made to look at them.
    stored = np.asarray(patterns, dtype=np.float32)
    states = np.asarray(starts, dtype=np.float32).copy()
    aims = np.asarray(targets, dtype=np.float32)
    gain = np.float32(beta)
    overlaps = np.full(len(states), np.inf)
    active = np.arange(len(states))
    for _ in range(400):
        scores = gain * (states[active] @ stored.T)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        states[active] = (scores @ stored) / scores.sum(axis=1, keepdims=True)
        now = overlaps.copy()
        now[active] = (states[active] * aims[active]).sum(axis=1) / stored.shape[1]
        active = active[np.abs(now[active] - overlaps[active]) > _REST]
        overlaps = now
        if len(active) == 0:
            break
    return overlaps


def kept_patterns(count: int, *, dim: int, beta: float, memories: int, seed: Seed = 0) -> Kept:
    """Overlap of the state that the update reaches from stored patterns, spherical patterns.

    The first `QUERIES` (fewer if N = `count` is smaller) of each of `memories` memories are tried.
    """
    overlaps, shares = np.empty((2, memories))
    for index, rng in enumerate(numpy_generator(seed).spawn(memories)):
        patterns = draw_patterns(count, dim=dim, seed=rng)
        tried = patterns[:QUERIES]
        rest = iterate(patterns, starts=tried, targets=tried, beta=beta)
        overlaps[index], shares[index] = rest.mean(), (rest > KEPT).mean()
    return Kept(overlap=mean_estimate(overlaps), share=mean_estimate(shares))


def noisy_retrieval(
    count: int, *, dim: int, beta: float, overlaps: ArrayLike, memories: int, seed: Seed = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of queries that find their pattern, in one step and at rest, (overlaps, memories).

    A query of norm √d has the given overlap m with its pattern and a random direction besides.
    Found means the weight ½ in the step, and an overlap above ½ at rest.
    """
    aims = np.asarray(overlaps, dtype=float)
    one, rest = np.empty((2, len(aims), memories))
    for index, rng in enumerate(numpy_generator(seed).spawn(memories)):
        patterns = draw_patterns(count, dim=dim, seed=rng)
        tried = patterns[:QUERIES]
        aside = rng.standard_normal(tried.shape).astype(np.float32)
        aside -= (aside * tried).sum(axis=1, keepdims=True) / dim * tried
        aside *= np.sqrt(dim) / np.linalg.norm(aside, axis=1, keepdims=True)
        for row, m in enumerate(aims):
            starts = m * tried + np.sqrt(1.0 - m**2) * aside
            scores = beta * (starts @ patterns.T).astype(np.float64)
            weights = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
            one[row, index] = (np.diagonal(weights) > 0.5).mean()
            last = iterate(patterns, starts=starts, targets=tried, beta=beta)
            rest[row, index] = (last > KEPT).mean()
    return one, rest


def half_overlap(count: int, *, dim: int, beta: float, memories: int, seed: Seed = 0) -> np.ndarray:
    """Overlap at which half of the queries find their pattern, (2, memories): one step, at rest.

    By linear interpolation between queries 0.05 apart, from 0.1 to 1.
    """
    grid = np.linspace(0.1, 1.0, 19)
    shares = noisy_retrieval(count, dim=dim, beta=beta, overlaps=grid, memories=memories, seed=seed)
    return np.array([[_crossing(grid, row) for row in kind.T] for kind in shares])


def half_log_count(
    dim: int, *, beta: float, log_counts: ArrayLike, memories: int, seed: Seed = 0
) -> np.ndarray:
    """ln N at which half of the patterns lose the state around them, (memories,).

    A memory grows through the given ln N, which must increase; linear interpolation between. The
    first 40 of its patterns are tried.
    """
    grid = np.asarray(log_counts, dtype=float)
    if len(grid) < 2 or (np.diff(grid) <= 0).any():
        raise ValueError(f"log_counts must be at least two and increase, got {grid}")
    counts = np.rint(np.exp(grid)).astype(int)
    found = np.empty(memories)
    for index, rng in enumerate(numpy_generator(seed).spawn(memories)):
        patterns = draw_patterns(int(counts[-1]), dim=dim, seed=rng)
        lost = []
        for count in counts:
            tried = patterns[: min(40, int(count))]
            rest = iterate(patterns[:count], starts=tried, targets=tried, beta=beta)
            lost.append((rest <= KEPT).mean())
        found[index] = _crossing(np.log(counts), np.array(lost))
    return found


def level_log_sums(
    count: int, *, dim: int, beta: float, samples: int, seed: Seed = 0
) -> np.ndarray:
    """ln Σ_j e^{βdu_j} of N = `count` independent levels u_j, (samples,): the model itself.

    u is a component of a unit vector: (1 + u)/2 follows a beta distribution. No patterns are
    drawn and no memory is built.
    """
    rng = numpy_generator(seed)
    half = 0.5 * (dim - 1)
    found = np.empty(samples)
    for index in range(samples):
        found[index] = logsumexp(beta * dim * (2.0 * rng.beta(half, half, count) - 1.0))
    return found


def _crossing(grid: np.ndarray, shares: np.ndarray) -> float:
    """Where shares that rise along the grid pass ½, NaN if they do not."""
    above = np.flatnonzero(shares >= 0.5)
    if len(above) == 0 or above[0] == 0:
        return float("nan")
    around = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(0.5, shares[around], grid[around]))


def weight_concentration(
    count: int, *, dim: int, spreads: ArrayLike, memories: int, seed: Seed = 0
) -> np.ndarray:
    """Mean Σ p² of an unrelated query's softmax weights at β = s/√d, (spreads, memories).

    1/N if all patterns share the weight, of order 1 where a few hold it: the glass.
    """
    grid = np.asarray(spreads, dtype=float)
    found = np.empty((len(grid), memories))
    for index, rng in enumerate(numpy_generator(seed).spawn(memories)):
        patterns = draw_patterns(count, dim=dim, seed=rng)
        queries = draw_patterns(32, dim=dim, seed=rng)
        scores = (queries @ patterns.T).astype(np.float64) / np.sqrt(dim)
        scores -= scores.max(axis=1, keepdims=True)
        for row, spread in enumerate(grid):
            weights = np.exp(spread * scores)
            squares = (weights**2).sum(axis=1) / weights.sum(axis=1) ** 2
            found[row, index] = squares.mean()
    return found


def line_fit(x: ArrayLike, *, values: ArrayLike, errors: ArrayLike) -> tuple[Estimate, Estimate]:
    """Intercept and slope of a weighted straight line through at least three points.

    Errors are widened by the root of chi² per freedom where that exceeds one: the line is then
    only roughly the law, and its ends are less certain than the points.
    """
    x = np.asarray(x, dtype=float)
    values = np.asarray(values, dtype=float)
    errors = np.asarray(errors, dtype=float)
    design = np.stack([np.ones_like(x), x], axis=1) / errors[:, None]
    found, *_ = np.linalg.lstsq(design, values / errors, rcond=None)
    chi2 = float(((values / errors - design @ found) ** 2).sum() / (len(x) - 2))
    spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * max(chi2, 1.0))
    intercept, slope = (
        Estimate(value=float(value), error=float(error), samples=len(x))
        for value, error in zip(found, spread, strict=True)
    )
    return intercept, slope
