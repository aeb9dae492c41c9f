"""Networks in a heat bath: overlap kept, temperature of melting, overlap of two copies.

Temperatures are given as `fraction` of the melting temperature T_M(α) of the theory where a
pattern is retrieved. Errors are standard errors over independent networks, one pattern and one
run in each.
"""

from __future__ import annotations

import numpy as np

from compendium.c11b_load_and_temperature.heat_bath import run_heat_bath
from compendium.c11b_load_and_temperature.replica import melting_temperature, retrieval_fold
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate

BURN = 100
# A state with less than this share of the overlap at the fold has left the pattern.
_LEFT = 0.5


@record
class HeatedNetwork:
    """Networks that were heated until they melted.

    fractions: (networks,), T/T_M of the first temperature at which the pattern was lost.
    temperature: T_M itself.
    """

    fractions: np.ndarray
    temperature: float

    @property
    def estimate(self) -> Estimate:
        """Mean of the fractions, its error over networks."""
        return mean_estimate(self.fractions)


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


def melting(
    dim: int,
    *,
    load: float,
    networks: int,
    first: float = 0.7,
    step: float = 0.02,
    sweeps: int = 100,
    seed: Seed = 0,
) -> HeatedNetwork:
    """T/T_M at which heated networks lose their pattern, in steps of `step` from `first`.

    Each temperature lasts `sweeps` sweeps; the pattern is lost where the mean overlap of the
    second half of them is below half of the theory's overlap at the fold. A network that lasts
    to 2 T_M counts with 2.
    """
    top = melting_temperature(load)
    kept = _LEFT * retrieval_fold(top).overlap
    fractions = np.full(networks, 2.0)
    for index, rng in enumerate(numpy_generator(seed).spawn(networks)):
        patterns = draw_patterns(dim, load=load, seed=rng)
        spins = patterns[:1]
        for rise in range(int((2.0 - first) / step) + 1):
            fraction = first + rise * step
            run = run_heat_bath(
                patterns,
                starts=spins,
                targets=patterns[:1],
                temperature=fraction * top,
                sweeps=sweeps,
                seed=rng,
            )
            spins = run.states
            if run.overlaps[0, sweeps // 2 :].mean() < kept:
                fractions[index] = fraction
                break
    return HeatedNetwork(fractions=fractions, temperature=top)


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
