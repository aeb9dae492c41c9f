"""Readers of a few keys, summed exactly, and attention that is fed back into itself.

In equilibrium, all at once, one at a time, driven. Keys and values have shape (n, d), states
(..., d), counts of readers (M, n); the formulas are those of this package's first lines.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import eigvalsh_tridiagonal, solve_discrete_lyapunov
from scipy.special import gammaln, log_softmax, logsumexp, softmax

from spinformer.hopfield.continuous import energy

MAX_STATES = 4000


class Readers(NamedTuple):
    """A distribution over how many readers look at which key.

    counts (M, n); probability (M,); mean (d,) of what they see; log_partition: ln Z, NaN for
    readers that move.
    """

    counts: np.ndarray
    probability: np.ndarray
    mean: np.ndarray
    log_partition: float


class Shift(NamedTuple):
    """The first correction b for N readers, ⟨ξ⟩ = ξ* + b/N: (d,) in equilibrium and all at once."""

    equilibrium: np.ndarray
    at_once: np.ndarray


def reader_counts(readers: int, *, keys: int) -> np.ndarray:
    """All ways (M, keys) to part N readers among the keys; ValueError for more than 4000."""
    if math.comb(readers + keys - 1, keys - 1) > MAX_STATES:
        raise ValueError(f"readers must leave at most {MAX_STATES} ways to part them")
    bars = itertools.combinations(range(readers + keys - 1), keys - 1)
    edges = np.array([(-1, *bar, readers + keys - 1) for bar in bars])
    return np.diff(edges, axis=1) - 1


def readers_in_equilibrium(keys: np.ndarray, *, beta: float, readers: int) -> Readers:
    """Sum exactly over all ways in which N readers may look."""
    counts = reader_counts(readers, keys=len(keys))
    seen = counts @ keys
    weight = _multiplicity(counts) + 0.5 * beta / readers * np.square(seen).sum(1)
    log_partition = float(logsumexp(weight))
    probability = np.exp(weight - log_partition)
    return Readers(counts, probability, probability @ seen / readers, log_partition)


def readers_at_once(keys: np.ndarray, *, beta: float, readers: int) -> Readers:
    """The stationary distribution of readers that all draw their key anew in every step.

    Solved from the full matrix of transitions.
    """
    matrix, counts, seen = _transitions(keys, beta, readers)
    system = matrix.T - np.eye(len(counts))
    system[-1] = 1.0
    probability = np.linalg.solve(system, np.eye(len(counts))[-1])
    return Readers(counts, probability, probability @ seen, math.nan)


def slowest_mode(keys: np.ndarray, *, beta: float, readers: int, values: np.ndarray) -> complex:
    """The eigenvalue of a step of all readers next to one, of nonnegative imaginary part."""
    matrix, _, _ = _transitions(keys, beta, readers, values)
    found = np.linalg.eigvals(matrix)
    second = found[np.argsort(-np.abs(found))][1]
    return complex(second.real, abs(second.imag))


def energy_log_partition(keys: np.ndarray, *, beta: float, readers: int) -> float:
    """ln of (Nβ/2π)^{d/2} ∫ exp(−NβE(ξ)) dξ, by the trapezoidal rule, for keys of one or two dims.

    The rule converges exponentially, since the integrand and all its derivatives vanish outside.
    """
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


def resting_state(keys: np.ndarray, *, beta: float, start: np.ndarray) -> np.ndarray:
    """Where attention with these keys, which are the values, comes to rest from `start`, (d,)."""
    state = start
    for _ in range(20_000):
        following = softmax(beta * keys @ state) @ keys
        if np.abs(following - state).max() < 1e-14:
            return following
        state = following
    raise ValueError(f"start must lead to a rest, got a state that still moves at {state}")


def first_shift(keys: np.ndarray, *, beta: float, at: np.ndarray) -> Shift:
    """b of ⟨ξ⟩ = ξ* + b/N around the resting state `at` of a memory, values equal to keys."""
    weights = softmax(beta * keys @ at)
    centered = keys - weights @ keys
    spread = np.einsum("i,ia,ib->ab", weights, centered, centered)
    skew = np.einsum("i,ia,ib,ic->abc", weights, centered, centered, centered)
    inverse = np.linalg.inv(np.eye(len(spread)) - beta * spread)
    noise = solve_discrete_lyapunov(beta * spread, spread)
    return Shift(
        equilibrium=0.5 * beta * inverse @ np.einsum("abc,bc->a", skew, inverse),
        at_once=0.5 * beta**2 * inverse @ np.einsum("abc,bc->a", skew, noise),
    )


def readers_needed(
    keys: np.ndarray, *, beta: float, tolerance: float, at_once: bool, most: int = 1000
) -> int:
    """Fewest readers whose exact mean is within `tolerance` of the memory's rest, by bisection.

    The distance must fall with the number of readers; ValueError if it needs more than `most`.
    """
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

    βΔE = ln cosh βm − βm²/2, for β above one; below there is one valley.
    """
    pair = np.array([[1.0], [-1.0]])
    m = float(resting_state(pair, beta=beta, start=np.ones(1))[0])
    return m, math.log(math.cosh(beta * m)) - 0.5 * beta * m**2


