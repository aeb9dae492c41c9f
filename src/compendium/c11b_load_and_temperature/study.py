"""The classical memory at a temperature: heat-bath dynamics, cheap because W is never formed.

d spins ±1, patterns are N rows of d entries ±1, E = −(1/2d) Σ_μ (x_μ·s)² + N/2, the E of `replica`.
In a sweep every spin, in order, is drawn anew: up with probability 1/(1 + exp(−2h_i/T)),
h_i = Σ_j J_ij s_j. A visit costs N operations: the products x_μ·s are kept up to date. `fraction`
is of the melting temperature T_M(α) of the theory. Errors are standard errors over independent
networks, one pattern and one run in each.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from bookmaker.tables import Rows, stored
from compendium.c11b_load_and_temperature.replica import melting_temperature, retrieval_fold
from compendium.common.rows import grid, mean_rows, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate, mean_estimate

LOADS = (0.02, 0.05, 0.08, 0.11)
FRACTIONS = (0.4, 0.6, 0.8)
# Networks at each size: the larger ones scatter less.
NETWORKS = {500: 64, 1000: 48, 2000: 32, 4000: 16}
GLASS_LOAD = 0.05


def run_heat_bath(
    patterns: np.ndarray,
    *,
    starts: np.ndarray,
    temperature: float,
    sweeps: int,
    targets: np.ndarray | None = None,
    seed: Seed = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heat-bath sweeps at `temperature` > 0 in the memory of `patterns` (N, d) of ±1, N·d < 2^24.

    From `starts` (Q, d), each for itself. Where they ended, (Q, d) int8; the overlap of each with
    its target, the start unless given, and its energy per spin after every sweep, (Q, sweeps).
    """
    # Sums of integers below 2^24 are exact in single precision, whatever their order.
    columns = np.ascontiguousarray(np.transpose(patterns), dtype=np.float32)
    states = starts.astype(np.float32)
    aims = (starts if targets is None else targets).astype(np.float32)
    overlaps, energies = np.empty((2, len(states), sweeps))
    gain = 2.0 / (temperature * len(columns))
    _heat_bath(columns, states, aims, gain, numpy_generator(seed), overlaps, energies)
    return states.astype(np.int8), overlaps, energies


@njit(nogil=True, fastmath={"reassoc"}, cache=True)
def _heat_bath(
    columns: np.ndarray,
    states: np.ndarray,
    targets: np.ndarray,
    gain: float,
    rng: np.random.Generator,
    overlaps: np.ndarray,
    energies: np.ndarray,
) -> None:
    size, count = columns.shape
    products = np.empty(count, dtype=np.float32)
    for q in range(states.shape[0]):
        spins, target = states[q], targets[q]
        products[:] = 0.0
        for i in range(size):
            for mu in range(count):
                products[mu] += columns[i, mu] * spins[i]
        for step in range(overlaps.shape[1]):
            for i in range(size):
                row = columns[i]
                field = np.float32(0.0)
                for mu in range(count):
                    field += row[mu] * products[mu]
                old = spins[i]
                field -= np.float32(count) * old
                up = 1.0 / (1.0 + math.exp(-gain * field))
                new = np.float32(1.0) if rng.random() < up else np.float32(-1.0)
                if new != old:
                    spins[i] = new
                    for mu in range(count):
                        products[mu] += np.float32(2.0) * new * row[mu]
            same, squares = 0.0, 0.0
            for i in range(size):
                same += spins[i] * target[i]
            for mu in range(count):
                squares += np.float64(products[mu]) * np.float64(products[mu])
            overlaps[q, step] = same / size
            energies[q, step] = 0.5 * (count - squares / size) / size


def draw_networks(
    dim: int, *, load: float, networks: int, seed: Seed
) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    """Of each network round(αd) random patterns ±1 of d = `dim` spins, (N, d) int8, and its rng."""
    for rng in numpy_generator(seed).spawn(networks):
        yield 2 * rng.integers(0, 2, (round(load * dim), dim), dtype=np.int8) - 1, rng


