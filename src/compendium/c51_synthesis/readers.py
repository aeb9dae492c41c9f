"""Readers of a few keys, summed exactly: in equilibrium, all at once, one at a time, driven.

Keys and values have shape (n, d), states (..., d), counts of readers (M, n). The formulas are those
of this package's first lines.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy.linalg import eigvalsh_tridiagonal, solve_discrete_lyapunov
from scipy.special import gammaln, log_softmax, logsumexp, softmax

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.hopfield.continuous import energy

MAX_STATES = 4000


@record
class Readers:
    """A distribution over how many readers look at which key.

    counts (M, n); probability (M,); mean (d,) of what they see; log_partition: ln Z, NaN for
    readers that move.
    """

    counts: np.ndarray
    probability: np.ndarray
    mean: np.ndarray
    log_partition: float


@record
class Shift:
    """The first correction b for N readers, ⟨ξ⟩ = ξ* + b/N: (d,) in equilibrium and all at once."""

    equilibrium: np.ndarray
    at_once: np.ndarray


def reader_counts(readers: int, *, keys: int) -> np.ndarray:
    """All ways (M, keys) to part N readers among the keys; ValueError for more than 4000.

    >>> reader_counts(2, keys=2)
    array([[0, 2],
           [1, 1],
           [2, 0]])
    """
    readers = check_integer("readers", readers, low=1)
    keys = check_integer("keys", keys, low=1)
    if math.comb(readers + keys - 1, keys - 1) > MAX_STATES:
        raise ValueError(f"readers must leave at most {MAX_STATES} ways to part them")
    bars = itertools.combinations(range(readers + keys - 1), keys - 1)
    edges = np.array([(-1, *bar, readers + keys - 1) for bar in bars])
    return np.diff(edges, axis=1) - 1


def readers_in_equilibrium(keys: np.ndarray, *, beta: float, readers: int) -> Readers:
    """Sum exactly over all ways in which N readers may look.

    >>> found = readers_in_equilibrium(np.array([[1.2], [-0.8]]), beta=0.5, readers=2)
    >>> f"{found.log_partition:.4f} {found.mean[0]:.4f}"
    '1.6996 0.3238'
    """
    keys, _, beta = _check(keys, None, beta)
    counts = reader_counts(readers, keys=len(keys))
    seen = counts @ keys
    weight = _multiplicity(counts) + 0.5 * beta / readers * np.square(seen).sum(1)
    log_partition = float(logsumexp(weight))
    probability = np.exp(weight - log_partition)
    return Readers(
        counts=counts,
        probability=probability,
        mean=probability @ seen / readers,
        log_partition=log_partition,
    )


def readers_at_once(
    keys: np.ndarray, *, beta: float, readers: int, values: np.ndarray | None = None
) -> Readers:
    """The stationary distribution of readers that all draw their key anew in every step.

    Solved from the full matrix of transitions, so the values need not equal the keys.

    >>> found = readers_at_once(np.array([[1.2], [-0.8]]), beta=0.5, readers=1)
    >>> print(found.probability.round(4))
    [0.4275 0.5725]
    """
    matrix, counts, seen = _transitions(keys, beta, readers, values)
    system = matrix.T - np.eye(len(counts))
    system[-1] = 1.0
    probability = np.linalg.solve(system, np.eye(len(counts))[-1])
    return Readers(
        counts=counts, probability=probability, mean=probability @ seen, log_partition=math.nan
    )


def slowest_mode(
    keys: np.ndarray, *, beta: float, readers: int, values: np.ndarray | None = None
) -> complex:
    """The eigenvalue of a step of all readers next to one, of nonnegative imaginary part.

    >>> f"{slowest_mode(np.array([[1.0], [-1.0]]), beta=0.5, readers=1):.4f}"
    '0.4621+0.0000j'
    """
    matrix, _, _ = _transitions(keys, beta, readers, values)
    found = np.linalg.eigvals(matrix)
    second = found[np.argsort(-np.abs(found))][1]
    return complex(second.real, abs(second.imag))


def energy_log_partition(keys: np.ndarray, *, beta: float, readers: int) -> float:
    """ln of (Nβ/2π)^{d/2} ∫ exp(−NβE(ξ)) dξ, by the trapezoidal rule, for keys of one or two dims.

    The rule converges exponentially, since the integrand and all its derivatives vanish outside.

    >>> keys = np.array([[1.2], [-0.8]])
    >>> f"{energy_log_partition(keys, beta=0.5, readers=2):.4f}"
    '1.6996'
    """
    keys, _, beta = _check(keys, None, beta)
    readers = check_integer("readers", readers, low=1)
    width = 9.0 / math.sqrt(readers * beta)
    axes = [
        np.linspace(low - width, high + width, 801 if keys.shape[1] == 1 else 401)
        for low, high in zip(keys.min(0), keys.max(0), strict=True)
    ]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, keys.shape[1])
    value = energy(torch.tensor(keys), states=torch.tensor(points), beta=beta).numpy()
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    scale = 0.5 * keys.shape[1] * math.log(readers * beta / (2 * math.pi))
    return float(logsumexp(-readers * beta * value)) + math.log(cell) + scale


def resting_state(
    keys: np.ndarray, *, beta: float, start: np.ndarray, values: np.ndarray | None = None
) -> np.ndarray:
    """Where attention with these keys and values comes to rest from `start`, (d,).

    Raises ValueError where it does not within 20,000 steps.

    >>> print(resting_state(np.array([[1.2], [-0.8]]), beta=0.5, start=np.zeros(1)).round(4))
    [0.3949]
    """
    keys, values, beta = _check(keys, values, beta)
    state = check_array("start", start, ndim=1)
    for _ in range(20_000):
        following = softmax(beta * keys @ state) @ values
        if np.abs(following - state).max() < 1e-14:
            return following
        state = following
    raise ValueError(f"start must lead to a rest, got a state that still moves at {state}")


def first_shift(keys: np.ndarray, *, beta: float, at: np.ndarray) -> Shift:
    """b of ⟨ξ⟩ = ξ* + b/N around the resting state `at` of a memory, values equal to keys.

    >>> keys = np.array([[1.2], [-0.8]])
    >>> found = first_shift(keys, beta=0.5, at=resting_state(keys, beta=0.5, start=np.zeros(1)))
    >>> f"{found.equilibrium[0]:.4f} {found.at_once[0]:.4f}"
    '-0.3481 -0.1131'
    """
    keys, _, beta = _check(keys, None, beta)
    weights = softmax(beta * keys @ check_array("at", at, ndim=1))
    centered = keys - weights @ keys
    spread = np.einsum("i,ia,ib->ab", weights, centered, centered)
    skew = np.einsum("i,ia,ib,ic->abc", weights, centered, centered, centered)
    stiffness = np.eye(len(spread)) - beta * spread
    inverse = np.linalg.inv(stiffness)
    noise = solve_discrete_lyapunov(beta * spread, spread)
    return Shift(
        equilibrium=0.5 * beta * inverse @ np.einsum("abc,bc->a", skew, inverse),
        at_once=0.5 * beta**2 * inverse @ np.einsum("abc,bc->a", skew, noise),
    )


def readers_needed(
    keys: np.ndarray, *, beta: float, tolerance: float, at_once: bool, most: int = 1000
) -> int:
    """Fewest readers whose exact mean is within `tolerance` of the memory's rest, by bisection.

    The distance must fall with the number of readers; ValueError if `most` are not enough.

    >>> keys = np.array([[1.2], [-0.8]])
    >>> readers_needed(keys, beta=0.5, tolerance=0.02, at_once=False)
    14
    """
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    rest = resting_state(keys, beta=beta, start=np.mean(keys, axis=0))
    average = readers_at_once if at_once else readers_in_equilibrium

    def far(readers: int) -> bool:
        mean = average(keys, beta=beta, readers=readers).mean
        return float(np.linalg.norm(mean - rest)) > tolerance

    high = 1
    while far(high):
        if high >= most:
            raise ValueError(f"tolerance must be reached with {most} readers, got {tolerance}")
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if far(middle) else (low, middle)
    return high


def valley_depth(beta: float) -> tuple[float, float]:
    """The overlap m of a rest beside the keys 1 and −1, and β times the barrier between the two.

    βΔE = ln cosh βm − βm²/2, ValueError for β at most one, where there is one valley.

    >>> m, barrier = valley_depth(1.5)
    >>> f"{m:.4f} {barrier:.4f}"
    '0.8586 0.1152'
    """
    beta = check_real("beta", beta, low=1.0, open_low=True)
    pair = np.array([[1.0], [-1.0]])
    m = float(resting_state(pair, beta=beta, start=np.ones(1))[0])
    return m, math.log(math.cosh(beta * m)) - 0.5 * beta * m**2


def change_times(readers: int, *, beta: float) -> tuple[float, float]:
    """Sweeps that N readers of the keys 1 and −1 need to change sides: one at a time, all at once.

    One at a time: the relaxation time of the heat bath, exactly, from its tridiagonal matrix.
    All at once: from the matrix of transitions, made symmetric by its known stationary weights.

    >>> one, all_at_once = change_times(20, beta=1.5)
    >>> f"{one:.1f} {all_at_once:.1f}"
    '63.3 985.3'
    """
    beta = check_real("beta", beta, low=0.0)
    up = np.arange(check_integer("readers", readers, low=2) + 1)
    total = 2.0 * up - readers
    rise = (readers - up) / readers / (1 + np.exp(-2 * beta * (total + 1) / readers))
    fall = up / readers / (1 + np.exp(2 * beta * (total - 1) / readers))
    beside = np.sqrt(rise[:-1] * fall[1:])
    top = eigvalsh_tridiagonal(1 - rise - fall, beside, select="i", select_range=(readers - 1,) * 2)
    one = -1.0 / (readers * math.log(float(top[0])))
    matrix, counts, seen = _transitions(np.array([[1.0], [-1.0]]), beta, readers, None)
    scores = logsumexp(beta * seen * np.array([1.0, -1.0]), axis=1)
    half = 0.5 * (_multiplicity(counts) + readers * scores)
    symmetric = matrix * np.exp(half[:, None] - half)
    second = np.linalg.eigvalsh(0.5 * (symmetric + symmetric.T))[-2]
    return one, -1.0 / math.log(float(second))


def follow_gain(readers: int, *, beta: float, shift: float, period: int, change: float) -> float:
    """How far readers follow when the keys ±1 + c_t are shifted to and fro, over the slow limit.

    c_t = shift + change cos(2πt/period); the distribution of the readers, who all draw anew in each
    step, is propagated exactly. Amplitude of the mean of σ at that frequency over the change of the
    resting distribution.

    >>> print(f"{follow_gain(20, beta=0.5, shift=0.2, period=1000, change=0.01):.2f}")
    1.00
    """
    readers = check_integer("readers", readers, low=1)
    period = check_integer("period", period, low=3)
    counts = reader_counts(readers, keys=2)
    spins = (counts @ np.array([1.0, -1.0])) / readers

    def step(probability: np.ndarray, now: float) -> np.ndarray:
        scores = beta * (spins + now)[:, None] * np.array([1.0, -1.0])
        chance = log_softmax(scores, axis=1)
        moved: np.ndarray = probability @ np.exp(_multiplicity(counts) + chance @ counts.T)
        return moved

    def rest(now: float) -> float:
        keys = np.array([[1.0 + now], [-1.0 + now]])
        return float(readers_at_once(keys, beta=beta, readers=readers).mean[0]) - now

    probability = np.full(len(counts), 1.0 / len(counts))
    phase = np.exp(-2j * np.pi * np.arange(period) / period)
    warm = -(-200 // period)
    answer = 0j
    for turn in range(warm + 1):
        for t in range(period):
            probability = step(probability, shift + change * phase[t].real)
            answer += (turn == warm) * (probability @ spins) * phase[t] * 2 / period
    return abs(answer) / (0.5 * abs(rest(shift + change) - rest(shift - change)))


def _check(
    keys: np.ndarray, values: np.ndarray | None, beta: float
) -> tuple[np.ndarray, np.ndarray, float]:
    keys = check_array("keys", keys, ndim=2)
    values = keys if values is None else check_array("values", values, ndim=2)
    if values.shape != keys.shape:
        raise ValueError(f"values must have the shape of the keys {keys.shape}, got {values.shape}")
    return keys, values, check_real("beta", beta, low=0.0)


def _multiplicity(counts: np.ndarray) -> np.ndarray:
    found: np.ndarray = gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1)
    return found


def _transitions(
    keys: np.ndarray, beta: float, readers: int, values: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    keys, values, beta = _check(keys, values, beta)
    counts = reader_counts(readers, keys=len(keys))
    seen = counts @ values / readers
    chance = log_softmax(beta * seen @ keys.T, axis=1)
    return np.exp(_multiplicity(counts) + chance @ counts.T), counts, seen