def change_times(readers: int, *, beta: float) -> tuple[float, float]:
    """Sweeps that N readers of the keys 1 and −1 need to change sides: one at a time, all at once.

    One at a time: the relaxation time of the heat bath, exactly, from its tridiagonal matrix.
    All at once: from the matrix of transitions, made symmetric by its known stationary weights.
    """
    up = np.arange(readers + 1)
    total = 2.0 * up - readers
    rise = (readers - up) / readers / (1 + np.exp(-2 * beta * (total + 1) / readers))
    fall = up / readers / (1 + np.exp(2 * beta * (total - 1) / readers))
    beside = np.sqrt(rise[:-1] * fall[1:])
    top = eigvalsh_tridiagonal(1 - rise - fall, beside, select="i", select_range=(readers - 1,) * 2)
    one = -1.0 / (readers * math.log(float(top[0])))
    matrix, counts, seen = _transitions(np.array([[1.0], [-1.0]]), beta, readers)
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
    """
    counts = reader_counts(readers, keys=2)
    spins = (counts @ np.array([1.0, -1.0])) / readers

    def step(probability: np.ndarray, now: float) -> np.ndarray:
        scores = beta * (spins + now)[:, None] * np.array([1.0, -1.0])
        return np.asarray(probability @ _chances(counts, scores))

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


def _multiplicity(counts: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1))


def _chances(counts: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Chances (M, M) that readers with these scores (M, n) part among the keys in each way."""
    return np.asarray(np.exp(_multiplicity(counts) + log_softmax(scores, axis=1) @ counts.T))


def _transitions(
    keys: np.ndarray, beta: float, readers: int, values: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = reader_counts(readers, keys=len(keys))
    seen = counts @ (keys if values is None else values) / readers
    return _chances(counts, beta * seen @ keys.T), counts, seen


# ---- attention to three keys with values turned by an angle


class Motion(NamedTuple):
    """Where attention fed back into itself goes: speed |ξ' − ξ| and turns a step, late means."""

    speed: np.ndarray
    turns: np.ndarray


def turned(keys: np.ndarray, *, degrees: float) -> np.ndarray:
    """Keys (n, 2) turned about the origin, anticlockwise."""
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return np.asarray(keys @ turn)


def three_keys() -> np.ndarray:
    """Three unit keys in the plane, 120 degrees apart."""
    angle = 2 * np.pi / 3 * np.arange(3)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def late_motion(
    betas: np.ndarray, *, degrees: np.ndarray, steps: int = 400, kept: int = 200
) -> Motion:
    """Attention to the three keys with values turned by `degrees`, iterated from near a key.

    betas and degrees broadcast; speed and turns are means over the last `kept` of `steps`.
    """
    betas, degrees = np.broadcast_arrays(betas, degrees)
    keys = three_keys() @ np.array([1.0, 1.0j])
    turn = np.exp(1j * np.radians(degrees))
    state = np.full(betas.shape, keys[0] * np.exp(0.1j)) * turn
    speed, turns = np.zeros(betas.shape), np.zeros(betas.shape)
    for step in range(steps):
        scores = betas[..., None] * (state[..., None] * keys.conj()).real
        following = turn * (softmax(scores, axis=-1) @ keys)
        if step >= steps - kept:
            speed += np.abs(following - state) / kept
            turns += np.angle(following * state.conj()) / (2 * np.pi * kept)
        state = following
    return Motion(speed, turns)


def rest_edge(beta: float) -> float:
    """Largest angle in degrees by which values may be turned and attention still rests near a key.

    A rest r e^{iθ} needs g = Σ_i p_i x_i of length r, and then the angle is θ − arg g: for every θ
    the length is found by iteration, and the edge is the largest angle of all θ below 60 degrees.
    """
    keys = three_keys() @ np.array([1.0, 1.0j])
    direction = np.exp(1j * np.radians(np.linspace(0.0, 60.0, 601)))
    length = np.ones(len(direction))
    for _ in range(300):
        scores = beta * (length[:, None] * direction[:, None] * keys.conj()).real
        seen = softmax(scores, axis=-1) @ keys
        length = np.abs(seen)
    return float(np.degrees(np.angle(direction * seen.conj())).max())
