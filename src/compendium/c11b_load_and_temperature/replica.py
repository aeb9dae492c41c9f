"""The classical memory at a load α and a temperature T: replica-symmetric theory.

d spins, N = αd random patterns ±1, J_ij = (1/d) Σ_μ x_μi x_μj, J_ii = 0, E = −½ Σ_ij J_ij s_i s_j,
β = 1/T [amit1985storing; amit1987statistical]. With u = β(√(αr) z + m), z a unit normal,

    m = E tanh u,   q = E tanh² u,   r = q/(1 − C)²,   C = β(1 − q).

m is the overlap with the one pattern that is retrieved, q the overlap of two copies of the state,
αr the variance of the field that the other patterns exert. In x = βm and y = β√(αr) the
averages M(x, y) = E tanh(yz + x) and Q(x, y) = E tanh²(yz + x) give T = M/x and
α = (Ty)²(1 − C)²/Q without any iteration: at a given T the retrieval states are one curve in y,
along which α rises from zero to one maximum, the fold where retrieval ends, and falls again.
Solutions beyond the fold are no minima and are not returned.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.core.special import normal_average

# Below, `capacity` has the closed form of T = 0, and averages would need ever more nodes.
LOWEST = 0.01
_ROOT = 1e-13
# The fold is a maximum: its place is known to the root of what its height is known to.
_FOLD = 1e-9
_TOLERANCE = 1e-9


@record
class ReplicaState(Solution[float]):
    """One state of the theory. value: the overlap m with the pattern, 0 in the spin glass.

    residual: largest deviation in the equations for m, q and r when it is put back.
    copies: q. noise: r. response: C. free_energy, energy: per spin, at `load` and `temperature`.
    replicon: 1 − αβ²/(1 − C)² E sech⁴ u, the eigenvalue (up to a positive factor) that turns
    negative where replica symmetry is broken (de Almeida and Thouless).
    """

    copies: float
    noise: float
    response: float
    free_energy: float
    energy: float
    replicon: float
    load: float
    temperature: float


@record
class Fold:
    """End of retrieval at one temperature: the largest load and the overlap there."""

    load: float
    overlap: float


def glass_temperature(load: float) -> float:
    """T_g = 1 + √α, below which random states freeze into a spin glass."""
    return 1.0 + math.sqrt(load)


def retrieval_fold(temperature: float) -> Fold:
    """The load at which the retrieval state and its unstable partner meet, for T in [0.01, 1).

    The maximum of α along the curve of states: near T = 0 the α_c = 0.138 of
    `capacity.ags_capacity`, near T = 1 it falls as (1 − T)²/3.8.
    """
    _check_temperature(temperature, below_one=True)
    y = _fold_place(temperature)
    x = _field(y, temperature)
    return Fold(load=_load(x, y, temperature), overlap=temperature * x)


def melting_temperature(load: float) -> float:
    """T_M(α) for loads in [1e-4, 0.1375]: retrieval states exist below it.

    Between 0.1379 and 0.1382 the fold bends back at low temperature, so that there are two.
    """
    return float(brentq(lambda t: retrieval_fold(t).load - load, 0.03, 0.9999, xtol=1e-10))


def replica_state(
    load: float, *, temperature: float, phase: str = "retrieval", throw: bool = True
) -> ReplicaState:
    """The state of `phase` ("retrieval" or "spin glass") at 0 < α = `load` ≤ 1e5 and T ≥ 0.01.

    Above T_g the spin glass is the paramagnet, q = 0. Where no retrieval state exists, the fold
    at this temperature is returned with status STALLED and the misfit in α as residual, or
    NotConverged raised if `throw`; for T ≥ 1 there is not even a fold (ValueError).
    """
    _check_temperature(temperature, below_one=phase == "retrieval")
    if phase == "spin glass":
        return _describe(0.0, _glass_place(load, temperature), load, temperature)
    fold = _fold_place(temperature)
    x = _field(fold, temperature)
    if _load(x, fold, temperature) < load:
        state = _describe(x, fold, load, temperature)
        if throw:
            state.require(f"a retrieval state at load {load:g} and temperature {temperature:g}")
        return state
    # α rises from 0 as y² while y runs up to the fold.
    y = brentq(
        lambda y: _load(_field(y, temperature), y, temperature) - load, 1e-9, fold, xtol=_ROOT
    )
    return _describe(_field(y, temperature), y, load, temperature)


def coexistence_load(temperature: float) -> float:
    """The load at which retrieval state and spin glass have one free energy, T in [0.01, 1).

    Below it retrieval states are the global minimum: the inverse of T_c(α). 0.051 near T = 0.
    """
    _check_temperature(temperature, below_one=True)

    def gap(y: float) -> float:
        x = _field(y, temperature)
        load = _load(x, y, temperature)
        retrieval = _free_energy(x, y, load, temperature)
        return retrieval - _free_energy(0.0, _glass_place(load, temperature), load, temperature)

    fold = _fold_place(temperature)
    y = float(brentq(gap, 1e-3 * fold, fold, xtol=1e-11))
    return _load(_field(y, temperature), y, temperature)


def glass_susceptibility(load: float, *, temperature: float) -> float:
    """d⟨q²⟩ of two independent copies above T_g: 1/(1 − αβ²/(1 − β)²), for d → ∞.

    The inverse of the replicon at m = q = 0; no number of the model at or below T_g.
    """
    return 1.0 / (1.0 - load / (temperature - 1.0) ** 2)


def _check_temperature(temperature: float, *, below_one: bool) -> None:
    if temperature < LOWEST or (below_one and temperature >= 1.0):
        raise ValueError(f"temperature must be in [0.01, 1) for retrieval, got {temperature}")


def _averages(x: float, y: float) -> tuple[float, float, float]:
    """E of tanh, tanh² and sech⁴ of yz + x.

    The trapezoidal rule, with a step at which the poles of tanh at ±iπ/2 cost e^{−39}.
    """
    step = min(0.2, 0.25 / max(y, 1e-9))
    z = np.arange(-math.ceil(9.0 / step), math.ceil(9.0 / step) + 1) * step
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    first = np.tanh(y * z + x)
    second = first**2
    return float(weight @ first), float(weight @ second), float(weight @ (1.0 - second) ** 2)


def _field(y: float, temperature: float) -> float:
    """x > 0 with M(x, y) = Tx: M is concave in x, so there is one if the slope at 0 exceeds T."""
    return float(
        brentq(
            lambda x: _averages(x, y)[0] - temperature * x, 1e-7, 1.001 / temperature, xtol=_ROOT
        )
    )


def _load(x: float, y: float, temperature: float) -> float:
    copies = _averages(x, y)[1]
    return (temperature * y * (1.0 - (1.0 - copies) / temperature)) ** 2 / copies


def _edge(temperature: float) -> float:
    """y at which C = 1 and α = 0 without a pattern, T < 1: there the two phases' curves meet."""
    return float(
        brentq(
            lambda y: 1.0 - _averages(0.0, y)[1] - temperature, 1e-9, 2.0 / temperature, xtol=_ROOT
        )
    )


