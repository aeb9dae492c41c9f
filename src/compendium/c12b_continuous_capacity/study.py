"""How much the continuous memory holds: the others as a random energy model, and measured.

N = e^{αd} random patterns x_j of d components, mean square 1. A state ξ of the same length has the
overlap m = x_i·ξ/d with the pattern it should find and u_j = x_j·ξ/d with the others, whose density
falls as e^{−d I(u)} [derrida1981random; lucibello2024exponential]; ψ(β) = max_u [βu − I(u)], and
Σ_j e^{βdu_j} is e^{dφ}, φ = α + ψ(β) or, frozen, βu_f with I(u_f) = α.

Measured in single precision: what is counted is decided by differences of scores of order one.
Errors are standard errors over independent memories.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax, xlogy
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.curves import crossing
from compendium.common.decoder import encode
from compendium.common.models import decoder, encoder
from compendium.common.rows import (
    estimate_rows,
    mean_rows,
    median_interval,
    median_rows,
    numbered,
    parameter_product,
    rows_of,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.special import log_sphere_integral, mean_alignment
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.language.text import TEXTS, sample_texts, text_windows
from spinformer.language.traces import trace_layers

BETAS = (0.25, 0.5, 1.0, 2.0)
BASIN_DIMS = {0.1: (32, 48, 64, 80, 96), 0.2: (16, 24, 32, 40, 48), 0.3: (12, 16, 20, 26, 32)}
COUNTS = tuple(4**k for k in range(3, 9))
DIMS = tuple(2**k for k in range(4, 11))
MEMORIES = {count: 10 if count <= 1024 else 3 for count in COUNTS}
QUERIES = 100  # at most, of a memory
KEPT = 0.5  # a pattern is kept above this overlap
# Uniform on the sphere of radius √d, independent unit normals, independent fair coins ±1. Of each
# I(u), u ≥ 0, where P(x·ξ/d ≈ u) ~ e^{−dI(u)} of an unrelated pattern, and ψ′(β), the overlap of
# those that hold the sum while it is not frozen.
ENSEMBLES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "spherical": (
        lambda u: -0.5 * math.log1p(-(u**2)),
        lambda beta: 2.0 * beta / (1.0 + math.sqrt(1.0 + 4.0 * beta**2)),
    ),
    "gaussian": (lambda u: 0.5 * u**2, lambda beta: beta),
    "binary": (
        lambda u: 0.5 * float((1 + u) * math.log1p(u) + xlogy(1 - u, 1 - u)),
        math.tanh,
    ),
}


def capacity(beta: float, *, overlap: float = 1.0, ensemble: str = "spherical") -> float:
    """α₁: the largest load at which a state of this overlap m in (0, 1] finds its pattern.

    For a typical pattern. From φ(α₁, β) = βm: βm − ψ(β) while m exceeds the overlap ψ′(β) of the
    others, which are then not frozen, and else I(m) [lucibello2024exponential].
    """
    rate, tilted = ENSEMBLES[ensemble]
    u = tilted(beta)
    return beta * (overlap - u) + rate(u) if overlap > u else rate(overlap)


@record
class RetrievalFold:
    """ln N and overlap at which the state around a typical pattern ends, d finite.

    spread: standard deviation over patterns of the ln N at which theirs ends.
    """

    log_count: float
    overlap: float
    spread: float


def one_step_log_count(dim: int, *, beta: float, ensemble: str = "spherical") -> float:
    """ln N at which one step from a pattern gives it the weight ½, d finite; not for Gaussian.

    ln of 1 + e^{βd}/G, G the exact mean of e^{βx·ξ}: the others are not frozen there.
    """
    on_sphere = float(log_sphere_integral(beta * dim, dim=dim))
    mean = dim * math.log(math.cosh(beta)) if ensemble == "binary" else on_sphere
    return float(np.logaddexp(0.0, beta * dim - mean))


def retrieval_fold(dim: int, *, beta: float) -> RetrievalFold:
    """The number of spherical patterns up to which a pattern keeps a state of its own, d finite.

    The state is ξ = t·x_i plus little, t = p + (1 − p)A(t), ln(p/(1 − p)) = βdt − ln Σ, with the
    mean Σ = (N − 1)G(βdt) of the others: the fold is where ln(N − 1) is largest. The weighted mean
    of finitely many others also has a part across ξ, of mean square dG(2κ)/(NG(κ)²), κ = βdt,
    which adds β(1 − p) times that to ln Σ. The spread is that of ln Σ from pattern to pattern.
    """

    def log_mean(kappa: float) -> float:
        return float(log_sphere_integral(kappa, dim=dim))

    def place(t: float) -> tuple[float, float]:
        kappa = beta * dim * t
        mean = float(mean_alignment(kappa, dim=dim))
        weight = (t - mean) / (1.0 - mean)
        if not 0.0 < weight < 1.0:
            return -math.inf, weight
        return kappa - math.log(weight / (1.0 - weight)) - log_mean(kappa), weight

    # Between this and 1 there is one maximum; below, a minimum, where the global average ends.
    start = max(np.linspace(0.4, 1.0, 61)[:-1].tolist(), key=lambda t: place(t)[0])
    top = minimize_scalar(
        lambda t: -place(t)[0],
        bounds=(start - 0.01, min(start + 0.01, 1.0)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    overlap = float(top.x)
    log_sum, weight = place(overlap)
    kappa = beta * dim * overlap
    excess = math.exp(log_mean(2.0 * kappa) - 2.0 * log_mean(kappa))
    across = beta * (1.0 - weight) * dim * excess / math.exp(log_sum)
    return RetrievalFold(
        log_count=float(np.logaddexp(0.0, log_sum - across)),
        overlap=overlap,
        spread=math.sqrt((excess - 1.0) / math.exp(log_sum)),
    )


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
    dim: int, *, beta: float, ensemble: str = "spherical", seed: Seed = 0
) -> np.ndarray:
    """Number of other patterns at which each of 64 patterns' own weight falls below ½, (64,).

    One memory grows pattern by pattern, until more than half of the 64 are outweighed or it holds
    2^20; infinite for those that are not. One step: the state is the pattern.
    """
    rng = numpy_generator(seed)
    chunk = 2**14
    own = draw_patterns(64, dim=dim, ensemble=ensemble, seed=rng)
    top = beta * (own.astype(np.float64) ** 2).sum(axis=1)
    total = np.zeros(len(own))
    outweighed = np.full(len(own), np.inf)
    for begin in range(0, 2**20, chunk):
        others = draw_patterns(chunk, dim=dim, ensemble=ensemble, seed=rng)
        scores = beta * (own @ others.T).astype(np.float64) - top[:, None]
        sums = total[:, None] + np.cumsum(np.exp(scores), axis=1)
        new = np.isinf(outweighed) & (sums[:, -1] >= 1.0)
        outweighed[new] = begin + 1 + np.argmax(sums[new] >= 1.0, axis=1)
        total = sums[:, -1]
        if np.isfinite(outweighed).sum() > len(own) // 2 + 1:
            break
    return outweighed


def iterate(
    patterns: np.ndarray, *, starts: np.ndarray, targets: np.ndarray, beta: float
) -> np.ndarray:
    """Overlaps with their `targets` of what the update makes of `starts` (Q, d), at rest, (Q,).

    Plain iteration of the softmax mean, for at most 400 steps.
    """
    states = starts.astype(np.float32)
    overlaps = np.full(len(states), np.inf)
    active = np.arange(len(states))
    for _ in range(400):
        scores = np.float32(beta) * (states[active] @ patterns.T)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        states[active] = (scores @ patterns) / scores.sum(axis=1, keepdims=True)
        before = overlaps[active]
        overlaps[active] = (states[active] * targets[active]).sum(axis=1) / patterns.shape[1]
        active = active[np.abs(overlaps[active] - before) > 1e-5]
        if not active.size:
            break
    return overlaps


def kept_patterns(
    count: int,
    *,
    dim: int,
    beta: float,
    memories: int,
    ensemble: str = "spherical",
    seed: Seed = 0,
) -> tuple[Estimate, Estimate]:
    """What is left of stored patterns: mean overlap, and fraction with one above `KEPT`.

    The first `QUERIES` (fewer if N = `count` is smaller) of each of `memories` memories are tried.
    """
    overlaps = []
    fractions = []
    for rng in numpy_generator(seed).spawn(memories):
        patterns = draw_patterns(count, dim=dim, ensemble=ensemble, seed=rng)
        tried = patterns[:QUERIES]
        ends = iterate(patterns, starts=tried, targets=tried, beta=beta)
        if ensemble == "gaussian":
            # In units of a pattern's own square length, which is d for the others.
            ends = ends / (tried**2).mean(axis=1)
        overlaps.append(ends.mean())
        fractions.append((ends > KEPT).mean())
    return mean_estimate(overlaps), mean_estimate(fractions)


def half_overlap(count: int, *, dim: int, beta: float, memories: int, seed: Seed = 0) -> np.ndarray:
    """Overlap at which half of the queries find their pattern, (2, memories): one step, at rest.

    A query of norm √d has an overlap m with its pattern, from 0.1 to 1 in steps of 0.05 with linear
    interpolation between, and a random direction besides. Found means the weight ½ in the step, and
    an overlap above `KEPT` at rest.
    """
    overlaps = np.linspace(0.1, 1.0, 19)
    halves = []
    for rng in numpy_generator(seed).spawn(memories):
        patterns = draw_patterns(count, dim=dim, seed=rng)
        tried = patterns[:QUERIES]
        aside = rng.standard_normal(tried.shape).astype(np.float32)
        aside -= (aside * tried).sum(axis=1, keepdims=True) / dim * tried
        aside *= np.sqrt(dim) / np.linalg.norm(aside, axis=1, keepdims=True)
        shares = []
        for m in overlaps:
            starts = m * tried + np.sqrt(1.0 - m**2) * aside
            weights = softmax(beta * (starts @ patterns.T).astype(np.float64), axis=1)
            last = iterate(patterns, starts=starts, targets=tried, beta=beta)
            shares.append([(np.diagonal(weights) > 0.5).mean(), (last > KEPT).mean()])
        halves.append([_half(overlaps, kind) for kind in np.transpose(shares)])
    return np.transpose(halves)


def half_log_count(
    dim: int, *, beta: float, log_counts: np.ndarray, memories: int, seed: Seed = 0
) -> np.ndarray:
    """ln N at which half of the patterns lose the state around them, (memories,).

    A memory grows through the given ln N, linear interpolation between; its first 40 patterns are
    tried.
    """
    counts = np.rint(np.exp(log_counts)).astype(int)
    halves = []
    for rng in numpy_generator(seed).spawn(memories):
        patterns = draw_patterns(counts[-1], dim=dim, seed=rng)
        lost = []
        for count in counts:
            tried = patterns[: min(40, count)]
            ends = iterate(patterns[:count], starts=tried, targets=tried, beta=beta)
            lost.append((ends <= KEPT).mean())
        halves.append(_half(np.log(counts), np.array(lost)))
    return np.array(halves)


def _half(places: np.ndarray, shares: np.ndarray) -> float:
    return crossing(places, values=shares, past=shares >= 0.5, level=0.5)


def level_log_sums(
    count: int, *, dim: int, beta: float, samples: int, seed: Seed = 0
) -> np.ndarray:
    """ln Σ_j e^{βdu_j} of N = `count` independent levels u_j, (samples,): the model itself.

    u is a component of a unit vector: (1 + u)/2 follows a beta distribution.
    """
    half = 0.5 * (dim - 1)
    levels = 2.0 * numpy_generator(seed).beta(half, half, (samples, count)) - 1.0
    return np.asarray(logsumexp(beta * dim * levels, axis=1))


def weight_concentration(
    count: int,
    *,
    dim: int,
    spreads: ArrayLike,
    memories: int,
    ensemble: str = "spherical",
    seed: Seed = 0,
) -> np.ndarray:
    """Mean Σ p² of an unrelated query's softmax weights at β = s/√d, (spreads, memories).

    1/N if all patterns share the weight, of order 1 where a few hold it: the glass.
    """
    concentration = []
    for rng in numpy_generator(seed).spawn(memories):
        patterns = draw_patterns(count, dim=dim, ensemble=ensemble, seed=rng)
        queries = draw_patterns(32, dim=dim, ensemble=ensemble, seed=rng)
        scores = (queries @ patterns.T).astype(np.float64) / np.sqrt(dim)
        weights = (softmax(spread * scores, axis=1) for spread in np.asarray(spreads))
        concentration.append([(one**2).sum(axis=1).mean() for one in weights])
    return np.transpose(concentration)


def line_fit(x: np.ndarray, *, values: np.ndarray, errors: np.ndarray) -> tuple[Estimate, Estimate]:
    """Intercept and slope of a weighted straight line through at least three points.

    Errors are widened by the root of chi² per freedom where that exceeds one.
    """
    line, covariance = np.polyfit(x, values, 1, w=1.0 / errors, cov="unscaled")
    chi2 = (((values - np.polyval(line, x)) / errors) ** 2).sum() / (len(x) - 2)
    spread = np.sqrt(np.diag(covariance) * max(chi2, 1.0))
    slope = Estimate(value=float(line[0]), error=float(spread[0]))
    intercept = Estimate(value=float(line[1]), error=float(spread[1]))
    return intercept, slope


@stored(
    "one_step",
    [
        {"ensemble": ensemble, "beta": beta, "dim": dim}
        for ensemble in ENSEMBLES
        for beta in BETAS
        # Widths at which so many patterns reach the capacity of the theory.
        for dim in (round(log / capacity(beta, ensemble=ensemble)) for log in (5, 7, 9, 11))
    ],
    seconds=1.0,
)
def one_step_table(ensemble: str, beta: float, dim: int) -> Rows:
    """ln N at which half of the patterns are outweighed in one step."""
    log_counts = [
        np.log(np.median(outweighed_at(dim, beta=beta, ensemble=ensemble, seed=seed)))
        for seed in range(1000 * dim, 1000 * dim + 12)
    ]
    return rows_of(log_count=mean_estimate(log_counts))


@stored(
    "basins",
    [{"load": load, "dim": dim} for load, dims in BASIN_DIMS.items() for dim in dims],
    seconds=0.1,
)
def basins_table(load: float, dim: int) -> Rows:
    """Overlap that half of the noisy queries need, beside that of independent levels."""
    count = round(np.exp(load * dim))
    one_step, at_rest = half_overlap(count, dim=dim, beta=1.0, memories=8, seed=dim)
    levels = level_log_sums(count - 1, dim=dim, beta=1.0, samples=400, seed=dim + 1)
    return rows_of(
        count=count,
        one_step=mean_estimate(one_step),
        at_rest=mean_estimate(at_rest),
        levels=np.median(levels) / dim,
    )


@stored("fold", [{"dim": root**2} for root in range(7, 15)], seconds=0.2)
def fold_table(dim: int) -> Rows:
    """ln N at which half of the patterns lose their state."""
    fold = retrieval_fold(dim, beta=dim**-0.5)
    log_counts = fold.log_count + fold.spread * np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])
    halves = half_log_count(dim, beta=dim**-0.5, log_counts=log_counts, memories=6, seed=dim)
    return rows_of(log_count=mean_estimate(halves))


@stored("kept", parameter_product(count=COUNTS, dim=DIMS), seconds=0.1)
def kept_table(count: int, dim: int) -> Rows:
    """Overlap that is left of stored patterns."""
    overlap, _ = kept_patterns(
        count, dim=dim, beta=dim**-0.5, memories=MEMORIES[count], seed=count + dim
    )
    return rows_of(overlap=overlap)


def filling(count: int, dim: int) -> float:
    """Number of patterns over that at the theory's fold, at β = 1/√d."""
    return count / math.exp(retrieval_fold(dim, beta=dim**-0.5).log_count)


