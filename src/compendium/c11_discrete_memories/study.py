"""How much a discrete memory holds, in theory and measured.

Patterns are N = `count` rows of d = `dim` independent fair coins ±1; α = N/d is the load. Errors
are taken over independent networks: queries of one network share its patterns.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcinv
from scipy.stats import binom

from bookmaker.tables import Rows, stored
from compendium.common.curves import crossing
from compendium.common.rows import (
    array_of,
    estimate_rows,
    near_rows,
    numbered,
    parameter_product,
    rows_of,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power_law, mean_estimate
from spinformer.hopfield.discrete import (
    EXPONENTIAL,
    Separation,
    asynchronous_dynamics,
    fields,
    polynomial,
    retrieve,
)

NETWORKS = {500: 32, 1000: 16, 2000: 8}
LOADS = np.round(np.arange(0.10, 0.181, 0.01), 2)
SIZES = {2: (200, 400, 800, 1600), 3: (50, 80, 126, 200), 4: (36, 50, 70)}
MEMORIES = 1000


def end_overlaps(
    dim: int,
    *,
    loads: Sequence[float],
    starts: Sequence[float] = (1.0,),
    networks: int = 10,
    queries: int = 20,
    diagonal: bool = False,
    seed: Seed = 0,
) -> np.ndarray:
    """Overlaps at the end of zero-temperature relaxations, (starts, loads, networks, queries).

    Classical network of `dim` spins at the loads α = N/d, increasing. Each run starts from a
    stored pattern with spins flipped until their overlap is one of `starts`, in [0, 1], for at
    most 500 asynchronous sweeps; what it ends with is compared with the pattern, from overlap 0
    with its own start. One network grows from load to load: points of a curve are correlated.
    The first `queries` patterns, at most those of the smallest load, are tried in each.
    """
    counts = np.rint(np.asarray(loads) * dim).astype(int).tolist()
    queries = min(queries, counts[0])
    result = np.empty((len(starts), len(counts), networks, queries))
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        # Single precision: exact for d · N < 2^24, and twice as fast to multiply.
        patterns = rng.integers(0, 2, (counts[-1], dim), dtype=np.int8)
        spins = (2 * patterns - 1).astype(np.float32)
        weights = np.zeros((dim, dim), dtype=np.float32)
        targets = spins[:queries]
        for p, (before, count) in enumerate(pairwise([0, *counts])):
            new = spins[before:count]
            weights += new.T @ new
            np.fill_diagonal(weights, count if diagonal else 0.0)
            for b, overlap in enumerate(starts):
                flips = round(0.5 * (1.0 - overlap) * dim)
                tried = _damaged(targets, flips, rng) if flips else targets
                run = int(rng.integers(2**31))
                ends = asynchronous_dynamics(weights, queries=tried, max_steps=500, seed=run).states
                compared = targets if overlap else tried
                result[b, p, n] = (ends * compared).mean(axis=1)
    return result


def _damaged(targets: np.ndarray, flips: int, rng: np.random.Generator) -> np.ndarray:
    damaged = targets.copy()
    for state in damaged:
        state[rng.permutation(state.size)[:flips]] *= -1
    return damaged


def basin_edge(starts: np.ndarray, *, ends: np.ndarray) -> np.ndarray:
    """Smallest starting overlap from which half of the runs end above 0.9; (loads, networks).

    `ends` are of `end_overlaps`. Linear between the last start that fails and the one after it; NaN
    where even the largest fails, the smallest where all succeed.
    """
    share = (ends > 0.9).mean(axis=-1).reshape(len(starts), -1)
    # From there on no start fails.
    past = (share >= 0.5)[::-1].cumprod(0)[::-1] > 0
    curves = zip(share.T, past.T, strict=True)
    edges = [crossing(starts, values=one, past=safe, level=0.5) for one, safe in curves]
    return np.reshape(edges, ends.shape[1:-1])


def curves_cross(
    loads: np.ndarray, *, small: np.ndarray, large: np.ndarray, seed: Seed = 0
) -> Estimate:
    """Load at which the curve of the larger network falls below that of the smaller one.

    Samples (loads, networks). Linear interpolation after the last point where `large` is still
    above, NaN where there is none; standard error by drawing the networks of each curve again with
    replacement, without the draws that do not cross.
    """
    rng = numpy_generator(seed)

    def last_fall(few: np.ndarray, many: np.ndarray) -> float:
        gap = many.mean(axis=1) - few.mean(axis=1)
        past = np.arange(gap.size) > max(np.flatnonzero(gap > 0), default=gap.size)
        return crossing(loads, values=gap, past=past, level=0.0)

    def again(samples: np.ndarray) -> np.ndarray:
        return samples[:, rng.integers(samples.shape[1], size=samples.shape[1])]

    drawn = [last_fall(again(small), again(large)) for _ in range(1000)]
    return Estimate(value=last_fall(small, large), error=float(np.nanstd(drawn, ddof=1)))


def capacity_at_error(dim: int, *, degree: int, error: float) -> float:
    """N at which one update turns a share `error` in (0, ½) of a stored pattern's spins.

    The overlaps with the other patterns act as Gaussian noise; their variance is exact at finite d.
    """
    separation = polynomial(degree)
    overlap = 2.0 * np.arange(dim) - (dim - 1)  # of another pattern, without the spin itself
    steps = separation(overlap + 1) - separation(overlap - 1)
    noise = steps**2 @ binom.pmf(np.arange(dim), dim - 1, 0.5)
    top, below = separation(np.array([dim, dim - 2.0]))
    return 1.0 + float((top - below) ** 2 / noise / (2.0 * erfcinv(2.0 * error) ** 2))


def one_step_error(
    dim: int,
    *,
    count: int,
    separation: Separation,
    networks: int = 20,
    queries: int = 200,
    seed: Seed = 0,
) -> np.ndarray:
    """Share of the spins of `queries` stored patterns that one update turns, (networks,)."""
    shares = np.empty(networks)
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
        tried = patterns[:queries]
        shares[n] = (fields(patterns, states=tried, separation=separation) * tried < 0).mean()
    return shares


@record
class CapacityFit:
    """Capacities at widths d, all (sizes,), with errors, and their power of d.

    predicted: the power that the same fit gives the theory at these sizes.
    """

    dims: np.ndarray
    capacities: np.ndarray
    errors: np.ndarray
    exponent: Estimate
    predicted: float


def capacity_exponent(
    dims: Sequence[int],
    *,
    degree: int,
    target: float = 0.01,
    blocks: int = 6,
    bits: int = 60_000,
    seed: Seed = 0,
) -> CapacityFit:
    """The N at which one update turns a fraction `target` of spins, at each d, and its power of d.

    At each d the error is measured at three N around the crossing, about `bits` spins each, and
    the crossing interpolated in (ln N, ln erfc⁻¹(2·error)), where the Gaussian law is a straight
    line. Standard errors over `blocks` independent repetitions; weighted least squares in logs.
    """
    logs = np.empty((len(dims), blocks))
    root: Any = numpy_generator(seed).bit_generator.seed_seq
    predicted = np.array([capacity_at_error(d, degree=degree, error=target) for d in dims])
    for s, b in np.ndindex(logs.shape):
        counts = np.unique(np.rint(predicted[s] * np.array([0.75, 1.0, 1.35])).astype(int))
        measured = []
        for count in counts.tolist():
            tried = min(count, max(1, bits // (4 * dims[s])))
            share = one_step_error(
                dims[s],
                count=count,
                separation=polynomial(degree),
                networks=max(2, round(bits / (tried * dims[s]))),
                queries=tried,
                seed=int(root.spawn(1)[0].generate_state(1)[0]),
            ).mean()
            measured.append(np.clip(share, 0.5 / bits, 0.5 - 0.5 / bits))
        line = np.polyfit(np.log(counts), np.log(erfcinv(2 * np.array(measured))), 1)
        logs[s, b] = (np.log(erfcinv(2 * target)) - line[1]) / line[0]
    mean = mean_estimate(logs, axis=1)
    capacity = np.exp(mean.value)
    measured_law = fit_power_law(dims, values=capacity, errors=capacity * mean.error)
    # The theory at the same sizes, weighted in the same way.
    theory = fit_power_law(dims, values=predicted, errors=predicted * mean.error)
    return CapacityFit(
        dims=np.asarray(dims),
        capacities=capacity,
        errors=capacity * mean.error,
        exponent=measured_law.slope,
        predicted=theory.slope.value,
    )


def all_fixed_probability(
    dim: int, *, counts: Sequence[int], networks: int = 200, seed: Seed = 0
) -> np.ndarray:
    """Whether each of N random patterns is a fixed point, F = exp; (counts, networks)."""
    samples = np.empty((len(counts), networks))
    for n, rng in enumerate(numpy_generator(seed).spawn(networks)):
        for p, count in enumerate(counts):
            patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
            found = retrieve(patterns, queries=patterns, separation=EXPONENTIAL, max_steps=1)
            samples[p, n] = not found.flips.any()
    return samples


def half_capacity(counts: np.ndarray, *, fixed: np.ndarray) -> Estimate:
    """N at which all patterns are fixed with probability ½, and its standard error.

    Maximum likelihood of P(N) = 2^{−N(N−1)/H(H−1)}, the birthday law with its scale H free;
    `fixed` are of `all_fixed_probability`; the error from the Fisher information.
    """
    wins = fixed.sum(axis=1)
    tries = fixed.shape[1]
    pairs = np.log(2.0) * counts * (counts - 1.0)

    def cost(log_scale: float) -> float:
        exponent = pairs * np.exp(-log_scale)
        return float((wins * exponent - (tries - wins) * np.log(-np.expm1(-exponent))).sum())

    edges = np.log(pairs[[0, -1]]) + np.array([-5.0, 5.0])
    scale = float(np.exp(minimize_scalar(cost, bounds=edges, method="bounded").x))
    exponent = pairs / scale
    spread = 1.0 / np.sqrt(tries * (exponent**2 / np.expm1(exponent)).sum())  # of ln H(H − 1)
    half = 0.5 + np.sqrt(0.25 + scale)
    return Estimate(value=float(half), error=float(spread * scale / (2.0 * half - 1.0)))


def exponential_recall(
    dim: int, *, count: int, corruptions: Sequence[float], queries: int = 100, seed: Seed = 0
) -> np.ndarray:
    """Recall of the exponential memory from patterns with round(ρ·d) random spins flipped.

    Fractions (3, corruptions) of `queries` of the `count` random patterns: restored after one
    sweep, at the fixed point, and by an exhaustive search for the nearest that guesses among ties.
    """
    rng = numpy_generator(seed)
    patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
    targets = patterns[:queries]
    fractions = []
    for corruption in corruptions:
        damaged = _damaged(targets, round(corruption * dim), rng)
        order = int(rng.integers(2**31))
        first = retrieve(patterns, queries=damaged, separation=EXPONENTIAL, max_steps=1, seed=order)
        final = retrieve(patterns, queries=first.states, separation=EXPONENTIAL, seed=order + 1)
        products = damaged @ patterns.T
        own = products.max(axis=1) == (damaged * targets).sum(axis=1)
        tied = (products == products.max(axis=1, keepdims=True)).sum(axis=1)
        restored = [(run.states == targets).all(axis=1).mean() for run in (first, final)]
        fractions.append([*restored, (own / tied).mean()])
    return np.transpose(fractions)


@stored("capacity", [{"dim": dim} for dim in NETWORKS], seconds=2.0, within={"overlap": 0.05})
def capacity_table(dim: int) -> Rows:
    """Overlap left of a stored pattern, a row for each load and network."""
    ends = end_overlaps(dim, loads=LOADS.tolist(), networks=NETWORKS[dim], seed=dim)[0].mean(-1)
    load, network = np.indices(ends.shape).reshape(2, -1)
    return rows_of(load=LOADS[load], network=network, overlap=ends.ravel())


@stored(
    "exponents",
    [{"degree": degree} for degree in SIZES],
    seconds=0.7,
    within={"capacity": 0.02, "error": 0.2, "exponent": 0.02, "exponent_error": 0.01},
)
def exponents_table(degree: int) -> Rows:
    """Capacity at one per cent of errors, a row for each size, and the fitted power."""
    fit = capacity_exponent(SIZES[degree], degree=degree, bits=20_000, blocks=10, seed=degree)
    return rows_of(
        dim=fit.dims,
        capacity=fit.capacities,
        error=fit.errors,
        exponent=fit.exponent,
        predicted=fit.predicted,
    )


@stored(
    "birthday",
    [{"dim": dim} for dim in (10, 13, 16)],
    seconds=1.0,
    within={"share": 0.02, "half": 0.5, "half_error": 0.1},
)
def birthday_table(dim: int) -> Rows:
    """Share of networks without a lost pattern, a row for each number of patterns."""
    unit = np.sqrt(2.0 ** (dim + 1) / dim)
    counts = np.rint(unit * np.array([0.3, 0.6, 0.9, 1.3, 1.8])).astype(int)
    fixed = all_fixed_probability(dim, counts=counts.tolist(), networks=MEMORIES, seed=dim)
    most = round(2 ** (dim / 2))
    last = all_fixed_probability(dim, counts=[most], networks=MEMORIES // 4, seed=2 * dim)
    return rows_of(
        count=[*counts, most],
        share=[*fixed.mean(axis=1), last.mean()],
        half=half_capacity(counts, fixed=fixed),
    )


def capacity_curve(dim: int) -> np.ndarray:
    """Overlap left, (loads, networks), from the stored table."""
    return array_of(capacity_table.read(), "overlap", "load", "network", dim=dim)


def lost_overlap(dim: int, *, start: float, diagonal: str, networks: int, seed: Seed) -> Estimate:
    """Overlap at N/d = 0.12 minus that at 0.17, on both sides of the capacity of about 0.14.

    Runs begin with the overlap `start`; the `diagonal` of the weights is "zero", or "kept", w_ii=N.
    """
    ends = end_overlaps(
        dim,
        loads=(0.12, 0.17),
        starts=(start,),
        networks=networks,
        diagonal=diagonal == "kept",
        seed=seed,
    )
    overlaps = ends[0].mean(axis=-1)
    return mean_estimate(overlaps[0] - overlaps[1])


@stored(
    "settings_A6",
    numbered(2 * parameter_product(small=(500, 1000), start=(1.0, 0.8), diagonal=("zero", "kept"))),
    seconds=4.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def settings_A6(data: int, small: int, start: float, diagonal: str) -> Rows:
    """How much more overlap networks of twice as many spins lose from N/d = 0.12 to 0.17.

    A loss that grows with the size is what makes the capacity a transition.
    """
    rng = numpy_generator(1000 + data)
    few = lost_overlap(small, start=start, diagonal=diagonal, networks=16, seed=rng)
    many = lost_overlap(2 * small, start=start, diagonal=diagonal, networks=16, seed=rng)
    error = float(np.hypot(few.error, many.error))
    return estimate_rows(Estimate(value=many.value - few.value, error=error, samples=16))


@stored(
    "confirm_A6",
    numbered(
        parameter_product(small=(400, 500, 700, 1000), start=(1.0, 0.9, 0.8), diagonal=("zero",)),
        first=101,
    ),
    seconds=4.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def confirm_A6(data: int, small: int, start: float, diagonal: str) -> Rows:
    """Fresh networks of four pairs of sizes, without the diagonal."""
    return settings_A6.rows(data, small=small, start=start, diagonal=diagonal)


@stored(
    "settings_A7",
    numbered(parameter_product(degree=tuple(SIZES), target=(0.003, 0.01, 0.03, 0.1))),
    seconds=0.7,
    within={"value": 0.03, "low": 0.03, "high": 0.03},
)
def settings_A7(data: int, degree: int, target: float) -> Rows:
    """0.1 minus the distance of the exponent from a − 1, with another error that is allowed."""
    result = capacity_exponent(
        SIZES[degree], degree=degree, target=target, bits=20_000, blocks=10, seed=2000 + data
    )
    power = result.exponent.value
    wide = 2.0 * result.exponent.error
    return near_rows((power, power - wide, power + wide), aim=degree - 1, within=0.1, runs=10)


def birthday_scale(dim: int, *, filling: float, seed: Seed) -> Estimate:
    """log₂ of the scale H of the birthday law 2^{−N(N−1)/H²}.

    From one fraction, at N = `filling` times the number at which the law turns.
    """
    count = round(filling * np.sqrt(2.0 ** (dim + 1) / dim))
    fixed = all_fixed_probability(dim, counts=[count], networks=MEMORIES, seed=seed)
    fraction = float(fixed.mean())
    scale = 0.5 * np.log2(count * (count - 1) * np.log(2) / -np.log(fraction))
    error = np.sqrt((1 - fraction) / fraction / MEMORIES) / (2 * np.log(2) * -np.log(fraction))
    return Estimate(value=float(scale), error=float(error), samples=MEMORIES)


@stored(
    "settings_A8",
    numbered(parameter_product(small=(9, 10, 11), filling=(0.6, 0.9, 1.3, 1.6))),
    seconds=1.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def settings_A8(data: int, small: int, filling: float) -> Rows:
    """0.1 minus the distance of κ, in N = 2^{κd}, from a half: as the law says, and without √d.

    From the scales at d and at d + 6.
    """
    large = small + 6
    rng = numpy_generator(3000 + data)
    first = birthday_scale(small, filling=filling, seed=rng)
    second = birthday_scale(large, filling=filling, seed=rng)
    wide = 2 * float(np.hypot(first.error, second.error)) / 6
    rows = []
    for root, correction in (("divided out", 0.5 * np.log2(large / small)), ("left in", 0.0)):
        kappa = (second.value + correction - first.value) / 6
        line = near_rows((kappa, kappa - wide, kappa + wide), aim=0.5, within=0.1, runs=MEMORIES)
        rows.append({"root": root, **line[0]})
    return rows
