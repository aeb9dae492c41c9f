"""How much a discrete associative memory holds: theory curves and the experiments beside them.

Patterns are N rows of d independent fair coins ±1; α = N/d is the load. The experiments return
means with standard errors taken over independent networks (queries of one network share its
patterns and are not independent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erf, erfc, erfcinv, factorial2
from scipy.stats import binom
from tqdm import tqdm

from spinformer.core.checks import check_array, check_choice, check_integer, check_real
from spinformer.hopfield.discrete import (
    EXPONENTIAL,
    descend,
    fields,
    polynomial,
    retrieve,
)

# -- theory ----------------------------------------------------------------------------------


def _load(y: float) -> float:
    """α at which the mean-field equation y(√(2α) + 2e^{−y²}/√π) = erf y has the root y."""
    return 0.5 * max(erf(y) / y - 2.0 * np.exp(-(y**2)) / np.sqrt(np.pi), 0.0) ** 2


@lru_cache(maxsize=1)
def ags_capacity() -> tuple[float, float]:
    """(α_c, m_c): the load at which retrieval disappears and the overlap just below it.

    Replica-symmetric mean field of the classical network at zero temperature, w_ii = 0 (Amit,
    Gutfreund and Sompolinsky 1985): α(y) has one maximum, found to 1e-12 in y.
    """
    top = minimize_scalar(lambda y: -_load(y), bounds=(0.5, 3.0), options={"xatol": 1e-12})
    return float(_load(top.x)), float(erf(top.x))


def ags_overlap(load: float) -> float:
    """Overlap m of the retrieval state at α = `load` ≥ 0, zero above α_c (same source)."""
    load = check_real("load", load, low=0.0)
    if load == 0.0:
        return 1.0
    capacity, _ = ags_capacity()
    if load > capacity:
        return 0.0
    top = float(minimize_scalar(lambda y: -_load(y), bounds=(0.5, 3.0)).x)
    # α falls with y on the retrieval branch, y ≥ its maximum; y² ~ 1/(2α) bounds it above.
    end = 1.0 / np.sqrt(2.0 * load) + top + 1.0
    if _load(top) <= load:
        return float(erf(top))
    return float(erf(brentq(lambda y: _load(y) - load, top, end, xtol=1e-13)))


def bit_error(d: int, *, count: int, degree: int) -> float:
    """P(a spin of a stored pattern is turned by one update), F = x^degree, `count` patterns.

    ½ erfc √(d^{a−1} / (2(2a−3)!! N)) (Krotov and Hopfield 2016): the other patterns act as
    Gaussian noise, to leading order in 1/d.
    """
    d = check_integer("d", d, low=1)
    count = check_integer("count", count, low=1)
    degree = check_integer("degree", degree, low=2, high=20)
    ratio = float(d) ** (degree - 1) / (factorial2(2 * degree - 3) * count)
    return float(0.5 * erfc(np.sqrt(ratio / 2.0)))


def bit_error_at_finite_size(d: int, *, count: int, degree: int) -> float:
    """The same probability with the signal and the noise variance exact at finite d.

    Signal F(d) − F(d−2) and, for each of the N − 1 other patterns, the variance of
    F(h+1) − F(h−1) with h the sum of d − 1 fair signs; the sum is still taken as Gaussian.
    """
    d = check_integer("d", d, low=1)
    count = check_integer("count", count, low=1)
    degree = check_integer("degree", degree, low=2, high=20)
    if count == 1:
        return 0.0
    return float(0.5 * erfc(np.sqrt(_signal_to_noise(d, degree) / (2.0 * (count - 1)))))


def capacity_at_error(d: int, *, degree: int, error: float, leading_order: bool = False) -> float:
    """N at which one update turns a fraction `error` in (0, ½) of a stored pattern's spins.

    `leading_order` inverts `bit_error`, the default `bit_error_at_finite_size`.
    """
    d = check_integer("d", d, low=2)
    degree = check_integer("degree", degree, low=2, high=20)
    error = check_real("error", error, low=0.0, high=0.5, open_low=True)
    if error == 0.5:
        raise ValueError("error must be below 0.5, where the capacity is infinite")
    quantile = 2.0 * float(erfcinv(2.0 * error)) ** 2
    if leading_order:
        return float(d) ** (degree - 1) / (float(factorial2(2 * degree - 3)) * quantile)
    return 1.0 + _signal_to_noise(d, degree) / quantile


def _signal_to_noise(d: int, degree: int) -> float:
    """(signal)² over the noise variance of one other pattern, exact at finite d."""
    steps = np.arange(d)
    h = 2.0 * steps - (d - 1)
    weight = binom.pmf(steps, d - 1, 0.5)
    noise = ((h + 1) ** degree - (h - 1) ** degree) ** 2 @ weight
    return float((float(d) ** degree - float(d - 2) ** degree) ** 2 / noise)


def birthday_law(d: int, *, count: int) -> float:
    """P(all N patterns are fixed points), F = exp: exp(−N(N−1)d / 2^{d+1}).

    A pattern is lost if another differs from it in a single spin: the pair then shares one
    minimum, and one of the two is not it. N(N−1)/2 pairs do so with probability d/2^d each.
    """
    d = check_integer("d", d, low=1)
    count = check_integer("count", count, low=1)
    return float(np.exp(-float(count) * (count - 1) * d * 0.5 ** (d + 1)))


def exponential_rate(corruption: float) -> float:
    """The largest a such that N = e^{ad} patterns are provably retrieved, F = exp, d → ∞.

    From states with a fraction `corruption` in [0, ½) of the spins flipped: I(1 − 2ρ)/2 with
    I(x) = ½[(1+x) ln(1+x) + (1−x) ln(1−x)] (Demircigil et al. 2017, Theorem 3); ρ = 0 gives
    ½ ln 2, the 2^{d/2} of document 001.
    """
    corruption = check_real("corruption", corruption, low=0.0, high=0.5)
    x = 1.0 - 2.0 * corruption
    terms = [(1 + s * x) * np.log(1 + s * x) if 1 + s * x > 0 else 0.0 for s in (1, -1)]
    return float(0.25 * sum(terms))


# -- experiments -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A measured curve: abscissa `x`, mean and standard error over networks, all (points,).

    samples: (points, networks), the network means behind them.
    """

    x: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    samples: np.ndarray


