"""Compiled Monte Carlo for systems of a thousand spins: many replicas, many temperatures at once.

E = −Σ_{i<j} J_ij s_i s_j − Σ_i h_i s_i, every pair once, weights exp(−βE). Replicas run side by
side in one system. A visit draws a spin anew in the local field, a heat bath, and that field is
kept up to date: where a spin turns, one row of couplings is added to the N fields of its replica
(`ladders`). Copies at neighbouring temperatures exchange their places (parallel tempering
[hukushima1996exchange]), so that cold ones forget.

Couplings and fields are rounded to multiples of a power of two so small (below 1e-5 for couplings
of the size of Sherrington and Kirkpatrick's) that every sum of them is exact in single precision:
no local field drifts, and the same seed gives the same run on every processor.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np

from spinformer.core.checks import check_array, check_choice, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.spins.ising.couplings import check_ising
from spinformer.spins.ising.ladders import run_ladders
from spinformer.spins.monte_carlo import MAX_SWEEPS, flip_reference

# Bits of a single-precision significand, with one to spare for the difference 2 J s.
_BITS = 23


@record
class TemperedRun:
    """C copies of one system at each of K inverse temperatures, sweep by sweep.

    magnetization (C, K, N): mean spins of each copy over the kept sweeps. energy (C, K): mean
    energy per spin. overlaps (samples, K, P): s^a·s^b/N of the P = C(C − 1)/2 pairs of copies,
    in the order of `itertools.combinations`. exchanges (K − 1): share of accepted exchanges
    between neighbours, NaN where none was tried.
    """

    betas: np.ndarray
    magnetization: np.ndarray
    energy: np.ndarray
    overlaps: np.ndarray
    exchanges: np.ndarray


def exact_sums(couplings: np.ndarray, *, fields: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J (N, N) and h (N,) rounded to float32 so that no sum of them is rounded.

    >>> j, h = exact_sums(np.array([[0.0, 0.1], [0.1, 0.0]]), fields=np.zeros(2))
    >>> bool(0 < abs(float(j[0, 1]) - 0.1) < 1e-7)
    True
    """
    matrix = check_array("couplings", couplings, ndim=2, square=True)
    field = check_array("fields", fields, shape=(len(matrix),))
    largest = float((np.abs(matrix).sum(1) + np.abs(field)).max(initial=0.0))
    unit = 2.0 ** (math.ceil(math.log2(largest)) + 1 - _BITS) if largest > 0 else 1.0
    return (np.round(matrix / unit) * unit).astype(np.float32), (
        np.round(field / unit) * unit
    ).astype(np.float32)


