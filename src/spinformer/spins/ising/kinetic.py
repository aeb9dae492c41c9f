"""Driven Ising spins: parallel dynamics with any couplings, where no free energy exists.

Binary spins follow the kinetic Ising model
P(s_i(t+1) = +-1 | s(t)) proportional to exp(+-beta (x_i(t) + sum_j J_ij s_j(t))); row i of J
holds the couplings into spin i, the diagonal (a memory of itself) is allowed and beta is
written outside. Time series of drives have shape (T, N): x(t) acts on the step from t to
t + 1, and results have T + 1 entries, the first of which is the initial state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from spinformer.core.checks import check_array, check_choice, check_integer, check_real

MAX_EXACT_SPINS = 12
KINETIC_METHODS = ("naive", "tap", "gaussian")


@dataclass(frozen=True)
class KineticStatistics:
    """Averages along a run of T steps: magnetization (T+1, N), correlations (T+1, N, N) of
    <s_i(t) s_j(t)> and delayed (T, N, N) of <s_i(t+1) s_j(t)>, means not subtracted.

    The `_error` fields are standard errors over replicas, zero for exact results.
    """

    magnetization: np.ndarray
    correlations: np.ndarray
    delayed: np.ndarray
    magnetization_error: np.ndarray
    delayed_error: np.ndarray


@dataclass(frozen=True)
class StationaryStatistics:
    """Stationary state under a constant drive: probabilities (2^N,) (bit i of the index set
    means s_i = +1), magnetization (N,), correlations (N, N), delayed (N, N) as
    <s_i(t+1) s_j(t)>, and the entropy production in nats per step,
    sum_{s,s'} p(s) W(s'|s) ln [p(s) W(s'|s) / p(s') W(s|s')] >= 0.
    """

    probabilities: np.ndarray
    magnetization: np.ndarray
    correlations: np.ndarray
    delayed: np.ndarray
    entropy_production: float


def asymmetric_couplings(
    size: int, *, seed: int, asymmetry: float = 1.0, mean: float = 0.0, std: float = 1.0
) -> np.ndarray:
    """Gaussian couplings (N, N) of mean `mean`/N and variance `std`^2/N, zero diagonal.

    J = mean/N + std (S + k A)/sqrt(1 + k^2) with S symmetric, A antisymmetric and
    k = `asymmetry` in [0, 1]: the correlation of J_ij and J_ji is (1 - k^2)/(1 + k^2), so 0
    gives symmetric couplings and 1 independent ones (Crisanti and Sompolinsky 1987).
    """
    check_integer("size", size, low=1)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    k = check_real("asymmetry", asymmetry, low=0.0, high=1.0)
    mean, std = check_real("mean", mean), check_real("std", std, low=0.0)
    even, odd = np.triu(rng.standard_normal((2, size, size)), 1) / math.sqrt(size)
    j = mean / size + std * ((even + even.T) + k * (odd - odd.T)) / math.sqrt(1 + k**2)
    np.fill_diagonal(j, 0.0)
    return j


def kinetic_mean_field(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    initial: np.ndarray,
    beta: float,
    method: str = "tap",
) -> np.ndarray:
    """Magnetisations (..., T+1, N) of the kinetic Ising model in a mean-field approximation.

    `couplings` (..., N, N) any real matrix, `drive` (..., T, N), `initial` (..., N) in [-1, 1].
    With m at time t and m' at t + 1, a_i = x_i + sum_j J_ij m_j, D_i = sum_j J_ij^2 (1 - m_j^2):

    - "naive": m' = tanh(beta a), right to first order in J;
    - "tap": m' = tanh(beta a - beta^2 m' D), the Onsager term at the new time, right to second
      order (Roudi and Hertz 2011);
    - "gaussian": m' = E_z tanh(beta a + beta sqrt(D) z), exact for asymmetric couplings of
      large systems (Mezard and Sakellariou 2011), by Gauss-Hermite quadrature.
    """
    j, x = _couplings(couplings), check_array("drive", drive)
    size = j.shape[-1]
    if x.ndim < 2 or x.shape[-1] != size:
        raise ValueError(f"drive must have shape (..., T, {size}), got {x.shape}")
    m = check_array("initial", initial, low=-1.0, high=1.0)
    if m.ndim == 0 or m.shape[-1] != size:
        raise ValueError(f"initial must have shape (..., {size}), got {m.shape}")
    beta = check_real("beta", beta, low=0.0)
    check_choice("method", method, KINETIC_METHODS)
    try:
        batch = np.broadcast_shapes(j.shape[:-2], x.shape[:-2], m.shape[:-1])
    except ValueError:
        raise ValueError(
            "couplings, drive and initial must have batch axes that broadcast, "
            f"got {j.shape}, {x.shape} and {m.shape}"
        ) from None
    steps = x.shape[-2]
    result = np.empty((*batch, steps + 1, size))
    result[..., 0, :] = m
    square = j**2
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    for t in range(steps):
        m = result[..., t, :]
        mean = beta * (x[..., t, :] + (j @ m[..., None])[..., 0])
        if method == "naive":
            new = np.tanh(mean)
        else:
            spread = beta**2 * (square @ (1 - m**2)[..., None])[..., 0]
            if method == "tap":
                new = _solve_onsager(mean, spread)
            else:
                noise = np.sqrt(spread)[..., None] * nodes
                new = (np.tanh(mean[..., None] + noise) * weights).sum(-1)
        result[..., t + 1, :] = new
    return result


def kinetic_exact(
    couplings: np.ndarray, *, drive: np.ndarray, initial: np.ndarray, beta: float
) -> KineticStatistics:
    """Exact averages of one kinetic Ising system of up to 12 spins, all 2^N states tracked.

    `initial` (N,) holds the magnetisations of independent spins at time 0. A step costs 4^N.
    """
    j, x, m0, beta = _kinetic_arguments(couplings, drive, initial, beta)
    size = len(m0)
    if size > MAX_EXACT_SPINS:
        raise ValueError(
            f"couplings must describe at most {MAX_EXACT_SPINS} spins, got {size} (4^N a step)"
        )
    states = _states(size)
    p = np.prod((1 + states * m0) / 2, axis=1)
    means, pairs, delayed = [p @ states], [states.T @ (p[:, None] * states)], []
    transition = None
    for t, field in enumerate(x):
        if transition is None or not np.array_equal(field, x[t - 1]):
            transition, response = _transition(j, field, beta, states)
        delayed.append((response * p[:, None]).T @ states)
        p = transition @ p
        means.append(p @ states)
        pairs.append(states.T @ (p[:, None] * states))
    mean, delay = np.array(means), np.array(delayed).reshape(len(x), size, size)
    return KineticStatistics(
        mean, np.array(pairs), delay, np.zeros_like(mean), np.zeros_like(delay)
    )


def kinetic_simulation(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    initial: np.ndarray,
    beta: float,
    replicas: int = 4096,
    seed: int = 0,
) -> KineticStatistics:
    """Simulate `replicas` independent runs of the kinetic Ising model and average them.

    `initial` (N,) holds the magnetisations of independent spins at time 0.
    """
    j, x, m0, beta = _kinetic_arguments(couplings, drive, initial, beta)
    check_integer("replicas", replicas, low=2)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    s = np.where(rng.random((replicas, len(m0))) < (1 + m0) / 2, 1.0, -1.0)
    means, pairs, delayed = [s.mean(0)], [s.T @ s / replicas], []
    for field in x:
        up = 0.5 * (1 + np.tanh(beta * (field + s @ j.T)))
        new = np.where(rng.random(s.shape) < up, 1.0, -1.0)
        delayed.append(new.T @ s / replicas)
        means.append(new.mean(0))
        pairs.append(new.T @ new / replicas)
        s = new
    mean, delay = np.array(means), np.array(delayed).reshape(len(x), len(m0), len(m0))
    return KineticStatistics(
        mean,
        np.array(pairs),
        delay,
        np.sqrt(np.maximum(1 - mean**2, 0) / (replicas - 1)),
        np.sqrt(np.maximum(1 - delay**2, 0) / (replicas - 1)),
    )


def kinetic_stationary(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float
) -> StationaryStatistics:
    """Exact stationary state of one system of up to 12 spins under the constant `drive` (N,).

    Symmetric couplings give detailed balance (Peretto 1984) and zero entropy production.
    """
    drive = check_array("drive", drive, ndim=1)
    j, _, _, beta = _kinetic_arguments(couplings, drive[None], np.zeros(len(drive)), beta)
    size = len(j)
    if size > MAX_EXACT_SPINS:
        raise ValueError(f"couplings must describe at most {MAX_EXACT_SPINS} spins, got {size}")
    states = _states(size)
    transition, response = _transition(j, drive, beta, states)
    count = len(states)
    # (W - 1) p = 0 with one equation replaced by sum p = 1: W > 0, so p is unique.
    system = transition - np.eye(count)
    system[0] = 1.0
    target = np.zeros(count)
    target[0] = 1.0
    p = np.abs(np.linalg.solve(system, target))
    p /= p.sum()
    flow = transition * p
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
        entropy_production=float(np.sum(flow * ratio)),
    )


def entropy_production(couplings: np.ndarray, *, delayed: np.ndarray, beta: float) -> float:
    """Steady-state entropy production beta sum_ij (J_ij - J_ji) <s_i(t+1) s_j(t)>, nats a step.

    Exact for a stationary state under a constant drive: everything else in
    ln W(s'|s) / W(s|s') depends on one time only and cancels. `delayed` (N, N) may be exact,
    simulated or approximate; its mean part m_i m_j drops out.
    """
    j = _couplings(couplings)
    check_array("couplings", j, ndim=2)
    d = check_array("delayed", delayed, shape=j.shape)
    return float(check_real("beta", beta, low=0.0) * np.sum((j - j.T) * d))


def mean_field_entropy_production(
    couplings: np.ndarray, *, magnetization: np.ndarray, beta: float
) -> float:
    """Leading order in J of the entropy production: beta^2/2 sum (J_ij - J_ji)^2 v_i v_j.

    v = 1 - m^2 at the stationary magnetisation; from `entropy_production` with the connected
    delayed correlation beta v_i J_ij v_j. Never negative, zero for symmetric couplings.
    """
    j = _couplings(couplings)
    m = check_array("magnetization", magnetization, shape=(j.shape[-1],), low=-1.0, high=1.0)
    v = 1 - m**2
    return float(0.5 * check_real("beta", beta, low=0.0) ** 2 * v @ (j - j.T) ** 2 @ v)


def critical_beta(
    coupling_std: float,
    *,
    coupling_mean: float = 1.0,
    field: str = "gaussian",
    field_scale: float = 0.5,
) -> float:
    """Where the fully asymmetric model orders: 1 = beta J_0 E[1 - tanh^2 beta(x + J_s z)].

    Couplings J_ij are independent with mean J_0/N (`coupling_mean`) and variance J_s^2/N
    (`coupling_std`), z is a unit Gaussian, and the fields x are Gaussian with standard
    deviation `field_scale` (`field` "gaussian") or uniform on [-field_scale, field_scale]
    ("uniform"). Returns the smallest such beta, or infinity if there is none: the right-hand
    side stays below 2 J_0 p(0), p the density of x + J_s z, so strong fields prevent order.
    """
    coupling_std = check_real("coupling_std", coupling_std, low=0.0)
    coupling_mean = check_real("coupling_mean", coupling_mean, low=0.0, open_low=True)
    check_choice("field", field, ("gaussian", "uniform"))
    field_scale = check_real("field_scale", field_scale, low=0.0)
    width = math.hypot(field_scale, coupling_std) if field == "gaussian" else coupling_std
    uniform = field == "uniform" and field_scale > 0
    if width == 0 and not uniform:
        return 1 / coupling_mean

    def density(y: np.ndarray | float) -> np.ndarray:
        if uniform and width == 0:
            return (np.abs(y) < field_scale) / (2 * field_scale)
        if uniform:
            inside = ndtr((y + field_scale) / width) - ndtr((y - field_scale) / width)
            return inside / (2 * field_scale)
        return np.exp(-0.5 * (y / width) ** 2) / (width * math.sqrt(2 * math.pi))

    # The density is even and falls with |y|, so the gain grows with beta towards 2 J_0 p(0).
    if 2 * coupling_mean * float(density(0.0)) <= 1 + 1e-9:
        return math.inf
    grid, weight = np.polynomial.legendre.leggauss(400)

    def gain(beta: float) -> float:
        if beta * width >= 1:
            # Over u = beta y: sech^2 has width one and the density is at least as wide.
            u = 30 * grid
            return coupling_mean * float(30 * weight @ (density(u / beta) / np.cosh(u) ** 2))
        z = 9 * grid
        normal = 9 * weight * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        if uniform:
            # The average of sech^2 over the fields is done in closed form.
            mean = normal @ np.tanh(beta * (field_scale + width * z)) / (beta * field_scale)
        else:
            mean = normal @ np.cosh(beta * width * z) ** -2.0
        return coupling_mean * beta * float(mean)

    high = 1 / coupling_mean
    while gain(high) < 1:
        high *= 2
        if high * coupling_mean > 1e12:
            return math.inf
    return float(brentq(lambda b: gain(b) - 1, 0.5 * high, high, xtol=1e-13, rtol=1e-13))


def _solve_onsager(mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The root of m = tanh(mean - spread m), unique for spread >= 0.

    Newton on f(y) = y + spread tanh(y) - mean, kept inside a shrinking bracket.
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
    return np.tanh(y)


def _transition(
    j: np.ndarray, field: np.ndarray, beta: float, states: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W[s', s] = P(s'|s), shape (2^N, 2^N), and <s'|s> = tanh beta(x + J s), (2^N, N)."""
    local = beta * (field + states @ j.T)
    log_w = states @ local.T - np.logaddexp(local, -local).sum(1)
    return np.exp(log_w), np.tanh(local)


def _states(size: int) -> np.ndarray:
    return 2.0 * ((np.arange(1 << size)[:, None] >> np.arange(size)) & 1) - 1.0


def _couplings(couplings: np.ndarray) -> np.ndarray:
    j = check_array("couplings", couplings)
    if j.ndim < 2 or j.shape[-1] != j.shape[-2] or j.shape[-1] == 0:
        raise ValueError(f"couplings must have shape (..., N, N), got {j.shape}")
    return j


def _kinetic_arguments(
    couplings: np.ndarray, drive: np.ndarray, initial: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    j = check_array("couplings", _couplings(couplings), ndim=2)
    x = check_array("drive", drive, shape=(None, len(j)))
    m0 = check_array("initial", initial, shape=(len(j),), low=-1.0, high=1.0)
    return j, x, m0, check_real("beta", beta, low=0.0)
