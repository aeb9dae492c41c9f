"""Driven Ising spins, which have no energy: simulated, in mean-field theories, and exactly.

All spins are redrawn at once,

    P(s_i(t+1) = ±1 | s(t)) ∝ exp(±β (x_i(t) + Σ_j J_ij s_j(t))),

J (N, N) any matrix: row i holds the couplings into spin i, the diagonal (a memory of itself) is
allowed, β is written outside. Drives have shape (T, N): x(t) acts on the step from t to t + 1, and
results have T + 1 entries, the first of which is the initial state. States are listed in the order
of `core.states.spin_states`, entropy production and exponents are in nats a step.
`ising.gaussian_couplings` draws networks between symmetric and asymmetric.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from scipy.special import erf

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_choice,
    check_integer,
    check_real,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.core.states import spin_states
from spinformer.core.statistics import Estimate
from spinformer.spins.ising import check_strength

KINETIC_METHODS = ("naive", "tap", "gaussian")

_MAX_EXACT_SPINS = 12
# States that are left out together: their effect on the others is one product of matrices.
_PANEL = 32

V = TypeVar("V")


@record
class KineticMoments(Generic[V]):
    """Averages along a run of T steps: arrays where they are exact, an `Estimate` each elsewhere.

    magnetization (T+1, N) of s_i(t), correlations (T+1, N, N) of s_i(t) s_j(t) and delayed
    (T, N, N) of s_i(t+1) s_j(t), means not subtracted; errors over independent replicas.
    """

    magnetization: V
    correlations: V
    delayed: V


def draw_spins(means: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Independent ±1 spins with the given means, one draw for each entry.

    Raises ValueError for a mean outside [−1, 1].

    >>> draw_spins(np.array([1.0, -1.0]), seed=0)
    array([ 1., -1.])
    """
    means = check_array("means", means, low=-1.0, high=1.0)
    return np.where(numpy_generator(seed).random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0)


