"""Random directions around given ones, a step of driven vector spins, and what steps produce."""

from typing import Any

import numpy as np

from spinformer.core.checks import check_array
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.special import log_sphere_integral
from spinformer.core.statistics import Estimate, mean_estimate


def sample_von_mises_fisher(concentration: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Draw unit vectors u with density proportional to exp(k·u), one for each vector k.

    `concentration` (..., D), D ≥ 2. Rejection from a beta envelope (Ulrich 1984; Wood 1994). Right
    at any concentration up to 1e150 because 1 − cos is drawn, not the cosine; beyond, ValueError.

    >>> sample_von_mises_fisher(np.array([[0.0, 1e100], [1e100, 0.0]]), seed=0).round(6) + 0.0
    array([[0., 1.],
           [1., 0.]])
    """
    vectors = check_array("concentration", concentration, low=-1e150, high=1e150)
    rng = numpy_generator(seed)
    dim = vectors.shape[-1]
    flat = vectors.reshape(-1, dim)
    kappa = np.linalg.norm(flat, axis=1)
    slope = (dim - 1) / (2 * kappa + np.sqrt(4 * kappa**2 + (dim - 1) ** 2))
    centre = 2 * slope / (1 + slope)
    top = (dim - 1) * np.log(4 * slope / (1 + slope) ** 2)
    gap = np.empty(len(flat))
    waiting = np.arange(len(flat))
    while len(waiting):
        z = rng.beta((dim - 1) / 2, (dim - 1) / 2, len(waiting))
        s = slope[waiting]
        c = centre[waiting]
        trial = 2 * s * z / ((1 - z) + s * z)
        height = kappa[waiting] * (c - trial) + (dim - 1) * np.log(c + trial - c * trial)
        accepted = height - top[waiting] >= np.log(1 - rng.random(len(waiting)))
        gap[waiting[accepted]] = trial[accepted]
        waiting = waiting[~accepted]
    safe = np.where(kappa > 0, kappa, 1.0)[:, None]
    axis = np.where(kappa[:, None] > 0, flat / safe, np.eye(dim)[0])
    tangent = rng.standard_normal(flat.shape)
    tangent -= (tangent * axis).sum(1, keepdims=True) * axis
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    unit = (1 - gap)[:, None] * axis + np.sqrt(gap * (2 - gap))[:, None] * tangent
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit.reshape(vectors.shape)


def simulated_entropy(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    steps: int = 20,
    replicas: int = 1000,
    seed: Seed = 0,
) -> Estimate:
    """Mean of ln W(u'|u)/W(u|u') over steps u → u', nats per spin and component, its error.

    Unit spins in `fields` (N, D), ln W(u'|u) = Σ_i (βD u'_i·θ_i(u) − ln Z(βD‖θ_i(u)‖)). The first
    half of the steps is not counted. In a stationary state that is the entropy production: the
    state's own probability drops out of the mean.
    """
    rng = numpy_generator(seed)
    (count, dim) = fields.shape

    def pull(spins: Any) -> Any:
        return beta * dim * (fields + couplings @ spins)

    def log_weight(after: np.ndarray, force: np.ndarray) -> Any:
        sizes = np.linalg.norm(force, axis=-1)
        return (after * force).sum((-2, -1)) - log_sphere_integral(sizes, dim=dim).sum(-1)

    spins = sample_von_mises_fisher(pull(np.zeros((replicas, count, dim))), seed=rng)
    ratios = []
    for step in range(steps):
        after = sample_von_mises_fisher(pull(spins), seed=rng)
        if 2 * step >= steps:
            ratios.append(log_weight(after, pull(spins)) - log_weight(spins, pull(after)))
        spins = after
    return mean_estimate(np.mean(ratios, axis=0) / (count * dim))
