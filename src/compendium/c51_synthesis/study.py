"""Readers of a few keys, summed exactly, and attention that is fed back into itself."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg import eigvalsh_tridiagonal, solve_discrete_lyapunov
from scipy.special import gammaln, log_softmax, logsumexp, softmax

from spinformer.hopfield.continuous import energy


def spin_counts(spins: int, *, keys: int) -> np.ndarray:
    """All ways (M, keys) to part N spins among the keys."""
    bars = itertools.combinations(range(spins + keys - 1), keys - 1)
    edges = np.array([(-1, *bar, spins + keys - 1) for bar in bars])
    return np.diff(edges, axis=1) - 1


def spins_in_equilibrium(keys: np.ndarray, *, beta: float, spins: int) -> tuple[np.ndarray, float]:
    """Mean (d,) of what N spins choose, and ln Z: an exact sum over all ways to choose."""
    counts = spin_counts(spins, keys=len(keys))
    seen = counts @ keys
    weight = _multiplicity(counts) + 0.5 * beta / spins * np.square(seen).sum(1)
    return softmax(weight) @ seen / spins, float(logsumexp(weight))


def spins_at_once(keys: np.ndarray, *, beta: float, spins: int) -> np.ndarray:
    """Stationary mean (d,) of what spins choose that all redraw their key in every step."""
    matrix, _, seen = _transitions(keys, beta, spins)
    system = matrix.T - np.eye(len(seen))
    system[-1] = 1.0
    return np.linalg.solve(system, np.eye(len(seen))[-1]) @ seen


def slowest_mode(keys: np.ndarray, *, beta: float, spins: int, values: np.ndarray) -> complex:
    """The eigenvalue of a step of all spins next to one, of nonnegative imaginary part."""
    found = np.linalg.eigvals(_transitions(keys, beta, spins, values)[0])
    second = found[np.argsort(-np.abs(found))][1]
    return complex(second.real, abs(second.imag))


def energy_log_partition(keys: np.ndarray, *, beta: float, spins: int) -> float:
    """ln of (Nβ/2π) ∫ exp(−NβE(ξ)) dξ for keys in the plane, by the trapezoidal rule."""
    width = 9.0 / math.sqrt(spins * beta)
    across, along = np.linspace(keys.min(0) - width, keys.max(0) + width, 401).T
    points = np.stack(np.meshgrid(across, along), -1).reshape(-1, 2)
    value = energy(torch.tensor(keys), states=torch.tensor(points), beta=beta).numpy()
    cell = (across[1] - across[0]) * (along[1] - along[0])
    scale = math.log(cell * spins * beta / (2 * math.pi))
    return float(logsumexp(-spins * beta * value)) + scale


def resting_state(keys: np.ndarray, *, beta: float, start: np.ndarray) -> np.ndarray:
    """Where attention with these keys, which are the values, comes to rest from `start`, (d,)."""
    state = start
    for _ in range(20_000):
        following = softmax(beta * keys @ state) @ keys
        if np.abs(following - state).max() < 1e-14:
            return following
        state = following
    raise ValueError(f"start must lead to a rest, got a state that still moves at {state}")


def first_shift(keys: np.ndarray, *, beta: float, at: np.ndarray) -> dict[str, np.ndarray]:
    """b (d,) of ⟨ξ⟩ = ξ* + b/N around a memory's rest `at`, in equilibrium and all at once."""
    weights = softmax(beta * keys @ at)
    centered = keys - weights @ keys
    spread = np.einsum("i,ia,ib->ab", weights, centered, centered)
    skew = np.einsum("i,ia,ib,ic->abc", weights, centered, centered, centered)
    inverse = np.linalg.inv(np.eye(len(spread)) - beta * spread)
    noise = solve_discrete_lyapunov(beta * spread, spread)
    return {
        "equilibrium": 0.5 * beta * inverse @ np.einsum("abc,bc->a", skew, inverse),
        "all at once": 0.5 * beta**2 * inverse @ np.einsum("abc,bc->a", skew, noise),
    }


