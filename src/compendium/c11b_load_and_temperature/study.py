"""The classical memory at a load α and a temperature T: replica-symmetric theory, simulation.

d spins, N = αd random patterns ±1, J_ij = (1/d) Σ_μ x_μi x_μj, J_ii = 0, E = −½ Σ_ij J_ij s_i s_j,
β = 1/T; m, q, r and C are the chapter's [amit1985storing; amit1987statistical]. In x = βm and
y = β√(αr) the averages M = E tanh(yz + x) and Q = E tanh²(yz + x) give T = M/x and
α = (Ty)²(1 − C)²/Q: at a given T the retrieval states are one curve in y, along which α rises from
zero to one maximum, the fold, and falls again; beyond it states are no minima. Retrieval is asked
for at 0.01 ≤ T < 1: below, averages would need ever more nodes.

In a sweep of the heat bath every spin, in order, is drawn anew. W is never formed: the products
x_μ·s are kept up to date, so that a visit costs N operations. `fraction` is of the theory's T_M(α).
Errors are standard errors over independent networks, one pattern and one run in each.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numba import njit
from scipy.optimize import brentq, minimize_scalar

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate

LOADS = (0.02, 0.05, 0.08, 0.11)
FRACTIONS = (0.4, 0.6, 0.8)
# Networks at each size: the larger ones scatter less.
NETWORKS = {500: 64, 1000: 48, 2000: 32, 4000: 16}
GLASS_LOAD = 0.05


@record
class ReplicaState:
    """One state of the theory: m, q, and free energy and energy per spin.

    replicon: 1 − αβ²/(1 − C)² E sech⁴ u, the eigenvalue (up to a positive factor) that turns
    negative where replica symmetry is broken (de Almeida and Thouless).
    """

    overlap: float
    copies: float
    free_energy: float
    energy: float
    replicon: float


def retrieval_fold(temperature: float) -> tuple[float, float]:
    """The largest load with a retrieval state, where it meets its unstable partner; its overlap."""
    x, load = _at_pattern(_fold_place(temperature), temperature)
    return load, temperature * x


def melting_temperature(load: float) -> float:
    """T_M(α) for loads in [1e-4, 0.1375]: retrieval states exist below it.

    Between 0.1379 and 0.1382 the fold bends back at low temperature, so that there are two.
    """
    return float(brentq(lambda t: retrieval_fold(t)[0] - load, 0.03, 0.9999, xtol=1e-10))


def replica_state(load: float, *, temperature: float, retrieval: bool = True) -> ReplicaState:
    """The state at a pattern, or the spin glass, which above 1 + √α is the paramagnet, q = 0.

    Raises ValueError beyond the fold, where no state is left at a pattern.
    """
    if not retrieval:
        return _describe(0.0, _glass_place(load, temperature), load, temperature)
    # α rises from 0 as y² while y runs up to the fold.
    y = _root(lambda y: _at_pattern(y, temperature)[1] - load, 1e-9, _fold_place(temperature))
    return _describe(_at_pattern(y, temperature)[0], y, load, temperature)


def coexistence_load(temperature: float) -> float:
    """The load at which retrieval state and spin glass have one free energy.

    Below it retrieval states are the global minimum: the inverse of T_c(α). 0.051 near T = 0.
    """

    def gap(y: float) -> float:
        x, load = _at_pattern(y, temperature)
        glass = replica_state(load, temperature=temperature, retrieval=False)
        return _describe(x, y, load, temperature).free_energy - glass.free_energy

    fold = _fold_place(temperature)
    return _at_pattern(_root(gap, 1e-3 * fold, fold), temperature)[1]


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-13))


def _nodes(x: float, y: float) -> tuple[np.ndarray, np.ndarray]:
    """yz + x and its weights; with this step the poles of tanh at ±iπ/2 cost e^{−39}."""
    step = min(0.2, 0.25 / max(y, 1e-9))
    z = np.arange(-math.ceil(9.0 / step), math.ceil(9.0 / step) + 1) * step
    weight = np.exp(-0.5 * z**2)
    return y * z + x, weight / weight.sum()


def _averages(x: float, y: float) -> tuple[float, float]:
    """E of tanh and tanh² of yz + x."""
    fields, weight = _nodes(x, y)
    first = np.tanh(fields)
    return float(weight @ first), float(weight @ first**2)


def _load(x: float, y: float, temperature: float) -> float:
    copies = _averages(x, y)[1]
    return (temperature * y * (1.0 - (1.0 - copies) / temperature)) ** 2 / copies


def _at_pattern(y: float, temperature: float) -> tuple[float, float]:
    """x > 0 with M(x, y) = Tx, one if the slope at 0 exceeds T, as M is concave in x; the load."""
    x = _root(lambda x: _averages(x, y)[0] - temperature * x, 1e-7, 1.001 / temperature)
    return x, _load(x, y, temperature)


def _edge(temperature: float) -> float:
    """y at which C = 1 and α = 0 without a pattern, T < 1: there the two phases' curves meet."""
    return _root(lambda y: 1.0 - _averages(0.0, y)[1] - temperature, 1e-9, 2.0 / temperature)