def kept_rows(data: int, *, patterns: str, count: int, dim: int) -> Rows:
    """Overlap kept at β = 1/√d minus a half, and how much of the theory's fold is filled there."""
    overlap, _ = kept_patterns(
        count, dim=dim, beta=dim**-0.5, memories=5, ensemble=patterns, seed=4000 + data
    )
    return [{"filling": filling(count, dim), **estimate_rows(overlap, bound=0.5)[0]}]


LAWS = ("spherical", "gaussian")


@stored(
    "settings_A13",
    numbered(
        parameter_product(patterns=LAWS, count=(64, 256, 1024, 4096), dim=(16, 64, 256, 1024))
    ),
    seconds=0.5,
    within={"value": 0.01, "low": 0.01, "high": 0.01},
)
def settings_A13(data: int, patterns: str, count: int, dim: int) -> Rows:
    """Patterns of one length and Gaussian ones."""
    return kept_rows(data, patterns=patterns, count=count, dim=dim)


# Widths, and parts of the fold that are filled, of fresh memories with 50 to 5000 patterns.
_FILLED = [
    {"patterns": patterns, "count": count, "dim": dim}
    for patterns, part, dim in product(
        LAWS, (0.001, 0.02, 0.1, 0.3, 0.5), (72, 90, 110, 140, 180, 300)
    )
    if 50 <= (count := int(part / filling(1, dim))) <= 5000
]