def _curve(x: Any, samples: np.ndarray) -> Curve:
    error = samples.std(axis=1, ddof=1) / np.sqrt(samples.shape[1])
    return Curve(np.asarray(x, dtype=np.float64), samples.mean(axis=1), error, samples)


def retrieval_overlap(
    d: int,
    *,
    loads: Sequence[float],
    networks: int = 10,
    queries: int = 20,
    diagonal: bool = False,
    max_sweeps: int = 500,
    kernel: str = "couplings",
    seed: int = 0,
    progress: bool = False,
) -> Curve:
    """Overlap with a stored pattern after asynchronous zero-temperature relaxation from it.

    Classical network of d spins at the loads α = N/d, increasing. One network grows from load
    to load, so points of a curve are correlated, networks are not. The first `queries` patterns
    (fewer if N is smaller) are tried in each. `kernel="overlaps"` gives the same dynamics from
    a program that never forms W (slower: N instead of d/flips operations a visit).
    """
    d = check_integer("d", d, low=2)
    loads_array = check_array("loads", loads, ndim=1, low=0.0)
    check_choice("kernel", kernel, ("couplings", "overlaps"))
    counts = np.rint(loads_array * d).astype(int)
    if counts.size == 0 or counts[0] < 1 or (np.diff(counts) <= 0).any():
        raise ValueError(f"loads must increase and hold at least one pattern each, got {loads}")
    if d * counts[-1] >= 2**24:
        raise ValueError(f"d · N must stay below 2^24 for exact fields, got {d * counts[-1]}")
    networks = check_integer("networks", networks, low=2)
    queries = check_integer("queries", queries, low=1)
    samples = np.empty((counts.size, networks))
    streams = np.random.SeedSequence(seed).spawn(networks)
    for n in tqdm(range(networks), disable=not progress, desc=f"networks of {d} spins"):
        rng = np.random.default_rng(streams[n])
        # Single precision: exact for these integers, and twice as fast to multiply.
        patterns = rng.integers(0, 2, (int(counts[-1]), d), dtype=np.int8)
        spins = (2 * patterns - 1).astype(np.float32)
        weights = np.zeros((d, d), dtype=np.float32)
        stored = 0
        for p, count in enumerate(counts):
            tried, run = spins[: min(queries, int(count))], int(rng.integers(2**31))
            if kernel == "overlaps":
                found = retrieve(
                    spins[:count],
                    queries=tried,
                    diagonal=diagonal,
                    max_sweeps=max_sweeps,
                    seed=run,
                    kernel="overlaps",
                )
            else:
                new = spins[stored:count]
                weights += new.T @ new
                np.fill_diagonal(weights, count if diagonal else 0.0)
                found = descend(
                    weights, queries=tried, bias=np.zeros(d), max_sweeps=max_sweeps, seed=run
                )
            stored = int(count)
            samples[p, n] = (found.states * tried).mean()
    return _curve(counts / d, samples)


