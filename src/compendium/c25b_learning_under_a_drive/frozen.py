"""Couplings that change while driven spins relax: how far the spins are behind their fixed point.

Means move by m ← F(m) = tanh β(x + J m), `steps` times an update, and every update changes J. With
A = ∂F/∂m and Δm* the displacement of the fixed point by an update, the lag δ = m − m* obeys
δ ← Aᴷ(δ − Δm*) to first order, hence δ = −(1 − Aᴷ)⁻¹ Aᴷ Δm* if the displacement changes slowly.
"""

from typing import NamedTuple

import numpy as np

BETA = 1.0


class Course(NamedTuple):
    """Of every update: largest lag, largest predicted lag, loss at the fixed point.

    Attributes
    ----------
    lag, predicted, loss : ndarray, shape (updates,)
    """

    lag: np.ndarray
    predicted: np.ndarray
    loss: np.ndarray


def spin_step(means: np.ndarray, *, couplings: np.ndarray, drive: np.ndarray) -> np.ndarray:
    """Means (P, N) one step later, under P drives (P, N)."""
    return np.tanh(BETA * (drive + means @ couplings.T))


def fixed_means(means: np.ndarray, *, couplings: np.ndarray, drive: np.ndarray) -> np.ndarray:
    """The fixed point that is reached from `means`."""
    for _ in range(10_000):
        after = spin_step(means, couplings=couplings, drive=drive)
        if np.abs(after - means).max() < 1e-12:
            return after
        means = after
    raise ValueError("couplings must be so weak that the means settle")


def predicted_lag(
    fixed: np.ndarray, moved: np.ndarray, *, couplings: np.ndarray, steps: int
) -> np.ndarray:
    """Lag δ (P, N) behind the fixed point (P, N) that an update has `moved` by Δm* (P, N)."""
    slope = BETA * (1 - fixed**2)[:, :, None] * couplings
    power = np.linalg.matrix_power(slope, steps)
    carried = power @ moved[..., None]
    return -np.linalg.solve(np.eye(len(couplings)) - power, carried)[..., 0]


def learn_while_relaxing(
    *, rate: float, steps: int, strength: float, duration: float, seed: int, sites: int = 12
) -> Course:
    """Learn six answers of a teacher with symmetric couplings of this strength.

    An update moves the couplings by `rate` times (target − m) β(1 − m²) mᵀ, averaged over drives,
    with the means m as they are; there are `duration`/`rate` updates.
    """
    rng = np.random.default_rng(seed)
    square = rng.standard_normal((sites, sites))
    teacher = strength * (square + square.T) / (2 * sites) ** 0.5
    drive = 0.5 * rng.standard_normal((6, sites))
    target = fixed_means(np.zeros_like(drive), couplings=teacher, drive=drive)
    couplings = np.zeros((sites, sites))
    means = fixed_means(np.zeros_like(drive), couplings=couplings, drive=drive)
    fixed = means
    course = []
    for _ in range(round(duration / rate)):
        error = (target - means) * BETA * (1 - means**2)
        couplings = couplings + rate * error.T @ means / len(drive)
        for _ in range(steps):
            means = spin_step(means, couplings=couplings, drive=drive)
        before = fixed
        fixed = fixed_means(before, couplings=couplings, drive=drive)
        lag = predicted_lag(fixed, fixed - before, couplings=couplings, steps=steps)
        loss = np.mean((fixed - target) ** 2)
        course.append((np.abs(means - fixed).max(), np.abs(lag).max(), loss))
    return Course(*np.transpose(course))
