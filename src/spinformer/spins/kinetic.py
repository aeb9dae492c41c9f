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

import numpy as np
from scipy.special import erf

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_choice,
    check_integer,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.solve import NotConverged
from spinformer.core.states import spin_states
from spinformer.spins.ising import check_strength

KINETIC_METHODS = ("naive", "tap", "gaussian")

_MAX_EXACT_SPINS = 12
# States that are left out together: their effect on the others is one product of matrices.
_PANEL = 32


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
    """Orbits of R replicas in `fields` (N,), or (steps, N), int8 array (steps + 1, R, N).

    From `states` (R, N), without fields unless they are given. Raises ValueError or TypeError for
    bad input.

    >>> ring = np.roll(np.eye(3), 1, axis=0)
    >>> kinetic_path(ring, beta=99.0, states=np.array([[1, -1, -1]]), steps=2, seed=0)[:, 0]
    array([[ 1, -1, -1],
           [-1,  1, -1],
           [-1, -1,  1]], dtype=int8)
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    steps = check_integer("steps", steps, low=0)
    x = np.zeros(len(j)) if fields is None else check_array("fields", fields)
    if x.shape not in ((len(j),), (steps, len(j))):
        raise ValueError(f"fields must have shape ({len(j)},) or (steps, {len(j)}), got {x.shape}")
    beta = check_strength(beta, couplings=j, fields=x)
    current = check_array("states", states, shape=(None, len(j)), values=(-1, 1))
    rng = numpy_generator(seed)
    path = np.empty((steps + 1, *current.shape), dtype=np.int8)
    path[0] = current
    for step, field in enumerate(np.broadcast_to(x, (steps, len(j)))):
        means = np.tanh(beta * (field + current @ j.T))
        current = np.where(rng.random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0)
        path[step + 1] = current
    return path


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


def transition_matrix(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> np.ndarray:
    """W[s', s] = P(s'|s) (2^N, 2^N) of one system of up to 12 spins in `fields` (N,).

    Raises ValueError or TypeError for bad input.

    >>> transition_matrix(np.zeros((1, 1)), fields=np.zeros(1), beta=1.0)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    j = check_array("couplings", couplings, ndim=2, square=True)
    x = check_array("fields", fields, shape=(len(j),))
    beta = check_strength(beta, couplings=j, fields=x)
    if len(j) > _MAX_EXACT_SPINS:
        raise ValueError(
            f"couplings must describe at most {_MAX_EXACT_SPINS} spins (4^N operations a step), "
            f"got {len(j)}"
        )
    states = spin_states(len(j))
    local = beta * (x + states @ j.T)
    return np.exp(states @ local.T - np.logaddexp(local, -local).sum(1))


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
    production: it is β Σ_ij (J_ij − J_ji) ⟨s_i(t+1) s_j(t)⟩, since everything else in
    ln W(s'|s)/W(s|s') depends on one time only. Raises ValueError or TypeError for bad input, and
    ValueError where β is so large that some transition has no probability left and the stationary
    state is not unique.

    >>> pair = np.array([[0.0, 0.3], [0.3, 0.0]])
    >>> state = kinetic_stationary(pair, drive=np.zeros(2), beta=1.0)
    >>> f"{abs(state.entropy_production):.6f}"
    '0.000000'
    """
    drive = check_array("drive", drive, ndim=1)
    transition = transition_matrix(couplings, fields=drive, beta=beta)
    if not transition.min() > 0:
        raise ValueError(
            "beta, couplings and drive must leave every transition a probability, "
            f"got beta = {beta:.6g}"
        )
    p, states = _stationary(transition), spin_states(len(drive))
    # ln W(s'|s) - ln W(s|s'), each ln W = beta s'.(x + J s) - sum ln 2 cosh: the ln p and
    # ln cosh parts depend on one state only and cancel in a stationary average up to
    # ln [p(s)/p(s')], which is kept so that the definition itself is summed.
    field = beta * (drive + states @ np.asarray(couplings).T)
    log_w = states @ field.T - np.logaddexp(field, -field).sum(1)
    log_p = np.log(np.maximum(p, 1e-300))
    ratio = log_w - log_w.T + log_p - log_p[:, None]
    return StationaryStatistics(
        probabilities=p,
        magnetization=p @ states,
        correlations=states.T @ (p[:, None] * states),
        delayed=(np.tanh(field) * p[:, None]).T @ states,
        entropy_production=float(np.sum(transition * p * ratio)),
    )


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
