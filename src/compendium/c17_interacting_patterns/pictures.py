"""Two tasks on pictures: stored faces recalled from spoiled ones, lower halves of unseen pictures.

Recall: COUNT of the 100 faces are stored, as they are. A query is a stored face with a horizontal
band of half its height hidden (0) and normal noise on the rest.

Completion: `count` pictures are stored, upper halves x_i as keys and lower halves y_i as values.
The completion is Σ p_i y_i, p the weights of a query, after at most LOOKS looks at the memory.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax

from bookmaker.tables import Rows, stored
from compendium.c17_interacting_patterns.interacting import solve
from compendium.common import images
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import numpy_generator

Array = np.ndarray

FACE_BETAS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# What an arm has beside β: κ with a free or a clamped state, or a ridge.
_RIDGED = ((1e-3, 1e-2, 1e-1, 1.0), (0.0,))
_OTHERS = {
    "interacting": ((0.25, 0.5, 0.75, 1.0, 1.25, 1.5), (0.0, 1.0)),
    "whitened": _RIDGED,
    "pseudo-inverse": _RIDGED,
}
ARMS = ("attention", "interacting", "whitened", "pseudo-inverse", "equal norms", "distances")
COUNT = 60
NOISE = 0.5
SEEDS = 10
LOOKS = 20


def recalled(seed: int, *, count: int) -> Rows:
    """Fraction recalled by each arm: three queries a face choose its numbers, three test them."""
    generator = numpy_generator(seed)
    every = images.faces()
    chosen = generator.choice(len(every), size=count, replace=False)
    stored = every[chosen] / np.sqrt(np.mean((every[chosen] ** 2).sum(1)))
    tuning = _spoil(np.tile(stored, (3, 1)), generator)
    test = _spoil(np.tile(stored, (3, 1)), generator)
    rows = []
    for arm in ARMS:
        tried = product(FACE_BETAS, *_OTHERS.get(arm, ([0.0], [0.0])))
        best = max(tried, key=lambda numbers: _recalled(arm, stored, tuning, *numbers))
        rows.append({"arm": arm, "recalled": _recalled(arm, stored, test, *best)})
    return rows


@stored("recall", parameter_product(seed=range(SEEDS)), seconds=4.0, within={"recalled": 0.006})
def recall_table(seed: int) -> Rows:
    """COUNT stored faces."""
    return recalled(seed, count=COUNT)


@stored(
    "recall_counts",
    parameter_product(count=(40, 80), seed=range(100, 110)),
    seconds=4.0,
    within={"recalled": 0.009},
)
def recall_counts(count: int, seed: int) -> Rows:
    """Other numbers of faces, drawn by other seeds."""
    return recalled(seed, count=count)


def _spoil(rows: Array, generator: np.random.Generator) -> Array:
    pictures = rows.reshape(-1, *images.FACE_SHAPE).copy()
    pictures += NOISE * rows.std() * generator.standard_normal(pictures.shape)
    for picture, top in zip(pictures, generator.integers(0, 14, len(rows)), strict=True):
        picture[top : top + 12] = 0.0
    return pictures.reshape(len(rows), -1)


def _recalled(
    arm: str, stored: Array, queries: Array, beta: float, second: float, clamped: float
) -> float:
    """Fraction of queries whose own pattern holds more than half of the weight at the end."""
    if arm in ("whitened", "equal norms"):
        mean = stored.mean(0)
        # The mean is that of whole pictures: it is taken off where a pixel is seen.
        queries = np.where(queries == 0.0, 0.0, queries - mean)
        stored = stored - mean
        if arm == "whitened":
            values, vectors = np.linalg.eigh(stored.T @ stored / len(stored))
            spread = values.clip(min=0.0) + second * values.mean()
            filter_ = vectors / np.sqrt(spread) @ vectors.T
            queries = queries @ filter_
            stored = stored @ filter_
        stored = stored / np.linalg.norm(stored, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    gram = stored @ stored.T
    scores = queries @ stored.T
    if arm == "interacting":
        couplings = -second * (gram - np.diag(gram.diagonal()))
        solved, _ = solve(
            torch.as_tensor(stored),
            queries=torch.as_tensor(queries),
            couplings=torch.as_tensor(couplings),
            beta=beta,
            clamped=clamped > 0,
            max_steps=LOOKS,
        )
        weights = solved.numpy()
    else:
        # One look: what follows it is a choice already made.
        if arm == "pseudo-inverse":
            ridge = second * np.trace(gram) / len(gram) * np.eye(len(gram))
            scores = scores @ np.linalg.inv(gram + ridge)
        elif arm == "distances":
            scores = scores - 0.5 * gram.diagonal()
        weights = softmax(beta * scores, axis=-1)
    size = len(stored)
    own = weights.reshape(-1, size, size).diagonal(axis1=1, axis2=2)
    return float((own > 0.5).mean())


BETAS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
RIDGES = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
KAPPAS = (-0.5, 0.25, 0.5, 0.75, 1.0)
# Stores LOOKS times as many, looks once.
MORE = "more patterns"


class Halves(NamedTuple):
    """Upper halves, the keys, and lower halves, the values, of pictures (N, pixels)."""

    upper: Array
    lower: Array


def complete(seed: int, *, data: str, count: int = 60) -> tuple[Array, dict[str, Array]]:
    """Lower halves of the test pictures, and what every method makes of them at its best setting.

    Of "digits" or "faces", centred and scaled. Of those not stored, one half (at most 250 digits,
    20 faces) chooses each method's setting, the other tests it.
    """
    rows = images.digits() if data == "digits" else images.faces()
    rows = rows[numpy_generator(seed).permutation(len(rows))]
    cut = 4 * 8 if data == "digits" else 12 * 25
    held = min(250 if data == "digits" else 20, (len(rows) - count) // 2)
    rows = rows - rows[2 * held :][:count].mean(0)
    # By the root mean square norm of the upper halves: β means the same for all data.
    rows = rows / np.sqrt((rows[2 * held :][:count, :cut] ** 2).sum(1).mean())
    halves = [
        Halves(part[:, :cut], part[:, cut:])
        for part in np.split(rows[: 2 * held + count * LOOKS], (held, 2 * held))
    ]
    tuning, test, many = halves
    few = Halves(many.upper[:count], many.lower[:count])
    completed = {}
    for name, (method, options) in METHODS.items():
        stored = many if name == MORE else few
        if name == MORE and len(many.upper) < 2 * count:
            continue
        errors = [
            _error(method(stored.upper, stored.lower, tuning.upper, *option), tuning.lower)
            for option in options
        ]
        best = options[int(np.nanargmin(errors))]
        completed[name] = method(stored.upper, stored.lower, test.upper, *best)
    return test.lower, completed


@stored(
    "completion",
    parameter_product(data=("digits", "faces"), seed=range(SEEDS)),
    checked=3,
    seconds=2.0,
    within={"error": 2e-3},
)
def completion_table(data: str, seed: int, count: int = 60) -> Rows:
    """Mean squared error of each method, over the variance of what it completes."""
    truth, found = complete(seed, data=data, count=count)
    errors = [_error(lower, truth) for lower in found.values()]
    return rows_of(method=list(found), error=errors)


@stored(
    "completion_counts",
    parameter_product(data=("digits", "faces"), count=(30, 90), seed=range(100, 110)),
    seconds=3.0,
    within={"error": 2e-3},
)
def completion_counts(data: str, count: int, seed: int) -> Rows:
    """Other numbers of stored pictures, drawn by other seeds."""
    return completion_table.rows(data, seed, count)


def _error(completed: Array, truth: Array) -> float:
    """Mean squared error over the variance of what is completed."""
    return float(((completed - truth) ** 2).mean() / (truth**2).mean())


def _interacting(
    keys: Array, values: Array, upper: Array, beta: float, kappa: float, step: float
) -> Array:
    """J = −κ XXᵀ: p is the least squares of the query over κ by a mixture, less the entropy."""
    couplings = -kappa * beta * keys @ keys.T
    scores = logs = beta * upper @ keys.T
    for _ in range(LOOKS):
        logs = (1.0 - step) * logs + step * (scores + softmax(logs, axis=-1) @ couplings)
    return softmax(logs, axis=-1) @ values


def _distances(keys: Array, values: Array, upper: Array, beta: float) -> Array:
    return softmax(beta * (upper @ keys.T - 0.5 * (keys**2).sum(1)), axis=-1) @ values


def _attention(keys: Array, values: Array, upper: Array, beta: float, steps: int = 1) -> Array:
    """Again and again: the state of the upper half descends, the last look completes."""
    for _ in range(steps):
        weights = softmax(beta * upper @ keys.T, axis=-1)
        upper = weights @ keys
    return weights @ values


def _layers(keys: Array, values: Array, upper: Array, beta: float, rate: float) -> Array:
    """Plain layers with a residual stream: each takes off what it has read, values are summed."""
    state = upper
    completed = np.zeros((len(upper), values.shape[1]))
    for _ in range(LOOKS):
        weights = softmax(beta * state @ keys.T, axis=-1)
        state = state - rate * weights @ keys
        completed = completed + rate * weights @ values
    return completed


def _linear(keys: Array, values: Array, upper: Array, ridge: float) -> Array:
    """Ridge regression: the pseudo-inverse memory."""
    return upper @ keys.T @ np.linalg.solve(keys @ keys.T + ridge * np.eye(len(keys)), values)


def _local(keys: Array, values: Array, upper: Array, beta: float, ridge: float) -> Array:
    """Ridge regression for each query anew, every stored pair weighted by its attention."""
    gram = keys @ keys.T
    overlaps = upper @ keys.T
    weights = softmax(beta * (overlaps - 0.5 * gram.diagonal()), axis=-1).clip(min=1e-12)
    resisting = gram + (ridge / weights)[:, None, :] * np.eye(len(gram))
    return np.linalg.solve(resisting, overlaps[..., None])[..., 0] @ values


def _solved(keys: Array, values: Array, upper: Array, beta: float, ridge: float) -> Array:
    """The exponential kernel of attention, not normalised, its values solved for once."""

    def kernel(rows: Array) -> Array:
        squares = (rows**2).sum(1)[:, None] + (keys**2).sum(1)
        return np.exp(beta * (rows @ keys.T - 0.5 * squares))

    return kernel(upper) @ np.linalg.solve(kernel(keys) + ridge * np.eye(len(keys)), values)


# Functions of keys, values, upper halves and a setting, and the settings that are tried.
_LOOK = list(product(BETAS))
_RIDGES = list(product(BETAS, RIDGES))
METHODS: dict[str, tuple[Callable[..., Array], Sequence[tuple[float, ...]]]] = {
    "interacting": (_interacting, list(product(BETAS, KAPPAS, (0.5, 0.2, 0.1)))),
    "attention": (_attention, _LOOK),
    "distances": (_distances, _LOOK),
    "attention, iterated": (_attention, list(product(BETAS, (2, 5, LOOKS)))),
    "layers": (_layers, list(product(BETAS, (0.05, 0.1, 0.2, 0.4, 0.8)))),
    "linear": (_linear, list(product(RIDGES))),
    "values solved for": (_solved, _RIDGES),
    "local linear": (_local, _RIDGES),
    MORE: (_attention, _LOOK),
}
