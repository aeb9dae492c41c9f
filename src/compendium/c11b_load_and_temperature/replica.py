"""The classical memory at a load α and a temperature T: replica-symmetric theory.

d spins, N = αd random patterns ±1, J_ij = (1/d) Σ_μ x_μi x_μj, J_ii = 0, E = −½ Σ_ij J_ij s_i s_j,
β = 1/T [amit1985storing; amit1987statistical]. With u = β(√(αr) z + m), z a unit normal,

    m = E tanh u,   q = E tanh² u,   r = q/(1 − C)²,   C = β(1 − q).

m is the overlap with the one pattern that is retrieved, q the overlap of two copies of the state,
αr the variance of the field that the other patterns exert. In x = βm and y = β√(αr) the averages
M = E tanh(yz + x) and Q = E tanh²(yz + x) give T = M/x and α = (Ty)²(1 − C)²/Q without any
iteration: at a given T the retrieval states are one curve in y, along which α rises from zero to
one maximum, the fold where retrieval ends, and falls again; beyond it states are no minima.
Retrieval is asked for at 0.01 ≤ T < 1: below, averages would need ever more nodes.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from spinformer.core.records import record


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
    overlap, copies = temperature * x, _averages(x, y)[1]
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