def _fold_place(temperature: float) -> float:
    edge = _edge(temperature)
    top = minimize_scalar(
        lambda y: -_at_pattern(y, temperature)[1],
        bounds=(1e-3 * edge, 0.999 * edge),
        method="bounded",
        # A maximum's place is known to the root of what its height is known to.
        options={"xatol": 1e-9 * edge},
    )
    return float(top.x)


def _glass_place(load: float, temperature: float) -> float:
    """y of the state without a pattern; 0 above T_g."""
    if temperature >= 1.0 + math.sqrt(load):
        return 0.0
    low = _edge(temperature) if temperature < 1.0 else 1e-7
    high = 2.0 * low + 1.0
    while _load(0.0, high, temperature) < load:
        high *= 2.0
    return _root(lambda y: _load(0.0, y, temperature) - load, low, high)


def _describe(x: float, y: float, load: float, temperature: float) -> ReplicaState:
    fields, weight = _nodes(x, y)
    overlap = temperature * x
    copies = _averages(x, y)[1]
    left = 1.0 - (1.0 - copies) / temperature
    noise = copies / left**2
    fourth = float(weight @ (1.0 - np.tanh(fields) ** 2) ** 2)
    free_energy = (
        0.5 * (load + overlap**2)
        + 0.5 * load * temperature * (math.log(left) - copies / (temperature * left))
        + 0.5 * load * noise * (1.0 - copies) / temperature
        - temperature * (weight @ np.logaddexp(fields, -fields))
    )
    return ReplicaState(
        overlap=overlap,
        copies=copies,
        free_energy=float(free_energy),
        energy=0.5 * (load - overlap**2 - load * (noise + (1.0 - copies) / left)),
        replicon=1.0 - load * fourth / (temperature * left) ** 2,
    )


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
        spins = states[q]
        target = targets[q]
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
            same = 0.0
            squares = 0.0
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
    temperature = fraction * melting_temperature(load)
    overlaps = []
    energies = []
    for patterns, rng in draw_networks(dim, load=load, networks=networks, seed=seed):
        _, overlap, energy = run_heat_bath(
            patterns, starts=patterns[:1], temperature=temperature, sweeps=300, seed=rng
        )
        overlaps.append(overlap[0, 100:].mean())
        energies.append(energy[0, 100:].mean())
    return mean_estimate(overlaps), mean_estimate(energies)


def melting(dim: int, *, load: float, networks: int, seed: Seed = 0) -> np.ndarray:
    """T/T_M at which heated networks lose their pattern, from 0.7 in steps of 0.02, (networks,).

    Each temperature lasts 100 sweeps; the pattern is lost where the mean overlap of the second half
    of them is below half of the theory's overlap at the fold. The last temperature is 2 T_M.
    """
    top = melting_temperature(load)
    fractions = []
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


@stored("retrieval", parameter_product(dim=NETWORKS, load=LOADS, fraction=FRACTIONS), seconds=0.5)
def retrieval_table(dim: int, load: float, fraction: float) -> Rows:
    """Overlap kept and energy below the temperature of melting."""
    overlap, energy = retrieval(
        dim, load=load, fraction=fraction, networks=NETWORKS[dim], seed=dim + round(1e4 * load)
    )
    return rows_of(overlap=overlap, energy=energy)


@stored("melting", parameter_product(dim=NETWORKS, load=LOADS), seconds=1.5)
def melting_table(dim: int, load: float) -> Rows:
    """Where heated networks lose their pattern, a row for each."""
    seed = dim + round(1e4 * load) + 1
    fractions = melting(dim, load=load, networks=NETWORKS[dim], seed=seed)
    return rows_of(network=range(len(fractions)), fraction=fractions)


@stored(
    "copies",
    parameter_product(dim=(500, 1000, 2000), temperature=(0.9, 1.0, 1.1, 1.35, 1.5, 1.8)),
    seconds=3.0,
)
def copies_table(dim: int, temperature: float) -> Rows:
    """Squared overlap of two copies that started at random."""
    seed = dim + round(100 * temperature)
    return rows_of(
        squared=copies_overlap(
            dim, load=GLASS_LOAD, temperature=temperature, networks=32, seed=seed
        )
    )


@stored("settings_A6b", numbered(melting_table.units), seconds=0.1)
def settings_A6b(data: int, dim: int, load: float) -> Rows:
    """Temperature at which networks lose a pattern minus 1 + √α, where the theory's glass ends."""
    table = melting_table.read()
    lost = table["fraction"][(table["dim"] == dim) & (table["load"] == load)]
    return mean_rows(lost * melting_temperature(load) - (1 + load**0.5))