def crossing(
    small: Curve, *, large: Curve, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Load at which the curve of the larger network falls below that of the smaller one.

    Both curves share their abscissa. Linear interpolation after the last point where `large` is
    still above; standard error by drawing the networks of each curve again with replacement.
    Curves that do not cross give (nan, nan); resamples that do not are left out.
    """
    if small.x.shape != large.x.shape or not np.allclose(small.x, large.x, rtol=0.02):
        raise ValueError(f"large must share the loads of small, got {large.x} and {small.x}")
    resamples = check_integer("resamples", resamples, low=2)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    draws = np.empty((resamples, small.x.size))
    for r in range(resamples):
        means = []
        for samples in (small.samples, large.samples):
            chosen = rng.integers(samples.shape[1], size=samples.shape[1])
            means.append(samples[:, chosen].mean(axis=1))
        draws[r] = means[1] - means[0]
    best = _last_fall(small.x, large.mean - small.mean)
    if np.isnan(best):
        return best, best
    found = np.array([_last_fall(small.x, gap) for gap in draws])
    found = found[np.isfinite(found)]
    return best, float(found.std(ddof=1)) if found.size > 1 else float("nan")


def _last_fall(x: np.ndarray, gap: np.ndarray) -> float:
    """Where `gap` crosses zero after its last positive entry; nan without one, or at the end."""
    above = np.flatnonzero(gap > 0)
    if above.size == 0 or above[-1] == gap.size - 1:
        return float("nan")
    k = above[-1]
    return float(x[k] + (x[k + 1] - x[k]) * gap[k] / (gap[k] - gap[k + 1]))


def one_step_error(
    d: int, *, count: int, degree: int, networks: int = 20, queries: int = 200, seed: int = 0
) -> tuple[float, float]:
    """Fraction of spins of stored patterns that one synchronous update turns, F = x^degree.

    `count` patterns of d spins, `queries` of them tried in each of `networks` networks. Returns
    the mean and its standard error over networks.
    """
    d = check_integer("d", d, low=2)
    count = check_integer("count", count, low=1)
    separation = polynomial(check_integer("degree", degree, low=2, high=20))
    networks = check_integer("networks", networks, low=2)
    queries = check_integer("queries", queries, low=1)
    shares = np.empty(networks)
    for n, stream in enumerate(np.random.SeedSequence(seed).spawn(networks)):
        rng = np.random.default_rng(stream)
        patterns = 2.0 * rng.integers(0, 2, (count, d), dtype=np.int8) - 1.0
        tried = patterns[: min(queries, count)]
        shares[n] = (fields(patterns, states=tried, separation=separation) * tried < 0).mean()
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(networks))


@dataclass(frozen=True)
class Exponent:
    """Capacities N* (dims,) with standard errors, and the power law N* ∝ d^exponent fitted.

    predicted: (dims,), N* of the finite-size theory; predicted_exponent: the same fit (same
    weights) through it, which tells how far the sizes are from the power law of d → ∞.
    """

    dims: np.ndarray
    capacity: np.ndarray
    error: np.ndarray
    exponent: float
    exponent_error: float
    predicted: np.ndarray
    predicted_exponent: float


def capacity_exponent(
    dims: Sequence[int],
    *,
    degree: int,
    target: float = 0.01,
    blocks: int = 6,
    bits: int = 60_000,
    seed: int = 0,
    progress: bool = False,
) -> Exponent:
    """Measure the N at which one update turns a share `target` of spins, and fit its power of d.

    At each d the error is measured at three N around the crossing, about `bits` spins each, and
    the crossing interpolated in (ln N, ln erfc⁻¹(2·error)), where the Gaussian law is a straight
    line. Standard errors over `blocks` independent repetitions; weighted least squares in logs.
    """
    sizes = check_array("dims", dims, ndim=1, low=4).astype(int)
    if sizes.size < 3:
        raise ValueError(f"dims must hold at least three sizes, got {list(dims)}")
    target = check_real("target", target, low=1e-4, high=0.3)
    blocks = check_integer("blocks", blocks, low=2)
    bits = check_integer("bits", bits, low=1000)
    logs = np.empty((sizes.size, blocks))
    root = np.random.SeedSequence(seed)
    for s in tqdm(range(sizes.size), disable=not progress, desc=f"sizes, degree {degree}"):
        d = int(sizes[s])
        guess = capacity_at_error(d, degree=degree, error=target)
        counts = np.unique(np.rint(guess * np.array([0.75, 1.0, 1.35])).astype(int))
        for b in range(blocks):
            measured = np.empty(counts.size)
            for c, count in enumerate(counts):
                tried = min(int(count), max(1, bits // (4 * d)))
                networks = max(2, round(bits / (tried * d)))
                stream = int(root.spawn(1)[0].generate_state(1)[0])
                share, _ = one_step_error(
                    d,
                    count=int(count),
                    degree=degree,
                    networks=networks,
                    queries=tried,
                    seed=stream,
                )
                measured[c] = np.clip(share, 0.5 / bits, 0.5 - 0.5 / bits)
            line = np.polyfit(np.log(counts), np.log(erfcinv(2 * measured)), 1)
            logs[s, b] = (np.log(erfcinv(2 * target)) - line[1]) / line[0]
    mean = logs.mean(axis=1)
    error = logs.std(axis=1, ddof=1) / np.sqrt(blocks)
    predicted = np.array([capacity_at_error(int(d), degree=degree, error=target) for d in sizes])
    line, covariance = np.polyfit(np.log(sizes), mean, 1, w=1 / error, cov="unscaled")
    theory = np.polyfit(np.log(sizes), np.log(predicted), 1, w=1 / error)
    capacity = np.exp(mean)
    return Exponent(
        sizes,
        capacity,
        capacity * error,
        float(line[0]),
        float(covariance[0, 0] ** 0.5),
        predicted,
        float(theory[0]),
    )


def all_fixed_probability(
    d: int, *, counts: Sequence[int], networks: int = 200, seed: int = 0, progress: bool = False
) -> Curve:
    """P(every one of N random patterns is a fixed point) of the exponential memory, for each N."""
    d = check_integer("d", d, low=2)
    sizes = check_array("counts", counts, ndim=1, low=1).astype(int)
    networks = check_integer("networks", networks, low=2)
    samples = np.empty((sizes.size, networks))
    streams = np.random.SeedSequence(seed).spawn(networks)
    for n in tqdm(range(networks), disable=not progress, desc=f"networks of {d} spins"):
        rng = np.random.default_rng(streams[n])
        for p, count in enumerate(sizes):
            patterns = 2.0 * rng.integers(0, 2, (int(count), d), dtype=np.int8) - 1.0
            found = retrieve(patterns, queries=patterns, separation=EXPONENTIAL, max_sweeps=1)
            samples[p, n] = not found.flips.any()
    return _curve(sizes, samples)


def half_capacity(curve: Curve) -> tuple[float, float]:
    """N at which all patterns are fixed with probability ½, and its standard error.

    Maximum likelihood of P(N) = 2^{−N(N−1)/H(H−1)}, the birthday law with its scale H free, for
    a curve of `all_fixed_probability`; the error from the Fisher information.
    """
    tries = curve.samples.shape[1]
    wins = curve.samples.sum(axis=1)
    pairs = np.log(2.0) * curve.x * (curve.x - 1.0)
    if (pairs <= 0).any():
        raise ValueError(f"curve must hold at least two patterns at each point, got {curve.x}")

    def cost(log_scale: float) -> float:
        exponent = pairs * np.exp(-log_scale)
        return float((wins * exponent - (tries - wins) * np.log(-np.expm1(-exponent))).sum())

    edges = np.log(pairs[[0, -1]]) + np.array([-5.0, 5.0])
    scale = float(np.exp(minimize_scalar(cost, bounds=edges, method="bounded").x))
    exponent = pairs / scale
    spread = 1.0 / np.sqrt(tries * (exponent**2 / np.expm1(exponent)).sum())  # of ln H(H − 1)
    half = 0.5 + np.sqrt(0.25 + scale)
    return float(half), float(spread * scale / (2.0 * half - 1.0))


@dataclass(frozen=True)
class Recall:
    """Shares of queries, one entry for each corruption: equal to their pattern after one sweep
    (`one_sweep`), at the fixed point (`final`), and with their pattern still the nearest stored
    one (`nearest`; t patterns tied for nearest count 1/t): what an exhaustive search that guesses
    among ties gets right."""

    corruption: np.ndarray
    one_sweep: np.ndarray
    final: np.ndarray
    nearest: np.ndarray


def exponential_recall(
    d: int,
    *,
    count: int,
    corruptions: Sequence[float],
    queries: int = 100,
    seed: int = 0,
    progress: bool = False,
) -> Recall:
    """Recall of the exponential memory from patterns with round(ρ·d) random spins flipped.

    `queries` of the `count` random patterns are tried at each corruption ρ in [0, 1], by
    asynchronous sweeps.
    """
    d = check_integer("d", d, low=2)
    count = check_integer("count", count, low=1)
    shares = check_array("corruptions", corruptions, ndim=1, low=0.0, high=1.0)
    queries = check_integer("queries", queries, low=1)
    rng = np.random.default_rng(seed)
    patterns = 2.0 * rng.integers(0, 2, (count, d), dtype=np.int8) - 1.0
    targets = patterns[: min(queries, count)]
    table = np.empty((3, shares.size))
    for c in tqdm(range(shares.size), disable=not progress, desc="corruptions"):
        damaged = targets.copy()
        for state in damaged:
            state[rng.permutation(d)[: round(float(shares[c]) * d)]] *= -1
        run = int(rng.integers(2**31))
        first = retrieve(patterns, queries=damaged, separation=EXPONENTIAL, max_sweeps=1, seed=run)
        final = retrieve(patterns, queries=first.states, separation=EXPONENTIAL, seed=run + 1)
        products = damaged @ patterns.T
        own = products.max(axis=1) == (damaged * targets).sum(axis=1)
        tied = (products == products.max(axis=1, keepdims=True)).sum(axis=1)
        table[:, c] = [
            (first.states == targets).all(axis=1).mean(),
            (final.states == targets).all(axis=1).mean(),
            (own / tied).mean(),
        ]
    return Recall(shares, *table)