@stored(
    "confirm_A13",
    numbered(_FILLED, first=201),
    seconds=0.5,
    within={"value": 0.01, "low": 0.01, "high": 0.01},
)
def confirm_A13(data: int, patterns: str, count: int, dim: int) -> Rows:
    """Fresh memories, of up to half as many patterns as at the fold."""
    return kept_rows(data, patterns=patterns, count=count, dim=dim)


@stored(
    "settings_A13b",
    numbered(parameter_product(patterns=ENSEMBLES, count=(128, 512, 2048), dim=(16, 64, 256))),
    seconds=0.2,
)
def settings_A13b(data: int, patterns: str, count: int, dim: int) -> Rows:
    """Y of an unrelated query at β = 1.5/√d minus the 0.1 of a glass: just out of it is above."""
    concentration = weight_concentration(
        count, dim=dim, spreads=[1.5], memories=10, ensemble=patterns, seed=5000 + data
    )
    return mean_rows(concentration[0] - 0.1)


def trained_scores(model: str, source: str, *, length: int, special: str) -> Iterator[Tensor]:
    """Scores β q·k (H, S, N) of the heads of a layer on the first tokens of a text, at β = 1/√d.

    Of each layer of MiniLM, which sees all `length` tokens; or of every sixth of SmolLM2, where the
    last 32 ask and none sees what comes later. With `special` "left out" [CLS] and [SEP], or the
    first token of the text, neither ask nor are seen.
    """
    text = sample_texts()[source]
    if model == "MiniLM":
        inner = slice(1, -1) if special == "left out" else slice(None)
        for trace in trace_layers(encoder().model, text_windows(encoder(), text, length)[:1]):
            yield trace.scores[0][:, inner, inner]
        return
    generator = decoder()
    tokens = generator.embedding[encode(generator, text)[:length]][None]
    first = 1 if special == "left out" else 0
    for trace in trace_layers(generator.model, tokens, layers=range(0, 30, 6)):
        yield trace.scores[0][:, -32:, first:]