def kinetic_path(
    couplings: np.ndarray,
    *,
    beta: float,
    states: np.ndarray,
    steps: int,
    seed: Seed,
    fields: np.ndarray | None = None,
) -> np.ndarray:
    """Orbits of R replicas in constant `fields` (N,), int8 array (steps + 1, R, N).

    From `states` (R, N), without fields unless they are given. Raises ValueError or TypeError for
    bad input.

    >>> ring = np.roll(np.eye(3), 1, axis=0)
    >>> kinetic_path(ring, beta=99.0, states=np.array([[1, -1, -1]]), steps=2, seed=0)[:, 0]
    array([[ 1, -1, -1],
           [-1,  1, -1],
           [-1, -1,  1]], dtype=int8)
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = np.zeros(len(j)) if fields is None else check_array("fields", fields, shape=(len(j),))
    beta = check_strength(beta, couplings=j, fields=x)
    current = check_array("states", states, shape=(None, len(j)), values=(-1, 1))
    steps = check_integer("steps", steps, low=0)
    rng = numpy_generator(seed)
    path = np.empty((steps + 1, *current.shape), dtype=np.int8)
    path[0] = current
    for step in range(1, steps + 1):
        current = _step(current, j, x, beta, rng)
        path[step] = current
    return path


def kinetic_simulation(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    replicas: int = 4096,
    seed: Seed = 0,
) -> KineticMoments[Estimate]:
    """Simulate `replicas` independent runs and average them.

    `drive` (T, N); `initial` (N,) holds the magnetizations of independent spins at time 0.
    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> m = kinetic_simulation(np.zeros((1, 1)), **free, replicas=1000).magnetization
    >>> bool(abs(m.value[1, 0] - np.tanh(0.5)) < 5 * m.error[1, 0])
    True
    """
    j, x, m0, beta = _check_run(couplings, drive, beta, initial)
    replicas = check_integer("replicas", replicas, low=2)
    rng = numpy_generator(seed)
    s = draw_spins(np.broadcast_to(m0, (replicas, len(m0))), seed=rng)
    means, pairs, delayed = [s.mean(0)], [s.T @ s / replicas], []
    for field in x:
        new = _step(s, j, field, beta, rng)
        delayed.append(new.T @ s / replicas)
        means.append(new.mean(0))
        pairs.append(new.T @ new / replicas)
        s = new

    def estimate(means: list[np.ndarray], *shape: int) -> Estimate:
        mean = np.array(means).reshape(-1, *shape)
        # The square of a sign is one, so that the mean has the variance.
        error = np.sqrt(np.maximum(1 - mean**2, 0) / (replicas - 1))
        return Estimate(value=mean, error=error, samples=replicas)

    size = len(m0)
    return KineticMoments(
        magnetization=estimate(means, size),
        correlations=estimate(pairs, size, size),
        delayed=estimate(delayed, size, size),
    )


def _check_run(
    couplings: np.ndarray, drive: np.ndarray, beta: float, initial: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = check_array("drive", drive, shape=(None, len(j)))
    m0 = check_array("initial", initial, shape=(len(j),), low=-1.0, high=1.0)
    return j, x, m0, check_strength(beta, couplings=j, drive=x)


def _step(
    states: np.ndarray, j: np.ndarray, field: np.ndarray, beta: float, rng: np.random.Generator
) -> np.ndarray:
    """All spins of all replicas (R, N) drawn at once, given where they were."""
    means = np.tanh(beta * (field + states @ j.T))
    return np.where(rng.random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0)


def kinetic_mean_field(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    initial: np.ndarray,
    method: str = "tap",
) -> np.ndarray:
    """Magnetizations (..., T+1, N) of the kinetic Ising model in a mean-field approximation.

    `couplings` (..., N, N), `drive` (..., T, N), `initial` (..., N) in [−1, 1]. With m at time
    t and m' at t + 1, a_i = x_i + Σ_j J_ij m_j, D_i = Σ_j J_ij² (1 − m_j²):

    - "naive": m' = tanh βa, right to first order in J;
    - "tap": m' = tanh(βa − β² m' D), the Onsager term at the new time, right to second order
      [roudi2011dynamical];
    - "gaussian": m' = E_z tanh(βa + β√D z), exact for asymmetric couplings of large systems
      [mezard2011exact], the average to 1e-8 at any spread.

    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> f"{kinetic_mean_field(np.zeros((1, 1)), **free)[1, 0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    j = check_array("couplings", couplings, square=True)
    x = check_array("drive", drive)
    m = check_array("initial", initial, low=-1.0, high=1.0)
    size = j.shape[-1]
    if x.ndim < 2 or x.shape[-1] != size:
        raise ValueError(f"drive must have shape (..., T, {size}), got {x.shape}")
    if m.ndim == 0 or m.shape[-1] != size:
        raise ValueError(f"initial must have shape (..., {size}), got {m.shape}")
    beta = check_strength(beta, couplings=j, drive=x)
    check_choice("method", method, KINETIC_METHODS)
    batch = check_broadcast(couplings=j.shape[:-2], drive=x.shape[:-2], initial=m.shape[:-1])
    result = np.empty((*batch, x.shape[-2] + 1, size))
    result[..., 0, :] = m
    square = j**2
    for t in range(x.shape[-2]):
        m = result[..., t, :]
        mean = beta * (x[..., t, :] + (j @ m[..., None])[..., 0])
        if method == "naive":
            result[..., t + 1, :] = np.tanh(mean)
            continue
        spread = beta**2 * (square @ (1 - m**2)[..., None])[..., 0]
        if method == "tap":
            result[..., t + 1, :] = _solve_onsager(mean, spread)
        else:
            result[..., t + 1, :] = _smeared_tanh(mean, np.sqrt(spread))
    return result


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# The trapezoidal rule for integrals over sech², whose poles lie a distance π/2 off the axis.
_GRID = np.arange(-20.0, 20.125, 0.25)
_SECH2 = 0.5 * 0.25 / np.cosh(_GRID) ** 2