def _fold_place(temperature: float) -> float:
    edge = _edge(temperature)
    top = minimize_scalar(
        lambda y: -_load(_field(y, temperature), y, temperature),
        bounds=(1e-3 * edge, 0.999 * edge),
        method="bounded",
        options={"xatol": _FOLD * edge},
    )
    return float(top.x)


def _glass_place(load: float, temperature: float) -> float:
    """y of the state without a pattern; 0 above T_g."""
    if temperature >= glass_temperature(load):
        return 0.0
    low = _edge(temperature) if temperature < 1.0 else 1e-7
    high = 2.0 * low + 1.0
    while _load(0.0, high, temperature) < load:
        high *= 2.0
    return float(brentq(lambda y: _load(0.0, y, temperature) - load, low, high, xtol=_ROOT))


def _free_energy(x: float, y: float, load: float, temperature: float) -> float:
    """f at a stationary point, with ln 2cosh in a form that does not overflow."""
    copies = _averages(x, y)[1]
    left = 1.0 - (1.0 - copies) / temperature
    noise = copies / left**2
    entropy = normal_average(
        lambda z: np.abs(y * z + x) + np.log1p(np.exp(-2.0 * np.abs(y * z + x))), steepness=y
    )
    return float(
        0.5 * load
        + 0.5 * (temperature * x) ** 2
        + 0.5 * load * temperature * (math.log(left) - copies / (temperature * left))
        + 0.5 * load * noise * (1.0 - copies) / temperature
        - temperature * entropy
    )


def _describe(x: float, y: float, load: float, temperature: float) -> ReplicaState:
    """The record of the state at x and y, its residual from averages over other nodes."""
    overlap, (_, copies, fourth) = temperature * x, _averages(x, y)
    response = (1.0 - copies) / temperature
    left = 1.0 - response
    residual = max(
        abs(normal_average(lambda z: np.tanh(y * z + x), steepness=y) - overlap),
        abs(normal_average(lambda z: np.tanh(y * z + x) ** 2, steepness=y) - copies),
        abs((temperature * y * left) ** 2 - load * copies),
    )
    noise = copies / left**2
    return ReplicaState(
        value=overlap,
        residual=residual,
        steps=0,
        status=Status.CONVERGED if residual < _TOLERANCE else Status.STALLED,
        copies=copies,
        noise=noise,
        response=response,
        free_energy=_free_energy(x, y, load, temperature),
        energy=0.5 * load - 0.5 * overlap**2 - 0.5 * load * (noise + (1.0 - copies) / left),
        replicon=1.0 - load * fourth / (temperature * left) ** 2,
        load=load,
        temperature=temperature,
    )