def retrieval(
    dim: int, *, load: float, fraction: float, networks: int, seed: Seed = 0
) -> tuple[Estimate, Estimate]:
    """Overlap with the pattern and energy per spin at T = `fraction`·T_M(α), started there.

    Averages over 200 sweeps after the first 100, in `networks` independent networks.
    """
    temperature, found = fraction * melting_temperature(load), []
    for patterns, rng in draw_networks(dim, load=load, networks=networks, seed=seed):
        _, *measured = run_heat_bath(
            patterns, starts=patterns[:1], temperature=temperature, sweeps=300, seed=rng
        )
        found.append([series[0, 100:].mean() for series in measured])
    overlaps, energies = np.transpose(found)
    return mean_estimate(overlaps), mean_estimate(energies)


def melting(dim: int, *, load: float, networks: int, seed: Seed = 0) -> np.ndarray:
    """T/T_M at which heated networks lose their pattern, from 0.7 in steps of 0.02, (networks,).

    Each temperature lasts 100 sweeps; the pattern is lost where the mean overlap of the second half
    of them is below half of the theory's overlap at the fold. The last temperature is 2 T_M.
    """
    top, fractions = melting_temperature(load), []
    kept = 0.5 * retrieval_fold(top)[1]
    for patterns, rng in draw_networks(dim, load=load, networks=networks, seed=seed):
        run = partial(run_heat_bath, patterns, targets=patterns[:1], sweeps=100, seed=rng)
        spins = patterns[:1]
        for fraction in 0.7 + 0.02 * np.arange(66):
            spins, overlaps, _ = run(starts=spins, temperature=fraction * top)
            if overlaps[0, 50:].mean() < kept:
                break
        fractions.append(fraction)
    return np.array(fractions)


def copies_overlap(
    dim: int, *, load: float, temperature: float, networks: int, seed: Seed = 0
) -> Estimate:
    """⟨q²⟩ of two copies of a network that started at random: q = s·s'/d.

    After 500 sweeps they are compared twenty times, 20 sweeps apart.
    """
    squares = []
    for patterns, rng in draw_networks(dim, load=load, networks=networks, seed=seed):
        spins = 2 * rng.integers(0, 2, (2, dim), dtype=np.int8) - 1
        for sweeps in (500, *[20] * 19):
            spins, *_ = run_heat_bath(
                patterns, starts=spins, temperature=temperature, sweeps=sweeps, seed=rng
            )
            squares.append((spins[0].astype(float) @ spins[1] / dim) ** 2)
    return mean_estimate(np.reshape(squares, (networks, 20)).mean(axis=1))


@stored("retrieval", grid(dim=NETWORKS, load=LOADS, fraction=FRACTIONS))
def RETRIEVAL(dim: int, load: float, fraction: float) -> Rows:
    """Overlap kept and energy below the temperature of melting."""
    overlap, energy = retrieval(
        dim, load=load, fraction=fraction, networks=NETWORKS[dim], seed=dim + round(1e4 * load)
    )
    return rows_of(
        overlap=overlap.value,
        overlap_error=overlap.error,
        energy=energy.value,
        energy_error=energy.error,
    )


@stored("melting", grid(dim=NETWORKS, load=LOADS))
def MELTING(dim: int, load: float) -> Rows:
    """Where heated networks lose their pattern, a row for each."""
    seed = dim + round(1e4 * load) + 1
    fractions = melting(dim, load=load, networks=NETWORKS[dim], seed=seed)
    return rows_of(network=range(len(fractions)), fraction=fractions)


@stored("copies", grid(dim=(500, 1000, 2000), temperature=(0.9, 1.0, 1.1, 1.35, 1.5, 1.8)))
def COPIES(dim: int, temperature: float) -> Rows:
    """Squared overlap of two copies that started at random."""
    how: dict[str, Any] = {"temperature": temperature, "seed": dim + round(100 * temperature)}
    squared = copies_overlap(dim, load=GLASS_LOAD, networks=32, **how)
    return [{"squared": squared.value, "squared_error": squared.error}]


@stored("settings_A6b", MELTING.units, seconds=0.5)
def MELTS_LATER(dim: int, load: float) -> Rows:
    """Temperature at which networks lose a pattern, less 1 + √α, where the theory's glass ends."""
    table = MELTING.read()
    lost = table["fraction"][(table["dim"] == dim) & (table["load"] == load)]
    return mean_rows(lost * melting_temperature(load) - (1 + load**0.5))
