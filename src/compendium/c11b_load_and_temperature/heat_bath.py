"""The classical memory at a temperature: heat-bath dynamics, cheap because W is never formed.

d spins ±1, patterns are N rows of d entries ±1, E = −(1/2d) Σ_μ (x_μ·s)² + N/2, which is
−½ Σ_ij J_ij s_i s_j with J_ij = (1/d) Σ_μ x_μi x_μj and J_ii = 0. In a sweep every spin, in order,
is drawn anew: up with probability 1/(1 + exp(−2h_i/T)), h_i = Σ_j J_ij s_j. A visit costs N
operations: the products x_μ·s are kept up to date.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

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