def spins_needed(
    view: Callable[..., np.ndarray], keys: np.ndarray, *, beta: float, tolerance: float
) -> int:
    """Fewest spins whose exact mean is within `tolerance` of the fixed point, by bisection.

    The distance must fall with the number of spins; ValueError if it needs more than 1000.
    """
    rest = resting_state(keys, beta=beta, start=np.mean(keys, axis=0))

    def near(spins: int) -> bool:
        mean = view(keys, beta=beta, spins=spins)
        return float(np.linalg.norm(mean - rest)) <= tolerance

    high = next((each for each in (*(2**k for k in range(10)), 1000) if near(each)), None)
    if high is None:
        raise ValueError(f"tolerance must be reached with 1000 spins, got {tolerance}")
    return bisect_left(range(high), True, lo=high // 2 + 1, key=near)


def valley_depth(beta: float) -> float:
    """β times the barrier between the keys 1 and −1, ln cosh βm − βm²/2 at the rest m, β > 1."""
    m = resting_state(np.array([[1.0], [-1.0]]), beta=beta, start=np.ones(1)).item()
    return math.log(math.cosh(beta * m)) - 0.5 * beta * m**2


def change_times(spins: int, *, beta: float) -> tuple[float, float]:
    """Sweeps that N spins of keys 1 and −1 need to change sides: one at a time, all at once."""
    up = np.arange(spins + 1)
    total = 2.0 * up - spins
    rise = (spins - up) / spins / (1 + np.exp(-2 * beta * (total + 1) / spins))
    fall = up / spins / (1 + np.exp(2 * beta * (total - 1) / spins))
    beside = np.sqrt(rise[:-1] * fall[1:])
    top = eigvalsh_tridiagonal(1 - rise - fall, beside, select="i", select_range=(spins - 1,) * 2)
    one = -1.0 / (spins * math.log(float(top[0])))
    matrix, counts, seen = _transitions(np.array([[1.0], [-1.0]]), beta, spins)
    scores = logsumexp(beta * seen * np.array([1.0, -1.0]), axis=1)
    half = 0.5 * (_multiplicity(counts) + spins * scores)
    symmetric = matrix * np.exp(half[:, None] - half)
    second = np.linalg.eigvalsh(0.5 * (symmetric + symmetric.T))[-2]
    return one, -1.0 / math.log(float(second))


def follow_gain(spins: int, *, beta: float, shift: float, period: int, change: float) -> float:
    """How far spins follow when the keys ±1 + c_t are shifted to and fro, over the slow limit."""
    counts = spin_counts(spins, keys=2)
    pair = np.array([1.0, -1.0])
    chosen = counts @ pair / spins
    slow = [
        spins_at_once((pair + end)[:, None], beta=beta, spins=spins)[0] - end
        for end in (shift + change, shift - change)
    ]
    phase = np.exp(-2j * np.pi * np.arange(period) / period)
    probability = np.full(len(counts), 1.0 / len(counts))
    means = []
    for now in np.tile(shift + change * phase.real, 1 - (-200 // period)):
        probability = probability @ _chances(counts, beta * (chosen + now)[:, None] * pair)
        means.append(probability @ chosen)
    answer = np.array(means[-period:]) @ phase * 2 / period
    return float(abs(answer) / (0.5 * abs(slow[0] - slow[1])))


def _multiplicity(counts: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1))


def _chances(counts: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Chances (M, M) that spins with these scores (M, n) part among the keys in each way."""
    return np.asarray(np.exp(_multiplicity(counts) + log_softmax(scores, axis=1) @ counts.T))


def _transitions(
    keys: np.ndarray, beta: float, spins: int, values: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = spin_counts(spins, keys=len(keys))
    seen = counts @ (keys if values is None else values) / spins
    return _chances(counts, beta * seen @ keys.T), counts, seen


def turned(keys: np.ndarray, *, degrees: float) -> np.ndarray:
    """Keys (n, 2) turned about the origin, anticlockwise."""
    turn = np.exp(1j * np.radians(degrees))
    return keys @ np.array([[turn.real, turn.imag], [-turn.imag, turn.real]])


def three_keys() -> np.ndarray:
    """Three unit keys in the plane, 120 degrees apart."""
    angle = 2 * np.pi / 3 * np.arange(3)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _attended(states: np.ndarray, betas: np.ndarray) -> np.ndarray:
    """What states of the plane, complex numbers, see of the three keys."""
    keys = three_keys() @ np.array([1.0, 1.0j])
    scores = betas[..., None] * (states[..., None] * keys.conj()).real
    return np.asarray(softmax(scores, axis=-1) @ keys)


def late_motion(
    betas: np.ndarray, *, degrees: np.ndarray, steps: int = 400, kept: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Speed |ξ' − ξ| and turns of attention from near a key, means over the last `kept` steps."""
    betas, degrees = np.broadcast_arrays(betas, degrees)
    turn = np.exp(1j * np.radians(degrees))
    state = np.exp(0.1j) * turn
    speed = np.zeros(betas.shape)
    turns = np.zeros(betas.shape)
    for step in range(steps):
        following = turn * _attended(state, betas)
        if step >= steps - kept:
            speed += np.abs(following - state) / kept
            turns += np.angle(following * state.conj()) / (2 * np.pi * kept)
        state = following
    return speed, turns


def rest_edge(beta: float) -> float:
    """Largest angle in degrees by which values may be turned and attention still rests near a key.

    A rest r e^{iθ} needs g = Σ_i p_i x_i of length r, and then the angle is θ − arg g: for every θ
    the length is found by iteration, and the edge is the largest angle of all θ below 60 degrees.
    """
    direction = np.exp(1j * np.radians(np.linspace(0.0, 60.0, 601)))
    seen = direction
    for _ in range(300):
        seen = _attended(np.abs(seen) * direction, np.array(beta))
    return float(np.degrees(np.angle(direction * seen.conj())).max())
