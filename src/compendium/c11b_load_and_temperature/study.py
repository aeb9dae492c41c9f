"""The classical memory at a temperature: heat-bath dynamics, cheap because W is never formed.

d spins ±1, patterns are N rows of d entries ±1, E = −(1/2d) Σ_μ (x_μ·s)² + N/2, which is
−½ Σ_ij J_ij s_i s_j with J_ij = (1/d) Σ_μ x_μi x_μj and J_ii = 0. In a sweep every spin, in order,
is drawn anew: up with probability 1/(1 + exp(−2h_i/T)), h_i = Σ_j J_ij s_j. A visit costs N
operations: the products x_μ·s are kept up to date.

Measured are the overlap kept, the temperature of melting, and the overlap of two copies.
Temperatures are given as `fraction` of the melting temperature T_M(α) of the theory where a
pattern is retrieved. Errors are standard errors over independent networks, one pattern and one
run in each.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from compendium.c11b_load_and_temperature.replica import melting_temperature, retrieval_fold
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate

# Sums of integers in single precision are exact up to here, whatever their order.
_EXACT = 2**24


@record
class HeatBathRun:
    """Q copies that ran independently in one network.

    states: (Q, d) int8, where they ended. overlaps: (Q, sweeps), overlap of each with its target
    after every sweep. energies: (Q, sweeps), energy per spin.
    """

    states: np.ndarray
    overlaps: np.ndarray
    energies: np.ndarray


def run_heat_bath(
    patterns: np.ndarray,
    *,
    starts: np.ndarray,
    temperature: float,
    sweeps: int,
    targets: np.ndarray | None = None,
    seed: Seed = 0,
) -> HeatBathRun:
    """Heat-bath sweeps at `temperature` > 0 in the memory of `patterns` (N, d).

    From `starts` (Q, d), each for itself; `targets` (Q, d) are what overlaps s·target/d are taken
    with, the starts unless given. Raises ValueError for entries other than ±1 and for N·d ≥ 2^24,
    where sums in single precision would be rounded.
    """
    stored = np.asarray(patterns, dtype=float)
    begin = np.asarray(starts, dtype=float)
    aims = begin if targets is None else np.asarray(targets, dtype=float)
    for name, spins in (("patterns", stored), ("starts", begin), ("targets", aims)):
        if not (np.abs(spins) == 1.0).all():
            raise ValueError(f"{name} must hold only -1 and 1")
    if stored.size == 0 or stored.size >= _EXACT:
        raise ValueError(f"patterns must hold between 1 and 2^24 - 1 spins, got {stored.shape}")
    rng = numpy_generator(seed)
    columns = np.ascontiguousarray(stored.T, dtype=np.float32)
    # The kernels turn these into where the copies ended.
    states = begin.astype(np.float32)
    overlaps, energies = np.empty((2, len(states), sweeps))
    gain = 2.0 / (temperature * stored.shape[1])
    _heat_bath(columns, states, aims.astype(np.float32), gain, rng, overlaps, energies)
    return HeatBathRun(states=states.astype(np.int8), overlaps=overlaps, energies=energies)


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
                # Sums of integers below 2^24: reordering them changes nothing.
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


BURN = 100
HEATING = 100
# A state with less than this share of the overlap at the fold has left the pattern.
_LEFT = 0.5


def draw_patterns(dim: int, *, load: float, seed: Seed) -> np.ndarray:
    """round(αd) random patterns ±1 of d = `dim` spins, (N, d) int8, at least one."""
    count = round(load * dim)
    bits = numpy_generator(seed).integers(0, 2, (max(count, 1), dim), dtype=np.int8)
    return 2 * bits - 1


def retrieval(
    dim: int, *, load: float, fraction: float, networks: int, sweeps: int = 200, seed: Seed = 0
) -> tuple[Estimate, Estimate]:
    """Overlap with the pattern and energy per spin at T = `fraction`·T_M(α), started there.

    Averages over `sweeps` sweeps after `BURN`, in `networks` independent networks.
    """
    temperature = fraction * melting_temperature(load)
    found = []
    for rng in numpy_generator(seed).spawn(networks):
        patterns = draw_patterns(dim, load=load, seed=rng)
        run = run_heat_bath(
            patterns, starts=patterns[:1], temperature=temperature, sweeps=BURN + sweeps, seed=rng
        )
        found.append([run.overlaps[0, BURN:].mean(), run.energies[0, BURN:].mean()])
    both = np.array(found)
    return mean_estimate(both[:, 0]), mean_estimate(both[:, 1])


def melting(dim: int, *, load: float, networks: int, seed: Seed = 0) -> np.ndarray:
    """T/T_M at which heated networks lose their pattern, from 0.7 in steps of 0.02, (networks,).

    Each temperature lasts `HEATING` sweeps; the pattern is lost where the mean overlap of the
    second half of them is below half of the theory's overlap at the fold. A network that lasts
    to 2 T_M counts with 2.
    """
    top = melting_temperature(load)
    kept = _LEFT * retrieval_fold(top).overlap
    fractions = np.full(networks, 2.0)
    for index, rng in enumerate(numpy_generator(seed).spawn(networks)):
        patterns = draw_patterns(dim, load=load, seed=rng)
        spins = patterns[:1]
        for rise in range(66):
            fraction = 0.7 + 0.02 * rise
            run = run_heat_bath(
                patterns,
                starts=spins,
                targets=patterns[:1],
                temperature=fraction * top,
                sweeps=HEATING,
                seed=rng,
            )
            spins = run.states
            if run.overlaps[0, HEATING // 2 :].mean() < kept:
                fractions[index] = fraction
                break
    return fractions


def copies_overlap(
    dim: int,
    *,
    load: float,
    temperature: float,
    networks: int,
    burn: int = 500,
    snapshots: int = 20,
    gap: int = 20,
    seed: Seed = 0,
) -> Estimate:
    """⟨q²⟩ of two copies of a network that started at random: q = s·s'/d.

    After `burn` sweeps, `snapshots` are compared, `gap` sweeps apart. Times d it is the
    spin-glass susceptibility; it stays finite above T_g, and ⟨q²⟩ does below.
    """
    squares = np.empty((networks, snapshots))
    for index, rng in enumerate(numpy_generator(seed).spawn(networks)):
        patterns = draw_patterns(dim, load=load, seed=rng)
        spins = 2 * rng.integers(0, 2, (2, dim), dtype=np.int8) - 1
        for shot in range(snapshots):
            spins = run_heat_bath(
                patterns,
                starts=spins,
                temperature=temperature,
                sweeps=gap if shot else burn,
                seed=rng,
            ).states
            squares[index, shot] = (spins[0].astype(np.float64) @ spins[1] / dim) ** 2
    return mean_estimate(squares.mean(axis=1))
