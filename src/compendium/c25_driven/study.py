"""Chapter 25: mean-field theories of kinetic Ising spins held to simulation and to exact sums.

Predicted for `order_table`: Binder's ratio of the sizes 128 and 512 crosses within 0.03 of theory's
critical β, 1.1108, at a height within 0.05 of 0.2705; smaller sizes cross further off.

A unit computed again agrees to six digits on one kind of processor; another rounds sums of
couplings otherwise, and a spin that falls the other way starts another history: then the moments
of one network agree to a few per cent.
"""

import math
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

from bookmaker.tables import Rows, stored
from compendium.common.rows import array_of, parameter_product, rows_of
from spinformer.core.special import gaussian_expectation, gaussian_quadrature
from spinformer.core.states import spin_states
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import glauber_trajectory, kinetic_stationary, log_transitions

KINETIC_METHODS = ("naive", "tap", "gaussian")


def kinetic_mean_field(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray, method: str
) -> np.ndarray:
    """Magnetizations (T+1, N) under the `drive` (T, N), from `initial` (N,).

    With m at time t and m' at t + 1, a_i = x_i + Σ_j J_ij m_j, D_i = Σ_j J_ij² (1 − m_j²):

    - "naive": m' = tanh βa, right to first order in J;
    - "tap": m' = tanh(βa − β² m' D), the Onsager term at the new time, right to second order
      [roudi2011dynamical];
    - "gaussian": m' = E_z tanh(βa + β√D z), exact for asymmetric couplings of large systems
      [mezard2011exact].
    """
    path = [np.asarray(initial, dtype=float)]
    for x in drive:
        m = path[-1]
        mean = beta * (x + couplings @ m)
        spread = beta**2 * (couplings**2 @ (1 - m**2))
        if method == "naive":
            path.append(np.tanh(mean))
        elif method == "tap":
            path.append(_solve_onsager(mean, spread))
        else:
            width = np.sqrt(spread)
            nodes, weights = gaussian_quadrature(width.max())
            path.append(np.tanh(mean[:, None] + width[:, None] * nodes) @ weights)
    return np.array(path)


