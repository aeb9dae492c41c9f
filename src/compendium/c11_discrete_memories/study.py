"""How much a discrete memory holds, measured: the experiments of chapter 11.

Patterns are N = `count` rows of d = `dim` independent fair coins ±1; α = N/d is the load. Errors
are taken over independent networks: queries of one network share its patterns and are not
independent. The theory beside them is `capacity`. At the end recall that is all
or nothing: of the exponential memory, and of faces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcinv

from compendium.c11_discrete_memories.capacity import capacity_at_error
from compendium.common.curves import crossing
from compendium.common.images import mask
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power, mean_estimate
from spinformer.hopfield.discrete import (
    EXPONENTIAL,
    Separation,
    descend,
    fields,
    polynomial,
    retrieve,
)


@record
class Curve:
    """A measured curve: abscissa `x` (points,), samples (points, networks), one a network."""

    x: np.ndarray
    samples: np.ndarray

    @property
    def estimate(self) -> Estimate:
        """Mean and standard error over networks, at least two, (points,)."""
        return mean_estimate(self.samples, axis=1)


def end_overlaps(
    dim: int,
    *,
    loads: Sequence[float],
    starts: Sequence[float] = (1.0,),
    networks: int = 10,
    queries: int = 20,
    diagonal: bool = False,
    reference: str = "pattern",
    seed: Seed = 0,
) -> np.ndarray:
    """Overlaps at the end of zero-temperature relaxations, (starts, loads, networks, queries).

    Classical network of `dim` spins at the loads α = N/d, increasing. Each run starts from a
    stored pattern with spins flipped until their overlap is one of `starts`, in [0, 1], for at
    most 500 asynchronous sweeps; what it ends with is compared with the "pattern" or with its own
    "start" (from overlap 0: what a random state keeps of itself). One network grows from load to
    load, so points of a curve are correlated, networks are not. The first `queries` patterns (at
    most as many as the smallest load has) are tried in each.
    """
    counts = np.rint(np.asarray(loads) * dim).astype(int)
    queries = min(queries, int(counts[0]))
    result = np.empty((len(starts), counts.size, networks, queries))
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        # Single precision: exact for d · N < 2^24, and twice as fast to multiply.
        patterns = rng.integers(0, 2, (int(counts[-1]), dim), dtype=np.int8)
        spins = (2 * patterns - 1).astype(np.float32)
        weights = np.zeros((dim, dim), dtype=np.float32)
        stored, targets = 0, spins[:queries]
        for p, count in enumerate(counts):
            new = spins[stored:count]
            weights += new.T @ new
            np.fill_diagonal(weights, count if diagonal else 0.0)
            stored = int(count)
            for b, overlap in enumerate(starts):
                flips = round(0.5 * (1.0 - overlap) * dim)
                tried = _damaged(targets, flips, rng) if flips else targets
                run = int(rng.integers(2**31))
                found = descend(weights, queries=tried, max_steps=500, seed=run)
                compared = targets if reference == "pattern" else tried
                result[b, p, n] = (found.states * compared).mean(axis=1)
    return result


def _damaged(targets: np.ndarray, flips: int, rng: np.random.Generator) -> np.ndarray:
    """Copies of the patterns with so many random spins flipped."""
    damaged = targets.copy()
    for state in damaged:
        state[rng.permutation(state.size)[:flips]] *= -1
    return damaged


def basin_edge(starts: np.ndarray, *, ends: np.ndarray) -> np.ndarray:
    """Smallest starting overlap from which half of the runs end above 0.9; (loads, networks).

    `starts` increase, `ends` are those of `end_overlaps`. Linear interpolation of the share in
    each network between the last start that fails and the one after it; NaN where even the
    largest start fails, the smallest start where all succeed.
    """
    share = (ends > 0.9).mean(axis=-1)
    # From there on no start fails.
    past = (share >= 0.5)[::-1].cumprod(0)[::-1] > 0
    edges = np.empty(share.shape[1:])
    for place in np.ndindex(edges.shape):
        here = (slice(None), *place)
        edges[place] = crossing(starts, values=share[here], past=past[here], level=0.5)
    return edges


def curves_cross(small: Curve, *, large: Curve, seed: Seed = 0) -> Estimate:
    """Load at which the curve of the larger network falls below that of the smaller one.

    Both curves share their abscissa. Linear interpolation after the last point where `large` is
    still above; standard error by drawing the networks of each curve again with replacement.
    Curves that do not cross give NaN for both; resamples that do not are left out.
    """
    rng = numpy_generator(seed)
    draws = np.empty((1000, small.x.size))
    for r in range(len(draws)):
        means = []
        for samples in (small.samples, large.samples):
            chosen = rng.integers(samples.shape[1], size=samples.shape[1])
            means.append(samples[:, chosen].mean(axis=1))
        draws[r] = means[1] - means[0]
    best = _last_fall(small.x, large.estimate.value - small.estimate.value)
    found = np.array([_last_fall(small.x, gap) for gap in draws])
    found = found[np.isfinite(found)]
    known = np.isfinite(best) and found.size > 1
    return Estimate(
        value=best, error=float(found.std(ddof=1)) if known else float("nan"), samples=found.size
    )


def _last_fall(x: np.ndarray, gap: np.ndarray) -> float:
    """Where `gap` crosses zero after its last positive entry; nan without one, or at the end."""
    above = np.flatnonzero(gap > 0)
    if above.size == 0:
        return float("nan")
    return crossing(x, values=gap, past=np.arange(x.size) > above[-1], level=0.0)


def one_step_error(
    dim: int,
    *,
    count: int,
    separation: Separation,
    networks: int = 20,
    queries: int = 200,
    seed: Seed = 0,
) -> Estimate:
    """Fraction of spins of stored patterns that one synchronous update turns.

    `count` patterns of `dim` spins, `queries` of them tried in each of `networks` networks.
    """
    shares = np.empty(networks)
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
        tried = patterns[: min(queries, count)]
        shares[n] = (fields(patterns, states=tried, separation=separation) * tried < 0).mean()
    return mean_estimate(shares)


@record
class Exponent:
    """Capacities N* at each size, (dims,), and the power law N* ∝ d^exponent fitted.

    predicted_exponent: the same fit (same weights) through N* of the finite-size theory, which
    tells how far the sizes are from the power law of d → ∞.
    """

    capacity: Estimate
    exponent: Estimate
    predicted_exponent: float


def capacity_exponent(
    dims: Sequence[int],
    *,
    degree: int,
    target: float = 0.01,
    blocks: int = 6,
    bits: int = 60_000,
    seed: Seed = 0,
) -> Exponent:
    """Measure the N at which one update turns a share `target` of spins, and fit its power of d.

    At each d the error is measured at three N around the crossing, about `bits` spins each, and
    the crossing interpolated in (ln N, ln erfc⁻¹(2·error)), where the Gaussian law is a straight
    line. Standard errors over `blocks` independent repetitions; weighted least squares in logs.
    """
    sizes = np.asarray(dims)
    logs = np.empty((sizes.size, blocks))
    root: Any = numpy_generator(seed).bit_generator.seed_seq
    predicted = np.array([capacity_at_error(d, degree=degree, error=target) for d in dims])
    for s, d in enumerate(dims):
        counts = np.unique(np.rint(predicted[s] * np.array([0.75, 1.0, 1.35])).astype(int))
        for b in range(blocks):
            measured = np.empty(counts.size)
            for c, count in enumerate(counts):
                tried = min(int(count), max(1, bits // (4 * d)))
                share = one_step_error(
                    d,
                    count=int(count),
                    separation=polynomial(degree),
                    networks=max(2, round(bits / (tried * d))),
                    queries=tried,
                    seed=int(root.spawn(1)[0].generate_state(1)[0]),
                ).value
                measured[c] = np.clip(share, 0.5 / bits, 0.5 - 0.5 / bits)
            line = np.polyfit(np.log(counts), np.log(erfcinv(2 * measured)), 1)
            logs[s, b] = (np.log(erfcinv(2 * target)) - line[1]) / line[0]
    mean = mean_estimate(logs, axis=1)
    capacity = Estimate(
        value=np.exp(mean.value), error=np.exp(mean.value) * mean.error, samples=blocks
    )
    theory = fit_power(sizes, values=predicted, errors=predicted * mean.error)
    return Exponent(
        capacity=capacity,
        exponent=fit_power(sizes, values=capacity.value, errors=capacity.error).slope,
        predicted_exponent=theory.slope.value,
    )


def all_fixed_probability(
    dim: int, *, counts: Sequence[int], networks: int = 200, seed: Seed = 0
) -> Curve:
    """P(every one of N random patterns is a fixed point) of the exponential memory, for each N."""
    sizes = np.asarray(counts)
    samples = np.empty((sizes.size, networks))
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        for p, count in enumerate(sizes):
            patterns = 2.0 * rng.integers(0, 2, (int(count), dim), dtype=np.int8) - 1.0
            found = retrieve(patterns, queries=patterns, separation=EXPONENTIAL, max_steps=1)
            samples[p, n] = not found.flips.any()
    return Curve(x=sizes, samples=samples)


def half_capacity(measured: Curve) -> Estimate:
    """N at which all patterns are fixed with probability ½, and its standard error.

    Maximum likelihood of P(N) = 2^{−N(N−1)/H(H−1)}, the birthday law with its scale H free, for
    a curve of `all_fixed_probability`; the error from the Fisher information.
    """
    tries = measured.samples.shape[1]
    wins = measured.samples.sum(axis=1)
    pairs = np.log(2.0) * measured.x * (measured.x - 1.0)

    def cost(log_scale: float) -> float:
        exponent = pairs * np.exp(-log_scale)
        return float((wins * exponent - (tries - wins) * np.log(-np.expm1(-exponent))).sum())

    edges = np.log(pairs[[0, -1]]) + np.array([-5.0, 5.0])
    scale = float(np.exp(minimize_scalar(cost, bounds=edges, method="bounded").x))
    exponent = pairs / scale
    spread = 1.0 / np.sqrt(tries * (exponent**2 / np.expm1(exponent)).sum())  # of ln H(H − 1)
    half = 0.5 + np.sqrt(0.25 + scale)
    return Estimate(
        value=float(half), error=float(spread * scale / (2.0 * half - 1.0)), samples=tries
    )


def exponential_recall(
    dim: int, *, count: int, corruptions: Sequence[float], queries: int = 100, seed: Seed = 0
) -> np.ndarray:
    """Recall of the exponential memory from patterns with round(ρ·d) random spins flipped.

    `queries` of the `count` random patterns are tried at each corruption ρ in [0, 1], by
    asynchronous sweeps. Shares (3, corruptions): equal to their pattern after one sweep, at the
    fixed point, and with their pattern still the nearest stored one (t patterns tied for nearest
    count 1/t): what an exhaustive search that guesses among ties gets right.
    """
    rng = numpy_generator(seed)
    patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
    targets = patterns[: min(queries, count)]
    table = np.empty((3, len(corruptions)))
    for c, share in enumerate(corruptions):
        damaged = _damaged(targets, round(float(share) * dim), rng)
        run = int(rng.integers(2**31))
        first = retrieve(patterns, queries=damaged, separation=EXPONENTIAL, max_steps=1, seed=run)
        final = retrieve(patterns, queries=first.states, separation=EXPONENTIAL, seed=run + 1)
        products = damaged @ patterns.T
        own = products.max(axis=1) == (damaged * targets).sum(axis=1)
        tied = (products == products.max(axis=1, keepdims=True)).sum(axis=1)
        table[:, c] = [
            (first.states == targets).all(axis=1).mean(),
            (final.states == targets).all(axis=1).mean(),
            (own / tied).mean(),
        ]
    return table


def subset_recall(
    images: np.ndarray,
    *,
    count: int,
    separation: Separation,
    subsets: int = 60,
    hidden: float = 0.5,
    seed: Seed = 0,
) -> np.ndarray:
    """Share of `count` images recalled without an error, for random choices of them, (subsets,).

    `images` are rows of ±1. Each choice is stored alone, the last share `hidden` of the entries
    of every query is unknown, and the memory relaxes by asynchronous sweeps.
    """
    shares = np.empty(subsets)
    for index, rng in enumerate(numpy_generator(seed).spawn(subsets)):
        stored = images[rng.choice(len(images), count, replace=False)]
        found = retrieve(
            stored, queries=mask(stored, fraction=hidden), separation=separation, seed=rng
        )
        shares[index] = (found.states == stored).all(axis=1).mean()
    return shares
