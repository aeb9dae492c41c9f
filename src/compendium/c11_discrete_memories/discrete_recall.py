"""Recall of discrete memories, all or nothing: the exponential energy, and faces.

Experiments of chapter 11 beside `discrete_memories`, whose conventions hold here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from tqdm import tqdm

from compendium.c11_discrete_memories.study import Curve, curve
from compendium.common.images import mask
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.hopfield.discrete import EXPONENTIAL, Separation, retrieve


def all_fixed_probability(
    dim: int,
    *,
    counts: Sequence[int],
    networks: int = 200,
    seed: Seed = 0,
    progress: bool = False,
) -> Curve:
    """P(every one of N random patterns is a fixed point) of the exponential memory, for each N."""
    sizes = np.asarray(counts)
    samples = np.empty((sizes.size, networks))
    streams = numpy_generator(seed).spawn(networks)
    for n in tqdm(range(networks), disable=not progress, desc=f"networks of {dim} spins"):
        for p, count in enumerate(sizes):
            patterns = 2.0 * streams[n].integers(0, 2, (int(count), dim), dtype=np.int8) - 1.0
            found = retrieve(patterns, queries=patterns, separation=EXPONENTIAL, max_steps=1)
            samples[p, n] = not found.flips.any()
    return curve(sizes, samples=samples)


def half_capacity(measured: Curve) -> Estimate:
    """N at which all patterns are fixed with probability ½, and its standard error.

    Maximum likelihood of P(N) = 2^{−N(N−1)/H(H−1)}, the birthday law with its scale H free, for
    a curve of `all_fixed_probability`; the error from the Fisher information.
    """
    tries = measured.samples.shape[1]
    wins = measured.samples.sum(axis=1)
    pairs = np.log(2.0) * measured.x * (measured.x - 1.0)
    if (pairs <= 0).any():
        raise ValueError(
            f"measured must hold at least two patterns at each point, got {measured.x}"
        )

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


@record
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
    dim: int,
    *,
    count: int,
    corruptions: Sequence[float],
    queries: int = 100,
    seed: Seed = 0,
    progress: bool = False,
) -> Recall:
    """Recall of the exponential memory from patterns with round(ρ·d) random spins flipped.

    `queries` of the `count` random patterns are tried at each corruption ρ in [0, 1], by
    asynchronous sweeps.
    """
    shares = np.asarray(corruptions, dtype=float)
    rng = numpy_generator(seed)
    patterns = 2.0 * rng.integers(0, 2, (count, dim), dtype=np.int8) - 1.0
    targets = patterns[: min(queries, count)]
    table = np.empty((3, shares.size))
    for c in tqdm(range(shares.size), disable=not progress, desc="corruptions"):
        damaged = targets.copy()
        for state in damaged:
            state[rng.permutation(dim)[: round(float(shares[c]) * dim)]] *= -1
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
    return Recall(corruption=shares, one_sweep=table[0], final=table[1], nearest=table[2])


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