def _solve_onsager(mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The root of m = tanh(mean − spread m), by halving: y + spread tanh(y) − mean rises in y."""
    low = mean - spread
    high = mean + spread
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = middle + spread * np.tanh(middle) > mean
        low = np.where(above, low, middle)
        high = np.where(above, middle, high)
    return np.tanh(low)


def critical_beta(
    coupling_std: float, *, field: str = "gaussian", field_scale: float = 0.5
) -> float:
    """Where the model with random fields orders: 1 = β E[1 − tanh² β(x + J_s z)].

    J_s is `coupling_std`, the mean coupling one, and the fields x are normal with standard
    deviation `field_scale` (`field` "gaussian") or uniform on [−field_scale, field_scale]
    ("uniform") [aguilera2021unifying]. The smallest such β, or infinity: strong fields prevent
    order.
    """
    uniform = field == "uniform" and field_scale > 0.0
    width = coupling_std if uniform else math.hypot(field_scale, coupling_std)
    if width == 0.0 and not uniform:
        return 1.0

    def gain(beta: float) -> float:
        def turned(z: np.ndarray) -> np.ndarray:
            # The average of sech² over uniform fields in closed form, over normal ones by parts.
            if uniform:
                return np.asarray(np.tanh(beta * (field_scale + width * z)) / field_scale)
            return np.asarray(z * np.tanh(beta * width * z) / width)

        return gaussian_expectation(turned, steepness=beta * width)

    high = 1.0
    while gain(high) < 1.0:
        high *= 2.0
        # It grows with β, but steps so steep do not change any more.
        if high * width > 3e4 or high > 1e12:
            return math.inf
    return float(brentq(lambda b: gain(b) - 1, 0.5 * high, high, xtol=1e-13, rtol=1e-13))


BETAS = (1.05, 1.08, 1.11, 1.14, 1.17)
MOMENTS = ("absolute", "second", "fourth")


def entropy_by_three_routes(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, replicas: int, seed: int
) -> dict[str, float]:
    """Entropy production of up to 12 spins under constant `fields` (N,), per spin in nats a step.

    `definition`: summed over all pairs of states. `simulated`: from delayed correlations in the
    last 10 of 20 steps from the exact magnetizations. `leading`: the leading order in J,
    β²/2 Σ (J_ij − J_ji)² v_i v_j with v = 1 − m².
    """
    state = kinetic_stationary(couplings, drive=fields, beta=beta)
    m = state.magnetization
    rng = np.random.default_rng(seed)
    start = np.where(rng.random((replicas, len(m))) < 0.5 * (1.0 + m), 1.0, -1.0)
    path = glauber_trajectory(couplings, beta=beta, states=start, steps=20, fields=fields, seed=rng)
    late = np.mean([new.T @ old.astype(float) / replicas for old, new in pairwise(path[10:])], 0)
    v = 1 - m**2
    square = (beta * (couplings - couplings.T)) ** 2
    produced = {
        "definition": state.entropy_production,
        "simulated": entropy_production(couplings, beta=beta, delayed=late),
        "leading": 0.5 * v @ square @ v,
    }
    return {name: float(value) / len(fields) for name, value in produced.items()}


def entropy_production(couplings: np.ndarray, *, beta: float, delayed: np.ndarray) -> float:
    """β Σ_ij (J_ij − J_ji) ⟨s_i(t+1) s_j(t)⟩, exact in the stationary state."""
    return float(beta * np.sum((couplings - couplings.T) * delayed))


def exact_magnetizations(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray
) -> np.ndarray:
    """⟨s(t)⟩ (T + 1, N) under the `drive` (T, N), from independent spins: all states tracked."""
    states = spin_states(len(initial))
    p = np.prod((1 + states * initial) / 2, axis=1)
    means = [p @ states]
    for fields in drive:
        p = np.exp(log_transitions(couplings, fields=fields, beta=beta)) @ p
        means.append(p @ states)
    return np.array(means)


def squared_errors(
    size: int, *, symmetry: float, beta: float, steps: int, systems: int, replicas: int, seed: int
) -> dict[str, Estimate]:
    """Mean square error of every theory after `steps` steps under a constant random drive.

    Fields of standard deviation one half, a start without magnetization. The square is the product
    of the differences from two halves of a simulation, so that noise averages out: small errors may
    come out negative.
    """
    squared: dict[str, list[float]] = {method: [] for method in KINETIC_METHODS}
    for copy in range(systems):
        number = seed + 100 * copy + size
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=number)
        fields = 0.5 * np.random.default_rng(number).standard_normal(size)
        halves = []
        for rng in np.random.default_rng(copy).spawn(2):
            start = rng.choice([-1.0, 1.0], (replicas // 2, size))
            path = glauber_trajectory(
                couplings, beta=beta, states=start, steps=steps, fields=fields, seed=rng
            )
            halves.append(path[-1].mean(0))
        drive = np.tile(fields, (steps, 1))
        for method in KINETIC_METHODS:
            end = kinetic_mean_field(
                couplings, drive=drive, beta=beta, initial=np.zeros(size), method=method
            )[-1]
            squared[method].append(float(np.mean((end - halves[0]) * (end - halves[1]))))
    return {method: mean_estimate(values) for method, values in squared.items()}


@stored(
    "sizes",
    parameter_product(symmetry=(0.0, 1.0), size=(16, 32, 64, 128, 256)),
    seconds=0.5,
    rtol=0.2,
    within={"value": 2e-4, "error": 2e-4},
)
def sizes_table(symmetry: float, size: int) -> Rows:
    """A row for each theory: its squared error in systems of this size, β = 1.5, eight steps."""
    systems = max(4, min(32, 1024 // size))
    found = squared_errors(
        size, symmetry=symmetry, beta=1.5, steps=8, systems=systems, replicas=4000, seed=0
    )
    return [
        {"theory": name, "value": float(one.value), "error": float(one.error)}
        for name, one in found.items()
    ]


def order_moments(
    size: int,
    *,
    betas: np.ndarray,
    systems: int,
    replicas: int = 32,
    steps: int = 300,
    coupling_std: float = 0.1,
    field_scale: float = 0.5,
    seed: int = 0,
) -> np.ndarray:
    """Averages of |M|, M² and M⁴ over replicas and steps, M the mean spin: (3, systems, betas).

    Couplings of mean 1/N and standard deviation `coupling_std`/√N in both directions, constant
    fields on an even grid over ±`field_scale`, random starts; a third of the `steps` is dropped.
    """
    fields = field_scale * np.linspace(-1, 1, size)
    moments = np.empty((3, systems, len(betas)))
    for copy, rng in enumerate(np.random.default_rng(seed).spawn(systems)):
        couplings = gaussian_couplings(size, mean=1.0, std=coupling_std, seed=rng)
        for column, beta in enumerate(betas.tolist()):
            start = rng.choice([-1.0, 1.0], (replicas, size))
            path = glauber_trajectory(
                couplings, beta=beta, states=start, steps=steps, fields=fields, seed=rng
            )
            mean = path[steps // 3 :].mean(-1)
            moments[:, copy, column] = np.abs(mean).mean(), (mean**2).mean(), (mean**4).mean()
    return moments


def binder(moments: np.ndarray) -> np.ndarray:
    """1 − [M⁴]/(3 [M²]²) (betas,) over all systems: 0 for a normal M, 2/3 for an ordered one."""
    _, second, fourth = moments.mean(1)
    return 1.0 - fourth / (3.0 * second**2)


def binder_crossing(
    betas: np.ndarray, *, small: np.ndarray, large: np.ndarray, draws: int = 200, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """β and Binder's ratio where those of two sizes cross, with bootstrap errors over systems.

    The difference is fitted by a straight line in β, the ratio of the larger size by another.
    """
    rng = np.random.default_rng(seed)
    systems = large.shape[1]

    def crossing(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
        slope, offset = np.polyfit(betas, high - low, 1)
        at = -offset / slope
        return at, float(np.polyval(np.polyfit(betas, high, 1), at))

    def drawn(moments: np.ndarray) -> np.ndarray:
        return binder(moments[:, rng.integers(0, systems, systems)])

    values = crossing(binder(small), binder(large))
    spread = np.std([crossing(drawn(small), drawn(large)) for _ in range(draws)], axis=0)
    at = Estimate(value=values[0], error=float(spread[0]), samples=systems)
    ratio = Estimate(value=values[1], error=float(spread[1]), samples=systems)
    return at, ratio


@stored("order", parameter_product(size=(64, 128, 256, 512), copy=range(24)), seconds=0.2)
def order_table(size: int, copy: int) -> Rows:
    """The moments of one network at each inverse temperature."""
    run = order_moments(size, betas=np.array(BETAS), systems=1, steps=600, seed=1000 * size + copy)
    absolute, second, fourth = run[:, 0]
    return rows_of(beta=BETAS, absolute=absolute, second=second, fourth=fourth)


def stored_moments(size: int) -> np.ndarray:
    """The stored moments of one size, (3, networks, BETAS)."""
    table = order_table.read()
    return np.array([array_of(table, name, "copy", "beta", size=size) for name in MOMENTS])
