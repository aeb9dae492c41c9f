"""Exact dynamics and stationary states of kinetic Ising systems of up to 12 spins.

Conventions of `kinetic`: P(s_i(t+1) = ±1 | s(t)) ∝ exp(±β (x_i(t) + Σ_j J_ij s_j(t))), J (N, N)
any matrix, drives (T, N). Entropy production is in nats per step. States are listed in the
order of `core.states.spin_states`.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_real
from spinformer.core.records import record
from spinformer.core.states import spin_states
from spinformer.spins.ising.kinetic import check_run

MAX_EXACT_SPINS = 12
# States that are left out together: their effect on the others is one product of matrices.
_PANEL = 32


@record
class KineticStatistics:
    """Exact averages along a run of T steps: magnetization (T+1, N), correlations (T+1, N, N) of
    ⟨s_i(t) s_j(t)⟩ and delayed (T, N, N) of ⟨s_i(t+1) s_j(t)⟩, means not subtracted.
    """

    magnetization: np.ndarray
    correlations: np.ndarray
    delayed: np.ndarray


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


def kinetic_exact(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, initial: np.ndarray
) -> KineticStatistics:
    """Exact averages of one system of up to 12 spins, all 2^N states tracked; 4^N a step.

    `drive` (T, N); `initial` (N,) holds the magnetizations of independent spins at time 0.
    Raises ValueError or TypeError for bad input.

    >>> free = {"drive": np.full((1, 1), 0.5), "beta": 1.0, "initial": np.zeros(1)}
    >>> f"{kinetic_exact(np.zeros((1, 1)), **free).magnetization[1, 0]:.6f} {np.tanh(0.5):.6f}"
    '0.462117 0.462117'
    """
    j, x, m0, beta = check_run(couplings, drive=drive, beta=beta, initial=initial)
    size = _few_enough(len(m0))
    states = spin_states(size)
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
    return KineticStatistics(
        magnetization=np.array(means),
        correlations=np.array(pairs),
        delayed=np.array(delayed).reshape(len(x), size, size),
    )


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
    j, _, _, beta = check_run(couplings, drive=drive[None], beta=beta, initial=np.zeros(len(drive)))
    states = spin_states(_few_enough(len(j)))
    transition, response = _transition(j, drive, beta, states)
    if not transition.min() > 0:
        raise ValueError(
            "beta, couplings and drive must leave every transition a probability, "
            f"got beta = {beta:.6g}"
        )
    p = _stationary(transition)
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


def _few_enough(size: int) -> int:
    if size > MAX_EXACT_SPINS:
        raise ValueError(
            f"couplings must describe at most {MAX_EXACT_SPINS} spins (4^N operations a step), "
            f"got {size}"
        )
    return size