def concentrations(scores: Sequence[Tensor], *, spread: float) -> np.ndarray:
    """Σ p² of the softmax weights of all heads at β = `spread`/√d, (heads, queries)."""
    weights = [torch.softmax(spread * one.double(), dim=-1) for one in scores]
    return torch.cat([one.square().sum(-1) for one in weights]).numpy()


@stored(
    "settings_A13c",
    [
        {
            "data": f"{model} {source} {length}",
            "model": model,
            "length": length,
            "source": source,
            "special": special,
        }
        for model, lengths in (("MiniLM", (128, 512)), ("SmolLM2", (128, 256)))
        for length in lengths
        for source in TEXTS
        for special in ("kept", "left out")
    ],
    seconds=1.0,
    within=dict.fromkeys(("value", "low", "high", "at_beta", "beyond", "crossing"), 0.03),
)
@torch.no_grad()
def settings_A13c(data: str, model: str, length: int, source: str, special: str) -> Rows:
    """How far inside of a glass heads are at 1.5/√d that are out of it at 1/√d.

    The smaller of 0.1 − Y at 1/√d and Y − 0.1 at 1.5/√d, Y by the mean or the median of a head's
    queries: of the "median head", whose Y is the median over the heads, or of "each head", by the
    median. at_beta, beyond: Y of the median head at the two; crossing: fraction of heads with Y
    below 0.1 at the first and above at the second.
    """
    scores = list(trained_scores(model, source, length=length, special=special))
    rows = []
    for query, average in (("mean", np.mean), ("median", np.median)):
        here = average(concentrations(scores, spread=1.0), axis=1)
        colder = average(concentrations(scores, spread=1.5), axis=1)
        at_beta, lowest, highest = median_interval(here)
        beyond, least, most = median_interval(colder)
        found = {
            "at_beta": at_beta,
            "beyond": beyond,
            "crossing": float(((here < 0.1) & (colder > 0.1)).mean()),
        }
        of_median = {
            "value": min(0.1 - at_beta, beyond - 0.1),
            "low": min(0.1 - highest, least - 0.1),
            "high": min(0.1 - lowest, most - 0.1),
            "runs": len(here),
        }
        of_each = median_rows(np.minimum(0.1 - here, colder - 0.1))[0]
        rows.append({"query": query, "heads": "median head", **of_median, **found})
        rows.append({"query": query, "heads": "each head", **of_each, **found})
    return rows
