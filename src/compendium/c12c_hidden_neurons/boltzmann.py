"""Boltzmann machines on six spins, with and without couplings within their layers, exactly.

A machine has visible spins v = ±1 and hidden variables z, and log-weights that are linear in its
parameters θ, ln w(v, z) = Φ(v, z)·θ. Its distribution is p(v) = Σ_z w / Σ_{v,z} w. Three kinds:

    "unrestricted": biases of all v and z = ±1, couplings of all pairs [ackley1985learning],
    "restricted":   the same without couplings within a layer,
    "attention":    z is one of n patterns, ln w = b_z + x_z·v, so that p(z|v) is a softmax of the
                    overlaps and −ln p(v) has the log-sum-exp of attention [bal2020energy].

Criterion of A18d, written before its table: an unrestricted machine is a better energy than that of
attention if the Kullback–Leibler divergence of the target from its best fit is smaller than with
attention at the same number of parameters, between whose two nearest numbers of patterns we
interpolate, with the whole 95 % interval over targets. Expected: it is better for targets with
random couplings of triples, level for entirely random ones, and worse for noisy stored patterns.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.states import spin_states

VISIBLE = 6
TARGETS = ("random", "triples", "patterns", "digits")


def machine(kind: str, hidden: int, *, visible: int = VISIBLE) -> np.ndarray:
    """Features Φ of a machine for all v and z: (2^visible, values of z, parameters)."""
    seen = spin_states(visible)
    if kind == "attention":
        patterns = np.eye(hidden)[:, 1:]  # the bias of the first is no parameter of p
        columns = [np.broadcast_to(patterns, (len(seen), *patterns.shape))]
        columns += [np.einsum("vi,zk->vzki", seen, np.eye(hidden)).reshape(len(seen), hidden, -1)]
        return np.concatenate(columns, axis=-1)
    unseen = spin_states(hidden)
    shape = (len(seen), len(unseen))
    spins = np.concatenate(
        [
            np.broadcast_to(seen[:, None], (*shape, visible)),
            np.broadcast_to(unseen, (*shape, hidden)),
        ],
        axis=-1,
    )
    pairs = [
        (i, j)
        for i, j in combinations(range(visible + hidden), 2)
        if kind == "unrestricted" or i < visible <= j
    ]
    products = [spins[..., i] * spins[..., j] for i, j in pairs]
    return np.concatenate([spins, *(one[..., None] for one in products)], axis=-1)


def log_probabilities(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """ln p(v) of all visible states."""
    weights = logsumexp(features @ theta, axis=1)
    return weights - logsumexp(weights)


def best_divergence(
    features: np.ndarray, target: np.ndarray, *, starts: int = 4, seed: Seed = 0
) -> float:
    """Least Kullback–Leibler divergence of the target from a machine, over several starts."""
    rng = numpy_generator(seed)
    entropy = -float(np.sum(target * np.log(target)))

    flat = features.reshape(-1, features.shape[-1])

    # A line search may try a step so long that a state has no weight left, and then shortens it.
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        logits = flat @ theta
        weights = np.exp(logits - logits.max())
        joint = (weights / weights.sum()).reshape(features.shape[:2])
        seen = joint.sum(1)
        # The target's own distribution of v, with z as the machine draws it.
        clamped = joint * (target / seen)[:, None]
        return -float(target @ np.log(seen)) - entropy, (joint - clamped).ravel() @ flat

    return min(
        minimize(
            loss,
            rng.normal(scale=0.5, size=features.shape[-1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 1000},
        ).fun
        for _ in range(starts)
    )


def draw_target(kind: str, *, seed: Seed) -> np.ndarray:
    """A distribution over the states of the visible spins, all of them possible."""
    rng = numpy_generator(seed)
    states = spin_states(VISIBLE)
    if kind == "random":
        return rng.dirichlet(np.ones(len(states)))
    if kind == "triples":
        triples = [states[:, list(one)].prod(1) for one in combinations(range(VISIBLE), 3)]
        energy = rng.normal(scale=0.3, size=len(triples)) @ np.array(triples)
        return np.exp(energy - logsumexp(energy))
    if kind == "patterns":
        # Four patterns whose spins are turned with probability 0.1 each.
        stored_patterns = states[rng.choice(len(states), 4, replace=False)]
        turned = (states[:, None] != stored_patterns).sum(-1)
        return (0.1**turned * 0.9 ** (VISIBLE - turned)).mean(1)
    from sklearn.datasets import load_digits

    images = load_digits().images
    top, left = rng.integers(1, 5, size=2)
    pixels = images[:, top : top + 2, left : left + 3].reshape(len(images), -1)
    bright = (pixels > np.median(pixels, axis=0)).astype(int)
    counts = np.bincount(bright @ (1 << np.arange(VISIBLE)[::-1]), minlength=len(states))
    return (counts + 1.0) / (counts + 1.0).sum()


def divergence_at(kind: str, *, parameters: int, target: np.ndarray, seed: Seed) -> float:
    """The best divergence of a kind of machine, interpolated to a number of parameters."""
    step = VISIBLE + 1
    first = -1 if kind == "attention" else VISIBLE
    low = (parameters - first) // step
    ends = [best_divergence(machine(kind, hidden), target, seed=seed) for hidden in (low, low + 1)]
    return float(np.interp(parameters - first - step * low, (0, step), ends))


@stored(
    "settings_A18d",
    numbered(parameter_product(target=TARGETS, hidden=(1, 2, 3))),
    small={"data": 1, "target": "random", "hidden": 1, "draws": 2},
    seconds=5.0,
    within={"value": 1e-3, "low": 0.02, "high": 0.02, "restricted": 1e-3, "unrestricted": 1e-3},
)
def settings_a18d(data: int, target: str, hidden: int, *, draws: int = 4) -> Rows:
    """Divergence of attention minus that of an unrestricted machine, in nats, over four targets.

    `unrestricted` and `restricted` are the mean divergences of these machines.
    """
    own = machine("unrestricted", hidden)
    found = []
    for draw in range(draws):
        seed = 100 * data + draw
        goal = draw_target(target, seed=seed)
        rivals = [
            divergence_at(kind, parameters=own.shape[-1], target=goal, seed=seed)
            for kind in ("attention", "restricted")
        ]
        found.append([*rivals, best_divergence(own, goal, seed=seed)])
    attention, restricted, unrestricted = np.array(found).T
    (line,) = mean_rows(attention - unrestricted)
    means = {"unrestricted": unrestricted.mean(), "restricted": restricted.mean()}
    return [line | {"attention": attention.mean()} | means]
