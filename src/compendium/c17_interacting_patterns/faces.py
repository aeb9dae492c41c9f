"""Faces recalled by memories whose patterns repel each other, and by the usual remedies.

COUNT of the 100 faces are stored, as they are. A query is a stored face with a horizontal band of
half its height hidden (0) and normal noise on the rest. It is recalled if the weight of its own
pattern at rest exceeds one half. Every arm has its own β, and some a second number; both are chosen
on other queries of the same memory.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from compendium.c17_interacting_patterns.interacting import solve
from compendium.common import images
from spinformer.core.random import numpy_generator

ARMS = ("attention", "interacting", "whitened", "pseudo-inverse", "equal norms", "distances")
BETAS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
KAPPAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
STEPS = 20
COUNT, NOISE = 60, 0.5

Setting = dict[str, float]


def recall(seed: int) -> dict[str, dict[str, float]]:
    """Share of queries recalled by each arm, its `setting`s beside it, for one draw of everything.

    Noise of NOISE in units of the pixels' standard deviation. Three queries a face choose the
    setting, three test it.
    """
    generator = numpy_generator(seed)
    every = images.faces()
    chosen = generator.choice(len(every), size=COUNT, replace=False)
    stored = every[chosen] / np.sqrt(np.mean((every[chosen] ** 2).sum(1)))
    targets = np.tile(np.arange(COUNT), 3)
    tuning, test = (_spoil(stored[targets], generator) for _ in range(2))
    found = {}
    for arm in ARMS:
        best = max(settings(arm), key=lambda s: _share(arm, s, stored, tuning, targets))
        found[arm] = {"recalled": _share(arm, best, stored, test, targets), **best}
    return found


def settings(arm: str) -> list[Setting]:
    """What is tried for an arm: β, and κ with a free or clamped state, or a ridge."""
    others: list[tuple[float, float]] = [(0.0, 0.0)]
    if arm == "interacting":
        others = list(product(KAPPAS, (0.0, 1.0)))
    elif arm in ("whitened", "pseudo-inverse"):
        others = [(ridge, 0.0) for ridge in RIDGES]
    return [
        {"beta": beta, "second": second, "clamped": clamped}
        for beta, (second, clamped) in product(BETAS, others)
    ]


def _spoil(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    pictures = rows.reshape(-1, *images.FACE_SHAPE).copy()
    pictures += NOISE * rows.std() * generator.standard_normal(pictures.shape)
    height = images.FACE_SHAPE[0]
    for picture, top in zip(
        pictures, generator.integers(0, height // 2 + 2, len(rows)), strict=True
    ):
        picture[top : top + height // 2] = 0.0
    return pictures.reshape(len(rows), -1)


def _share(
    arm: str, setting: Setting, stored: np.ndarray, queries: np.ndarray, targets: np.ndarray
) -> float:
    """Share of queries whose own pattern holds more than half of the weight at the end."""
    beta, second = setting["beta"], setting["second"]
    gram = stored @ stored.T
    couplings = np.zeros_like(gram)
    if arm == "interacting":
        couplings = -second * (gram - np.diag(gram.diagonal()))
    elif arm in ("whitened", "equal norms"):
        mean = stored.mean(0)
        # The mean is that of whole pictures: it is taken off where a pixel is seen.
        queries, stored = np.where(queries == 0.0, 0.0, queries - mean), stored - mean
        if arm == "whitened":
            values, vectors = np.linalg.eigh(stored.T @ stored / len(stored))
            spread = values.clip(min=0.0) + second * values.mean()
            filter_ = vectors / np.sqrt(spread) @ vectors.T
            queries, stored = queries @ filter_, stored @ filter_
        stored, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (stored, queries))
    scores = queries @ stored.T
    if arm == "pseudo-inverse":
        scores = scores @ np.linalg.inv(
            gram + second * np.trace(gram) / len(gram) * np.eye(len(gram))
        )
    elif arm == "distances":
        scores = scores - 0.5 * (stored**2).sum(1)
    if arm in ("pseudo-inverse", "distances"):
        # One look: what follows it is a choice already made.
        weights = torch.softmax(torch.as_tensor(beta * scores), -1).numpy()
    else:
        weights = solve(
            torch.as_tensor(stored),
            queries=torch.as_tensor(queries),
            couplings=torch.as_tensor(couplings),
            beta=beta,
            clamped=bool(setting["clamped"]),
            max_steps=STEPS,
        ).value.numpy()
    return float((weights[np.arange(len(targets)), targets] > 0.5).mean())
