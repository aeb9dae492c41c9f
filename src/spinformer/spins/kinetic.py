"""The kinetic Ising model: parallel Glauber dynamics, stationary state, entropy production.

The couplings need not be symmetric, so that in general there is no energy. All spins are redrawn at
once,

    P(s_i(t+1) = ±1 | s(t)) ∝ exp(±β (x_i(t) + Σ_j J_ij s_j(t))),

with any matrix J (N, N): row i holds the couplings into spin i, a diagonal (self-coupling) is
allowed, and β is written outside. The fields x(t) act on the step from t to t + 1. States are
listed in the order of `core.states.spin_states`, and entropy production is in nats per step.
`ising.gaussian_couplings` draws networks between symmetric and asymmetric.
"""

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.states import spin_states
from spinformer.spins.ising import check_strength

_MAX_EXACT_SPINS = 12
# States that are left out together: their effect on the others is one product of matrices.
_PANEL = 32


def glauber_trajectory(
    couplings: np.ndarray,
    *,
    beta: float,
    states: np.ndarray,
    steps: int,
    seed: Seed,
    fields: np.ndarray | None = None,
) -> np.ndarray:
    r"""Simulate trajectories of the kinetic Ising model under parallel Glauber dynamics.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J; row i holds the couplings into spin i. Any real matrix.
    beta : float
        Inverse temperature β ≥ 0.
    states : ndarray, shape (R, N)
        Initial states of R replicas, entries −1 and 1.
    steps : int
        Number of parallel updates.
    seed : Seed
        Seed or random generator.
    fields : ndarray, shape (N,) or (steps, N), optional
        External fields x, constant or one row for each step; without them there are none.

    Returns
    -------
    ndarray of int8, shape (steps + 1, R, N)
        The trajectories, initial states first.

    Raises
    ------
    ValueError
        If shapes do not fit, `states` has entries other than −1 and 1, or rounding would take more
        than 1e-4 of an exponent (see `ising.check_strength`).

    Notes
    -----
    Given the state before, spins are independent with

    .. math::

        P(s_i(t+1) = 1 \mid s(t)) = \tfrac12 \Big[1 + \tanh \beta
            \Big(x_i(t) + \sum_j J_{ij} s_j(t)\Big)\Big].

    Examples
    --------
    >>> ring = np.roll(np.eye(3), 1, axis=0)
    >>> glauber_trajectory(ring, beta=99.0, states=np.array([[1, -1, -1]]), steps=2, seed=0)[:, 0]
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


def log_transitions(couplings: np.ndarray, *, fields: np.ndarray, beta: float) -> np.ndarray:
    """Compute the logarithm of the transition matrix of the kinetic Ising model.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of one system of at most 12 spins.
    fields : ndarray, shape (N,)
        Constant external fields x.
    beta : float
        Inverse temperature β ≥ 0.

    Returns
    -------
    ndarray, shape (2^N, 2^N)
        Values of ln P(s′ given s); rows are the later states s′, columns the earlier states s. The
        exponentials of each column sum to one.

    Raises
    ------
    ValueError
        If shapes do not fit, or there are more than 12 spins.

    Examples
    --------
    >>> np.exp(log_transitions(np.zeros((1, 1)), fields=np.zeros(1), beta=1.0))
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
    return states @ local.T - np.logaddexp(local, -local).sum(1)


@record
class StationaryStatistics:
    r"""Exact stationary state of a kinetic Ising model under constant fields.

    Attributes
    ----------
    probabilities : ndarray, shape (2^N,)
        Stationary probabilities p(s) of all states.
    magnetization : ndarray, shape (N,)
        Mean spins ⟨s_i⟩.
    correlations : ndarray, shape (N, N)
        Equal-time moments ⟨s_i s_j⟩; the means are not subtracted.
    delayed : ndarray, shape (N, N)
        Time-delayed moments ⟨s_i(t+1) s_j(t)⟩.
    entropy_production : float
        Rate of entropy production in nats per step, nonnegative, and zero under detailed balance.

    Notes
    -----
    With the transition probabilities W,

    .. math::

        \sigma = \sum_{s, s'} p(s)\, W(s' \mid s)
            \ln \frac{p(s)\, W(s' \mid s)}{p(s')\, W(s \mid s')} \ge 0.
    """

    probabilities: np.ndarray
    magnetization: np.ndarray
    correlations: np.ndarray
    delayed: np.ndarray
    entropy_production: float


def kinetic_stationary(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float
) -> StationaryStatistics:
    r"""Compute the exact stationary distribution and entropy production of a kinetic Ising model.

    Symmetric couplings give detailed balance and therefore zero entropy production.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J of one system of at most 12 spins; row i holds the couplings into spin i.
    drive : ndarray, shape (N,)
        Constant external fields x.
    beta : float
        Inverse temperature β ≥ 0.

    Returns
    -------
    StationaryStatistics
        Probabilities, moments and the entropy production.

    Raises
    ------
    ValueError
        If shapes do not fit, there are more than 12 spins, or β is so large that some transition
        has no probability left in double precision and the stationary state is not unique.

    Notes
    -----
    Everything in the logarithm of W(s′ given s)/W(s given s′) except for the couplings depends on
    one time only, so that the entropy production is

    .. math::

        \sigma = \beta \sum_{i,j} (J_{ij} - J_{ji}) \langle s_i(t+1)\, s_j(t) \rangle.

    The stationary distribution is found by the elimination algorithm of Grassmann, Taksar and
    Heyman (1985), which only adds positive numbers and is accurate for rare states.

    References
    ----------
    Detailed balance of symmetric couplings under parallel updates: [peretto1984collective].

    Examples
    --------
    >>> pair = np.array([[0.0, 0.3], [0.3, 0.0]])
    >>> state = kinetic_stationary(pair, drive=np.zeros(2), beta=1.0)
    >>> f"{abs(state.entropy_production):.6f}"
    '0.000000'
    """
    couplings = check_array("couplings", couplings, ndim=2, square=True)
    drive = check_array("drive", drive, shape=(len(couplings),))
    log_w = log_transitions(couplings, fields=drive, beta=beta)
    transition = np.exp(log_w)
    if not transition.min() > 0:
        raise ValueError(
            "beta, couplings and drive must leave every transition a probability, "
            f"got beta = {beta:.6g}"
        )
    p = _stationary(transition)
    states = spin_states(len(drive))
    log_p = np.log(np.maximum(p, 1e-300))
    flow = transition * p
    ratio = log_w - log_w.T + log_p - log_p[:, None]
    return StationaryStatistics(
        probabilities=p,
        magnetization=p @ states,
        correlations=states.T @ (p[:, None] * states),
        delayed=states.T @ flow @ states,
        entropy_production=float(np.sum(flow * ratio)),
    )


def _stationary(transition: np.ndarray) -> np.ndarray:
    """p with W p = p for W > 0, to full relative precision however seldom parts are left.

    States are left out one after the other, and what passes through them is added to the
    transitions of the others: sums of positive numbers alone (Grassmann, Taksar and Heyman 1985).
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
