"""Entropy production of driven vector spins from simulated steps and their probabilities."""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.special import log_sphere_integral
from spinformer.core.statistics import Estimate
from spinformer.spins.vectors import sample_von_mises_fisher


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

    Unit spins (N, D) in `fields` (N, D), ln W(u'|u) = Σ_i (βD u'_i·θ_i(u) − ln Z(βD‖θ_i(u)‖)), all
    spins at once; `couplings` (N, N). The first half of the steps is not counted. In a stationary
    state that is the entropy production: the state's own probability drops out of the mean.

    >>> two = np.array([[0.0, 0.5], [0.5, 0.0]])
    >>> found = simulated_entropy(two, fields=np.eye(2, 8), beta=1.0)
    >>> bool(abs(found.value) < 5 * found.error)
    True
    """
    couplings = check_array("couplings", couplings, ndim=2, square=True)
    fields = check_array("fields", fields, shape=(len(couplings), None))
    beta = check_real("beta", beta, low=0.0)
    steps = check_integer("steps", steps, low=2)
    replicas = check_integer("replicas", replicas, low=2)
    rng = numpy_generator(seed)
    count, dim = fields.shape

    def pull(spins: np.ndarray) -> np.ndarray:
        result: np.ndarray = beta * dim * (fields + couplings @ spins)
        return result

    def log_weight(after: np.ndarray, force: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(force, axis=-1)
        found: np.ndarray = (after * force).sum((-2, -1))
        return found - log_sphere_integral(sizes, dim=dim).sum(-1)

    force = np.broadcast_to(beta * dim * fields, (replicas, count, dim))
    spins = sample_von_mises_fisher(force, seed=rng)
    force = pull(spins)
    ratios = []
    for step in range(steps):
        after = sample_von_mises_fisher(force, seed=rng)
        force_after = pull(after)
        if 2 * step >= steps:
            ratios.append(log_weight(after, force) - log_weight(spins, force_after))
        spins, force = after, force_after
    means = np.mean(ratios, axis=0) / (count * dim)
    return Estimate(
        value=np.array(means.mean()),
        error=np.array(means.std(ddof=1) / replicas**0.5),
        samples=replicas,
    )
