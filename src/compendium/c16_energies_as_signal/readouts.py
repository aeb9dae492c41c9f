"""What a representation is worth: logistic regression on it, its rank, and what it must beat.

Features are frozen; they are centred and divided by one number, the standard deviation of the
centred training features: directions keep their relative sizes, and a representation is not blamed
for small differences beside a large mean. Two ways to make one vector of the
tokens: their mean, which is what the network's own readout sees, and all of them, reduced to as
many principal components. Two ways to learn from it: all labels of the training set, and the first
ten of each class. The controls have as many features as the network is wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.stats import entropy
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from compendium.c16_energies_as_signal.network import (
    PIXELS,
    TOKENS,
    WIDTH,
    Weights,
    affine,
    draw_maps,
    run,
)
from compendium.c16_energies_as_signal.training import Digits, draw_batch
from compendium.common.copies import update_copies
from spinformer.core.random import torch_generator

POOLINGS = ("mean", "tokens")
READOUTS = tuple((pooling, labels) for pooling in POOLINGS for labels in ("all", "few"))
PENALTIES = (0.1, 1.0, 10.0)  # inverse strengths of the ridge, chosen on validation data
_FEW = 10
_HIDDEN = 128

# By part of the split: features (C, n, D), float64, or labels (C, n), of every copy.
Parts = Mapping[str, np.ndarray]


def probe_accuracies(
    features: Parts, *, labels: Parts, using: str, penalty: float, on: str
) -> list[float]:
    """Share of the images `on` that a logistic regression names right, for every copy.

    It learns from the part "train". using: "all" labels or "few", ten a class; penalty: sklearn's
    C.
    """
    found = []
    for copy, (train, known) in enumerate(zip(features["train"], labels["train"], strict=True)):
        shift = train.mean(0)
        scale = max(float((train - shift).std()), 1e-300)
        chosen = np.arange(len(known))
        if using == "few":
            chosen = np.concatenate([np.flatnonzero(known == c)[:_FEW] for c in np.unique(known)])
        model = LogisticRegression(C=penalty, max_iter=5000, tol=1e-3)
        model.fit((train[chosen] - shift) / scale, known[chosen])
        found.append(float(model.score((features[on][copy] - shift) / scale, labels[on][copy])))
    return found


def effective_rank(features: np.ndarray) -> float:
    """exp of the entropy of the normalized singular values of centred features (n, D).

    Roy and Vetterli (2007): between 1 (one direction) and D (all alike); 0 if all rows agree.
    """
    values = np.linalg.svd(features - features.mean(0), compute_uv=False)
    return float(np.exp(entropy(values))) if values.any() else 0.0


@torch.no_grad()
def all_features(
    weights: Weights, *, data: Digits, depths: Sequence[int]
) -> dict[tuple[str, int], Parts]:
    """States after each of `depths` layers in every pooling.

    The "mean" of the tokens, or all "tokens", reduced to as many principal components.
    """
    found: dict[tuple[str, int], Parts] = {}
    passes = {part: run(weights, tokens).states for part, (tokens, _) in data.items()}
    for depth in depths:
        states = {part: values[depth].double() for part, values in passes.items()}
        found["mean", depth] = {part: x.mean(-2).numpy() for part, x in states.items()}
        found["tokens", depth] = leading({part: x.flatten(2) for part, x in states.items()})
    return found


def leading(features: Mapping[str, Tensor]) -> Parts:
    """WIDTH principal components of the training features, and the other parts in them."""
    models = [PCA(WIDTH, svd_solver="covariance_eigh").fit(one) for one in features["train"]]
    return {
        part: np.stack([model.transform(one) for model, one in zip(models, values, strict=True)])
        for part, values in features.items()
    }


def pixel_features(data: Digits, *, components: bool) -> Parts:
    """The pixels of every copy's images, or their WIDTH principal `components`."""
    pixels = {part: tokens.flatten(2).double() for part, (tokens, _) in data.items()}
    return leading(pixels) if components else {part: x.numpy() for part, x in pixels.items()}


def autoencoder_features(data: Digits, *, seeds: Sequence[int], rate: float, steps: int) -> Parts:
    """The narrow layer of an autoencoder 64 – 128 – WIDTH – 128 – 64 with GELU units.

    Trained like the networks: as many updates of Adam, rates that fall along a cosine.
    """
    pixels = TOKENS * PIXELS
    sizes = {
        "in": (pixels, _HIDDEN),
        "narrow": (_HIDDEN, WIDTH),
        "wide": (WIDTH, _HIDDEN),
        "out": (_HIDDEN, pixels),
    }
    generators = [torch_generator(seed) for seed in seeds]
    weights = draw_maps(sizes, biased=sizes, generators=generators)

    def narrow(images: Tensor) -> Tensor:
        return affine(weights, "narrow", functional.gelu(affine(weights, "in", images)))

    def losses() -> Tensor:
        images = draw_batch(data, generators=generators)[0].flatten(2).unsqueeze(2)
        wide = functional.gelu(affine(weights, "wide", narrow(images)))
        return (affine(weights, "out", wide) - images).square().mean((1, 2, 3))

    update_copies(weights, losses=losses, rate=rate, steps=steps)
    with torch.no_grad():
        codes = {
            part: narrow(x.flatten(2).unsqueeze(2)).squeeze(2) for part, (x, _) in data.items()
        }
    return {part: values.double().numpy() for part, values in codes.items()}