def _smeared_tanh(mean: np.ndarray, width: np.ndarray) -> np.ndarray:
    """E tanh(mean + width z) over a unit normal z.

    Gauss-Hermite quadrature while the tanh is smooth on the scale of the normal; beyond a width
    of one its steps fall between the nodes, and ∫ ½ sech²(u) erf((mean − u)/√2 width) du, the
    same by parts, is smooth instead.
    """
    narrow = np.minimum(width, 1.0)[..., None]
    result = (np.tanh(mean[..., None] + narrow * _NODES) * _WEIGHTS).sum(-1)
    wide = width > 1.0
    if wide.any():
        centre, scale = mean[wide][:, None], np.sqrt(2) * width[wide][:, None]
        result[wide] = (erf((centre - _GRID) / scale) * _SECH2).sum(-1)
    return result


def _solve_onsager(mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The root of m = tanh(mean − spread m), unique for spread >= 0.

    Newton on f(y) = y + spread tanh(y) − mean, kept inside a shrinking bracket.
    """
    low, high = mean - spread, mean + spread
    y = mean / (1 + spread)
    for _ in range(100):
        f = y + spread * np.tanh(y) - mean
        low, high = np.where(f < 0, y, low), np.where(f < 0, high, y)
        new = y - f / (1 + spread / np.cosh(np.clip(y, -300, 300)) ** 2)
        new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
        moved = np.abs(new - y) > 4e-16 * (1 + np.abs(y))
        # Settled entries stay as they are, so a batch does not depend on its neighbours.
        y = np.where(moved, new, y)
        if not moved.any():
            break
    residual = np.abs(y + spread * np.tanh(y) - mean)
    if not np.all(residual <= 1e-12 * (1 + spread + np.abs(mean))):
        raise NotConverged(f"the Onsager step was not solved, residual {residual.max():.3g}")
    return np.tanh(y)


def kinetic_exact(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray
) -> KineticMoments[np.ndarray]:
    """Exact averages of one system of up to 12 spins, all 2^N states tracked; 4^N a step.

    `drive` (T, N); `initial` (N,) holds the magnetizations of independent spins at time 0.
    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> f"{kinetic_exact(np.zeros((1, 1)), **free).magnetization[1, 0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    j, x, m0, beta = _check_run(couplings, drive, beta, initial)
    states = _listed_states(len(m0))
    p = np.prod((1 + states * m0) / 2, axis=1)
    means, pairs, delayed = [p @ states], [states.T @ (p[:, None] * states)], []
    transition = response = np.empty(0)
    for t, field in enumerate(x):
        if t == 0 or not np.array_equal(field, x[t - 1]):
            transition, response = _transition(j, field, beta, states)
        delayed.append((response * p[:, None]).T @ states)
        p = transition @ p
        means.append(p @ states)
        pairs.append(states.T @ (p[:, None] * states))
    return KineticMoments(
        magnetization=np.array(means),
        correlations=np.array(pairs),
        delayed=np.array(delayed).reshape(len(x), *j.shape),
    )


@record
class StationaryStatistics:
    """Stationary state under a constant drive: probabilities (2^N,), magnetization (N,),
    correlations (N, N), delayed (N, N) as ⟨s_i(t+1) s_j(t)⟩, and the entropy production
    Σ_{s,s'} p(s) W(s'|s) ln [p(s) W(s'|s) / p(s') W(s|s')] ≥ 0.
    """

    probabilities: np.ndarray
    magnetization: np.ndarray
    correlations: np.ndarray
    delayed: np.ndarray
    entropy_production: float


def kinetic_stationary(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float
) -> StationaryStatistics:
    """Exact stationary state of one system of up to 12 spins under the constant `drive` (N,).

    Symmetric couplings give detailed balance [peretto1984collective] and zero entropy
    production. Raises ValueError or TypeError for bad input, and ValueError where β is so large
    that some transition has no probability left and the stationary state is not unique.

    >>> pair = np.array([[0.0, 0.3], [0.3, 0.0]])
    >>> state = kinetic_stationary(pair, drive=np.zeros(2), beta=1.0)
    >>> f"{abs(state.entropy_production):.6f}"
    '0.000000'
    """
    drive = check_array("drive", drive, ndim=1)
    j, _, _, beta = _check_run(couplings, drive[None], beta, np.zeros(len(drive)))
    states = _listed_states(len(j))
    transition, response = _transition(j, drive, beta, states)
    if not transition.min() > 0:
        raise ValueError(
            "beta, couplings and drive must leave every transition a probability, "
            f"got beta = {beta:.6g}"
        )
    p = _stationary(transition)
    # ln W(s'|s) - ln W(s|s'), each ln W = beta s'.(x + J s) - sum ln 2 cosh: the ln p and
    # ln cosh parts depend on one state only and cancel in a stationary average up to
    # ln [p(s)/p(s')], which is kept so that the definition itself is summed.
    field = beta * (drive + states @ j.T)
    log_w = states @ field.T - np.logaddexp(field, -field).sum(1)
    log_p = np.log(np.maximum(p, 1e-300))
    ratio = log_w - log_w.T + log_p - log_p[:, None]
    return StationaryStatistics(
        probabilities=p,
        magnetization=p @ states,
        correlations=states.T @ (p[:, None] * states),
        delayed=(response * p[:, None]).T @ states,
        entropy_production=float(np.sum(transition * p * ratio)),
    )


def entropy_production(couplings: np.ndarray, *, beta: float, delayed: np.ndarray) -> float:
    """Steady-state entropy production β Σ_ij (J_ij − J_ji) ⟨s_i(t+1) s_j(t)⟩.

    Exact for a stationary state under a constant drive: everything else in
    ln W(s'|s)/W(s|s') depends on one time only and cancels. `delayed` (N, N) may be exact,
    simulated or approximate; its mean part m_i m_j drops out. Raises ValueError for bad input.

    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> entropy_production(turn, beta=0.5, delayed=np.array([[0.0, 0.2], [-0.2, 0.0]]))
    0.4
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    d = check_array("delayed", delayed, shape=j.shape)
    return float(check_real("beta", beta, low=0.0) * np.sum((j - j.T) * d))


def _transition(
    j: np.ndarray, field: np.ndarray, beta: float, states: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W[s', s] = P(s'|s), shape (2^N, 2^N), and <s'|s> = tanh beta(x + J s), (2^N, N)."""
    local = beta * (field + states @ j.T)
    log_w = states @ local.T - np.logaddexp(local, -local).sum(1)
    return np.exp(log_w), np.tanh(local)


def _stationary(transition: np.ndarray) -> np.ndarray:
    """p with W p = p for W > 0, to full relative precision however seldom parts are left.

    States are left out one after the other, and what passes through them is added to the
    transitions of the others (Grassmann, Taksar and Heyman 1985): sums of positive numbers alone,
    where solving (W − 1) p = 0 subtracts from 1 a chance that may be below its rounding.
    """
    rate = transition.T.copy()
    count = len(rate)
    leave = np.ones(count)
    for top in range(count, 1, -_PANEL):
        low = max(top - _PANEL, 1)
        for n in range(top - 1, low - 1, -1):
            done = slice(n + 1, top)
            rate[n, :n] += (rate[n, done] / leave[done]) @ rate[done, :n]
            rate[:n, n] += rate[:n, done] @ (rate[done, n] / leave[done])
            leave[n] = rate[n, :n].sum()
        rate[:low, :low] += (rate[:low, low:top] / leave[low:top]) @ rate[low:top, :low]
    p = np.ones(1)
    for n in range(1, count):
        p = np.append(p, p @ rate[:n, n] / leave[n])
        p /= p.sum()
    return p


def _listed_states(size: int) -> np.ndarray:
    if size > _MAX_EXACT_SPINS:
        raise ValueError(
            f"couplings must describe at most {_MAX_EXACT_SPINS} spins (4^N operations a step), "
            f"got {size}"
        )
    return spin_states(size)
