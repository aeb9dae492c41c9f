"""One step of an inner loop against several: what a query gains from further steps.

Two inner loops read the same demonstrations (x_i, y_i) and answer a query x:

    "regression": w ← w + η Σ_i (y_i − w·x_i) x_i from w = 0, the answer w·x; a step is a layer of
                  linear attention [vonoswald2023transformers],
    "look-up":    x ← Σ_i softmax(β x_i·x) x_i, and then the answer Σ_i softmax(β x_i·x) y_i; a step
                  is a layer of softmax attention.

Labels are linear in x ("line") or those of the nearer one of two prototypes ("classes"). The
variance of the k-th coordinate of linear inputs falls as 1/k^decay, so that inputs with decay 0
have no preferred direction. β, the rate and the number of steps are chosen on half of the tasks
and judged on the other half.

Criterion of A16c, written before its table: it is restrictive to confine the inner loop to one step
of look-up if the best of 1 to 16 steps of either loop has less than half of its squared error, with
the whole 95 % interval over the tasks, for both kinds of labels and at all sizes. Expected: for
labels on a line alone, by steps of regression, while more steps of look-up lead away from them.

The first tables had decay 2 alone. With decay 0 and fewer demonstrations than directions the line
is not determined, and no loop halves the error. The present region was written then: labels on a
line that are determined by the demonstrations, or by a few directions.
"""

from typing import Any

import numpy as np
from scipy.special import softmax

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.core.random import Seed, numpy_generator

LOOPS = ("look-up", "regression")
RATES = np.geomspace(0.1, 30.0, 16)
STEPS = (1, 2, 4, 8, 16)


def draw_tasks(
    labels: str, *, count: int, dim: int, shown: int, seed: Seed, decay: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (count, shown + 1, dim), the query last, and labels (count, shown + 1) of size one."""
    rng = numpy_generator(seed)
    x = rng.standard_normal((count, shown + 1, dim))
    target = rng.standard_normal((count, 1, dim)) / np.sqrt(dim)
    if labels == "line":
        x *= np.arange(1, dim + 1) ** (-decay / 2.0)
        y = (x * target).sum(-1)
        return x, y / np.sqrt((y**2).mean(1, keepdims=True))
    sign = rng.choice([-1.0, 1.0], (count, shown + 1))
    return x / 2 + sign[..., None] * target, sign


def answer_errors(x: np.ndarray, y: np.ndarray, *, loop: str, rate: float) -> np.ndarray:
    """Squared errors of the query's answer after each of `STEPS`, (STEPS, tasks)."""
    demonstrations = x[:, :-1]
    labels = y[:, :-1]
    query = x[:, -1]
    scale = (demonstrations**2).sum(-1).sum(-1, keepdims=True)
    weights = np.zeros_like(query)
    errors = []
    for step in range(1, max(STEPS) + 1):
        if loop == "regression":
            missing = labels - np.einsum("tsd,td->ts", demonstrations, weights)
            weights = weights + rate * np.einsum("ts,tsd->td", missing, demonstrations) / scale
            answer = (weights * query).sum(-1)
        else:
            attention = softmax(rate * np.einsum("tsd,td->ts", demonstrations, query), axis=-1)
            answer = (attention * labels).sum(-1)
            query = np.einsum("ts,tsd->td", attention, demonstrations)
        if step in STEPS:
            errors.append((answer - y[:, -1]) ** 2)
    return np.array(errors)


def errors_of_halves(
    labels: str, *, count: int, **choices: Any
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Squared errors by loop: means of one half of the tasks (STEPS,), the other (STEPS, count).

    Each has the rate with the least mean. `choices` are the sizes and the seed of `draw_tasks`.
    """
    x, y = draw_tasks(labels, count=2 * count, **choices)
    found = {}
    for loop in LOOPS:
        errors = np.array([answer_errors(x, y, loop=loop, rate=rate) for rate in RATES])
        means = errors[:, :, :count].mean(-1)
        best = means.argmin(0)
        found[loop] = (means.min(0), errors[best, np.arange(len(STEPS)), count:])
    return found


def chosen_errors(labels: str, *, count: int = 400, **choices: Any) -> dict[str, np.ndarray]:
    """Squared errors by loop after each of `STEPS`, at rates chosen on as many other tasks."""
    halves = errors_of_halves(labels, count=count, **choices)
    return {loop: judged for loop, (_, judged) in halves.items()}


def lead_of_steps(data: int, labels: str, **sizes: float) -> Rows:
    """What one step of look-up loses against the best loop, less its half; relative to the labels.

    The best loop and number of steps are chosen on other tasks, as the rates are.
    """
    halves = errors_of_halves(labels, count=400, seed=data, **sizes)
    chosen = np.concatenate([means for means, _ in halves.values()])
    judged = np.concatenate([errors for _, errors in halves.values()])
    return mean_rows(judged[0] / 2.0 - judged[chosen.argmin()])


_SIZES = parameter_product(dim=(8, 16, 32), shown=(8, 16, 32))
_FIRST = [
    {"labels": labels, "decay": decay, **sizes}
    for labels, decay in (("line", 2.0), ("line", 0.0), ("classes", 0.0))
    for sizes in _SIZES
]
settings_a16c = stored("settings_A16c", numbered(_FIRST, first=100), seconds=1.0, rtol=0.01)(
    lead_of_steps
)
# Drawn after the region of A16c had been written down, and inside of it.
_FRESH = [
    unit
    for unit in parameter_product(
        labels=("line",), decay=(0.0, 1.0, 2.0, 4.0), dim=(6, 12, 24, 40), shown=(6, 12, 40)
    )
    if unit["shown"] >= unit["dim"] or unit["decay"] >= 2
]
confirm_a16c = stored("confirm_A16c", numbered(_FRESH, first=1500), seconds=1.0, rtol=0.01)(
    lead_of_steps
)