def tempered_chains(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    betas: np.ndarray,
    sweeps: int,
    burn: int,
    copies: int = 2,
    every: int = 1,
    seed: Seed = 0,
    threads: int = 1,
    engine: str = "numba",
) -> TemperedRun:
    """Run `copies` independent ladders of one system over the inverse temperatures `betas` (K,).

    From random starts, `burn` sweeps are dropped and `sweeps` kept; after every sweep neighbours
    in β try to exchange, and after each `every` sweeps the overlaps of the copies are taken.
    `betas` must increase. The copies draw from two generators and run in one or two `threads`,
    which does not change the result; those that run together share every row of couplings, so that
    many are faster than few. `engine` is "numba" or "reference" (the same draws in plain Python,
    fields summed anew). Raises ValueError or TypeError for bad input.

    >>> free = {"fields": np.array([0.5]), "betas": np.array([1.0])}
    >>> run = tempered_chains(np.zeros((1, 1)), **free, sweeps=4000, burn=10)
    >>> bool(abs(run.magnetization.mean() - np.tanh(0.5)) < 0.05)
    True
    """
    betas = check_array("betas", betas, ndim=1, low=0.0)
    if len(betas) < 1 or np.any(np.diff(betas) <= 0):
        raise ValueError(f"betas must increase, got {betas}")
    matrix, field, _ = check_ising(couplings, fields=fields, beta=float(betas[-1]))
    if field.ndim != 1:
        raise ValueError(f"couplings must be those of one system, got batch {field.shape[:-1]}")
    matrix, field = exact_sums(matrix, fields=field)
    sweeps = check_integer("sweeps", sweeps, low=1, high=MAX_SWEEPS)
    burn = check_integer("burn", burn, low=0, high=MAX_SWEEPS)
    copies = check_integer("copies", copies, low=1, high=10_000)
    every = check_integer("every", every, low=1, high=sweeps)
    threads = check_integer("threads", threads, low=1, high=1024)
    check_choice("engine", engine, ("numba", "reference"))
    run = run_ladders if engine == "numba" else _ladders_reference
    size, rungs, kept = len(field), len(betas), sweeps // every
    states = np.empty((copies, kept, rungs, size), np.int8)
    sums = np.zeros((copies, rungs, size))
    energies, swaps = np.zeros((copies, rungs)), np.zeros((copies, 2, rungs))
    # Copies draw from one of two generators, whether one thread runs them all or two.
    half = -(-copies // 2)
    first, second = numpy_generator(seed).spawn(2)
    starts = [
        rng.random((count, rungs, size)) < 0.5
        for rng, count in zip((first, second), (half, copies - half), strict=True)
    ]
    spins = np.where(np.concatenate(starts), np.float32(1.0), np.float32(-1.0))

    def work(own: slice) -> None:
        mine = spins[own].reshape(-1, size)
        run(
            matrix, field=field, betas=betas, spins=mine, burn=burn, sweeps=sweeps, every=every,
            first=first, second=second, split=half - own.start, states=states[own],
            sums=sums[own], energies=energies[own], swaps=swaps[own],
        )  # fmt: skip

    whole = threads == 1 or copies == 1
    parts = [slice(0, copies)] if whole else [slice(0, half), slice(half, copies)]
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))
    overlaps = np.empty((kept, rungs, copies * (copies - 1) // 2))
    for column, (a, b) in enumerate(combinations(range(copies), 2)):
        overlaps[..., column] = (states[a] == states[b]).mean(-1) * 2.0 - 1.0
    tried = swaps[:, 0, : rungs - 1].sum(0)
    return TemperedRun(
        betas=betas,
        magnetization=sums / sweeps,
        energy=energies / sweeps,
        overlaps=overlaps,
        exchanges=np.divide(
            swaps[:, 1, : rungs - 1].sum(0), tried, out=np.full(rungs - 1, np.nan), where=tried > 0
        ),
    )


def _ladders_reference(
    matrix: np.ndarray,
    *,
    field: np.ndarray,
    betas: np.ndarray,
    spins: np.ndarray,
    burn: int,
    sweeps: int,
    every: int,
    first: np.random.Generator,
    second: np.random.Generator,
    split: int,
    states: np.ndarray,
    sums: np.ndarray,
    energies: np.ndarray,
    swaps: np.ndarray,
) -> None:
    """Plain version of `run_ladders`: the same questions in the same order, fields summed anew."""
    matrix, field = matrix.astype(float), field.astype(float)
    ladders = spins.reshape(-1, len(betas), len(field))
    for step in range(burn + sweeps):
        for i in range(len(field)):
            for c, ladder in enumerate(ladders):
                rng = first if c < split else second
                for beta, s in zip(betas, ladder, strict=True):
                    s[i] = flip_reference(beta * (field[i] + matrix[i] @ s), seed=rng)
        for c, ladder in enumerate(ladders):
            rng = first if c < split else second
            energy = [-0.5 * s @ matrix @ s - field @ s for s in ladder]
            for k in range(step % 2, len(betas) - 1, 2):
                gain = (betas[k + 1] - betas[k]) * (energy[k + 1] - energy[k])
                accepted = gain >= 0.0 or rng.standard_exponential() > -gain
                if accepted:
                    ladder[[k, k + 1]] = ladder[[k + 1, k]]
                    energy[k], energy[k + 1] = energy[k + 1], energy[k]
                swaps[c, 0, k] += 1
                swaps[c, 1, k] += accepted
            if step >= burn:
                sums[c] += ladder
                energies[c] += np.array(energy) / len(field)
                if (step - burn + 1) % every == 0:
                    states[c, (step - burn) // every] = ladder
