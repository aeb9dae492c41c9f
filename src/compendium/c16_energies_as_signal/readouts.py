"""What a representation is worth: logistic regression on it, its rank, and what it must beat.

Features are frozen; they are centred and divided by one number, the standard deviation of the
centred training features: directions keep their relative sizes, and a representation is not blamed
for small differences beside a large mean. Two ways to make one vector of the
tokens: their mean, which is what the network's own readout sees, and all of them, reduced to as
many principal components. Two ways to learn from it: all labels of the training set, and the first
ten of each class. The controls have as many features as the network is wide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from compendium.c16_energies_as_signal.network import Shape, Weights, run
from compendium.c16_energies_as_signal.training import Digits, update_copies
from compendium.common.copies import draw_copies
from spinformer.core.random import torch_generator

POOLINGS = ("mean", "tokens")
LABELS = ("all", "few")
READOUTS = tuple((pooling, labels) for pooling in POOLINGS for labels in LABELS)
PENALTIES = (0.1, 1.0, 10.0)  # inverse strengths of the ridge, chosen on validation data
PARTS = ("train", "validation", "test")
_FEW = 10
_HIDDEN = 128

Features = dict[str, np.ndarray]


def probe_accuracy(
    features: Features, *, labels: Features, using: str, penalty: float, on: str
) -> float:
    """Share of the images `on` ("validation" or "test") that a logistic regression names right.

    `features` and `labels` hold the arrays (n, D) and (n,) of the parts by name; it learns
    from "train". using: "all" labels or "few", ten a class; penalty: sklearn's C.
    """
    train, known = features["train"], labels["train"]
    shift = train.mean(0)
    scale = max(float((train - shift).std()), 1e-300)
    if using == "few":
        chosen = np.concatenate([np.flatnonzero(known == c)[:_FEW] for c in np.unique(known)])
        train, known = train[chosen], known[chosen]
    model = LogisticRegression(C=penalty, max_iter=5000, tol=1e-3)
    model.fit((train - shift) / scale, known)
    return float(model.score((features[on] - shift) / scale, labels[on]))


def accuracies(
    features: list[Features], labels: list[Features], *, using: str, penalty: float, on: str
) -> list[float]:
    """`probe_accuracy` of every copy."""
    return [
        probe_accuracy(one, labels=known, using=using, penalty=penalty, on=on)
        for one, known in zip(features, labels, strict=True)
    ]


def effective_rank(features: np.ndarray) -> float:
    """exp of the entropy of the normalized singular values of centred features (n, D).

    Roy and Vetterli (2007): between 1 (one direction) and D (all alike); 0 if all rows agree.
    """
    values = np.linalg.svd(features - features.mean(0), compute_uv=False)
    if not values.sum():
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@torch.no_grad()
def all_features(
    weights: Weights, shape: Shape, *, data: Digits, depths: Sequence[int]
) -> dict[tuple[str, int], list[Features]]:
    """States after each of `depths` layers, every pooling and copy: features (n, D), float64.

    pooling: "mean" of the tokens, or all "tokens", reduced to D principal components.
    """
    found: dict[tuple[str, int], list[Features]] = {}
    passes = {part: run(weights, shape, tokens=getattr(data, part)).states for part in PARTS}
    for depth in depths:
        states = {part: values[depth].double() for part, values in passes.items()}
        means = {part: values.mean(-2).numpy() for part, values in states.items()}
        every = {part: values.flatten(2).numpy() for part, values in states.items()}
        found["mean", depth] = by_copy(means)
        found["tokens", depth] = [_leading(one, shape.width) for one in by_copy(every)]
    return found


def by_copy(features: Features) -> list[Features]:
    """Features (C, n, D) of the parts as one dictionary (n, D) a copy."""
    copies = zip(*features.values(), strict=True)
    return [dict(zip(features, values, strict=True)) for values in copies]


def pixel_features(data: Digits, *, components: int | None = None) -> list[Features]:
    """The pixels of every copy's images, or their leading principal `components`."""
    pixels = {part: getattr(data, part).flatten(2).double().numpy() for part in PARTS}
    found = by_copy(pixels)
    return found if components is None else [_leading(one, components) for one in found]


def autoencoder_features(
    data: Digits,
    *,
    components: int,
    seeds: Sequence[int],
    rate: float,
    steps: int,
) -> list[Features]:
    """The narrow layer of an autoencoder 64 – 128 – `components` – 128 – 64 with GELU units.

    Trained like the networks: as many updates of Adam, rates that fall along a cosine.
    """
    pixels = data.train[0, 0].numel()
    generators = [torch_generator(seed) for seed in seeds]
    weights = {
        name: draw_copies(rows, columns, generators=generators) / rows**0.5
        for name, rows, columns in (
            ("in", pixels, _HIDDEN),
            ("narrow", _HIDDEN, components),
            ("wide", components, _HIDDEN),
            ("out", _HIDDEN, pixels),
        )
    }
    weights |= {
        f"{name} bias": torch.zeros(len(seeds), 1, weights[name].shape[-1])
        for name in tuple(weights)
    }

    def layer(x: Tensor, name: str) -> Tensor:
        return x @ weights[name] + weights[f"{name} bias"]

    def narrow(x: Tensor) -> Tensor:
        return layer(functional.gelu(layer(x, "in")), "narrow")

    def losses() -> Tensor:
        images = data.batch(generators)[0].flatten(2)
        wrong = layer(functional.gelu(layer(narrow(images), "wide")), "out") - images
        return wrong.square().mean((1, 2))

    update_copies(weights, losses=losses, rate=rate, steps=steps)
    with torch.no_grad():
        codes = {part: narrow(getattr(data, part).flatten(2)).double().numpy() for part in PARTS}
    return by_copy(codes)


def _leading(features: Features, components: int) -> Features:
    """Principal components of the training features, and the other parts in them."""
    model = PCA(components, svd_solver="covariance_eigh").fit(features["train"])
    return {part: model.transform(values) for part, values in features.items()}
