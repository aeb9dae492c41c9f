"""The lower half of pictures that were never stored, from their upper half.

`count` pictures are stored, upper halves x_i as keys and lower halves y_i as values. The weights p
of a query are found by attention, or by patterns that interact, and the completion is Σ p_i y_i.
Interactions J = −κ XXᵀ turn the search for the best match into a fit: at rest, p minimises ½κ‖q/κ
− Xᵀp‖² less the entropy, the least squares of q/κ by a mixture of patterns. What a method may use
is counted in looks at the memory, LOOKS at most for each query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

from compendium.common import images
from spinformer.core.random import numpy_generator

LOOKS = 20
BETAS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
KAPPAS = (-0.5, 0.25, 0.5, 0.75, 1.0)
STEP_SIZES = (0.5, 0.2, 0.1)
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
RIDGES = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
# Patterns that interact; "more patterns" stores LOOKS times as many, looks once.
INTERACTING = ("interacting", "interacting, no diagonal")
MORE = "more patterns"

Setting = tuple[float, ...]
Halves = tuple[np.ndarray, np.ndarray]
Method = Callable[[Halves, np.ndarray, Setting], np.ndarray]


def complete(seed: int, *, data: str, count: int = 60) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Lower halves of the test pictures, and what every method makes of them at its best setting.

    All centred and scaled. `data` is "digits" or "faces". Of the pictures left, one half (at most
    250 digits, 20 faces) chooses each method's setting, the other tests it.
    """
    rows = images.digits() if data == "digits" else images.faces()
    rows = rows[numpy_generator(seed).permutation(len(rows))]
    held = min(250 if data == "digits" else 20, (len(rows) - count) // 2)
    rest = rows[2 * held :]
    small, large = rest[:count], rest[: count * LOOKS]
    mean, scale = small.mean(0), _scale(small)
    few, many, tuning, test = (
        _halves((x - mean) / scale) for x in (small, large, rows[:held], rows[held : 2 * held])
    )
    found = {}
    for name, method, options in methods():
        stored = many if name == MORE else few
        if name == MORE and len(stored[0]) < 2 * count:
            continue
        errors = [_error(method(stored, tuning[0], option), tuning[1]) for option in options]
        found[name] = method(stored, test[0], options[int(np.nanargmin(errors))])
    return test[1], found


def completion(seed: int, *, data: str, count: int = 60) -> dict[str, float]:
    """Mean squared error of every method of `complete`, over the variance of what it completes."""
    truth, found = complete(seed, data=data, count=count)
    return {name: _error(lower, truth) for name, lower in found.items()}


def methods() -> Iterator[tuple[str, Method, list[Setting]]]:
    """Name, function of (stored halves, upper halves, setting), and the settings that are tried."""
    plain: list[Setting] = [(beta,) for beta in BETAS]
    for name, diagonal in zip(INTERACTING, (True, False), strict=True):
        options: list[Setting] = list(product(BETAS, KAPPAS, STEP_SIZES))
        yield name, partial(_interacting, diagonal=diagonal), options
    yield "attention", _attention, plain
    yield "distances", _distances, plain
    yield "attention, iterated", _iterated, list(product(BETAS, (2.0, 5.0, float(LOOKS))))
    yield "layers", _layers, list(product(BETAS, RATES))
    yield "linear", _linear, [(ridge,) for ridge in RIDGES]
    yield "values solved for", _solved, list(product(BETAS, RIDGES))
    yield "local linear", _local, list(product(BETAS, RIDGES))
    yield MORE, _attention, plain


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _halves(rows: np.ndarray) -> Halves:
    shape = images.DIGIT_SHAPE if rows.shape[1] == 64 else images.FACE_SHAPE
    cut = (shape[0] // 2) * shape[1]
    return rows[:, :cut], rows[:, cut:]


def _scale(rows: np.ndarray) -> float:
    """The root mean square norm of the upper halves, so that β means the same for all data."""
    upper = _halves(rows - rows.mean(0))[0]
    return float(np.sqrt((upper**2).sum(1).mean()))


def _error(completed: np.ndarray, truth: np.ndarray) -> float:
    return float(((completed - truth) ** 2).mean() / (truth**2).mean())


def _interacting(
    stored: Halves, upper: np.ndarray, setting: Setting, *, diagonal: bool
) -> np.ndarray:
    beta, kappa, step_size = setting
    gram = stored[0] @ stored[0].T
    couplings = -kappa * (gram if diagonal else gram - np.diag(gram.diagonal()))
    scores = beta * upper @ stored[0].T
    logs = scores
    for _ in range(LOOKS):
        weights = softmax(logs)
        logs = (1.0 - step_size) * logs + step_size * (scores + beta * weights @ couplings)
    return softmax(logs) @ stored[1]


def _attention(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    return softmax(setting[0] * upper @ stored[0].T) @ stored[1]


def _distances(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    norms = 0.5 * (stored[0] ** 2).sum(1)
    return softmax(setting[0] * (upper @ stored[0].T - norms)) @ stored[1]


def _iterated(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    """Attention again and again: the state of the upper half descends, the last look completes."""
    state = upper
    for _ in range(int(setting[1])):
        weights = softmax(setting[0] * state @ stored[0].T)
        state = weights @ stored[0]
    return weights @ stored[1]


def _layers(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    """Plain layers with a residual stream: each takes off what it has read, values are summed."""
    beta, rate = setting
    state, completed = upper, np.zeros((len(upper), stored[1].shape[1]))
    for _ in range(LOOKS):
        weights = softmax(beta * state @ stored[0].T)
        state = state - rate * weights @ stored[0]
        completed = completed + rate * weights @ stored[1]
    return completed


def _linear(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    """Ridge regression: the pseudo-inverse memory."""
    gram = stored[0] @ stored[0].T
    return upper @ stored[0].T @ np.linalg.solve(gram + setting[0] * np.eye(len(gram)), stored[1])


def _local(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    """Ridge regression for each query anew, every stored pair weighted by its attention."""
    beta, ridge = setting
    gram, overlaps = stored[0] @ stored[0].T, upper @ stored[0].T
    weights = softmax(beta * (overlaps - 0.5 * gram.diagonal())).clip(min=1e-12)
    resisting = gram + (ridge / weights)[:, None, :] * np.eye(len(gram))
    return np.linalg.solve(resisting, overlaps[..., None])[..., 0] @ stored[1]


def _solved(stored: Halves, upper: np.ndarray, setting: Setting) -> np.ndarray:
    """The exponential kernel of attention, not normalised, its values solved for once."""
    beta, ridge = setting

    def kernel(rows: np.ndarray) -> np.ndarray:
        squares = (rows**2).sum(1)[:, None] + (stored[0] ** 2).sum(1)
        return np.exp(beta * (rows @ stored[0].T - 0.5 * squares))

    values = np.linalg.solve(kernel(stored[0]) + ridge * np.eye(len(stored[0])), stored[1])
    return kernel(upper) @ values
