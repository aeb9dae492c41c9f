"""Classifiers of bags that differ in how they pool, with one number of parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from compendium.common.classifiers import parameter_count
from compendium.common.images import DIGIT_SHAPE
from spinformer.hopfield.attention import LOG_SUM_EXP, Lagrangian, entmax
from spinformer.hopfield.layer import HopfieldLayer

FEATURES = 32
PARAMETERS = 6273  # an encoder of 64 hidden units under the mean
STILL = 1e-2  # a state that moves less is at rest
_HEAD = 8
_INNER = 16  # hidden units of attention pooling

# The same softmax, but not by the fused kernel, which has no rule for `torch.vmap`.
_PLAIN = Lagrangian(
    name="log-sum-exp, plain", value=LOG_SUM_EXP.value, weights=LOG_SUM_EXP.gradient
)
_REST: dict[str, Any] = {"tolerance": STILL, "steps": 30}
_MEMORIES: dict[str, dict[str, Any]] = {
    "hopfield": {"lagrangian": _PLAIN},
    "hopfield, 3 steps": {"steps": 3, "lagrangian": _PLAIN},
    "hopfield, rest": {**_REST, "lagrangian": _PLAIN},
    "hopfield, sparse": {"lagrangian": entmax(2.0)},
    "static": {"static": True, "lagrangian": _PLAIN},
    "static, rest": {**_REST, "static": True, "lagrangian": _PLAIN},
}
POOLINGS = ("mean", "max", "attention", "gated", *_MEMORIES)


def has_memory(pooling: str) -> bool:
    """Whether a pooling is a `HopfieldLayer`, with an inverse temperature to start from."""
    return pooling in _MEMORIES


class BagClassifier(nn.Module):
    """Encoder, pooling and readout: images (bags, n, 64) to logits (bags,).

    pooling: one of POOLINGS. "attention" and "gated" weigh instances by a softmax over
    w·tanh(Vh) and w·(tanh(Vh) ⊙ sigmoid(Uh)) [ilse2018attention]; the Hopfield layers have one
    head of width 8, one learned query, a learned β that starts at `sharpness`/√width, and for
    "static" no projections. The encoder's hidden width makes the number of parameters that of all.
    """

    def __init__(self, pooling: str, *, sharpness: float = 1.0) -> None:
        super().__init__()
        self.pooling = pooling
        pixels = DIGIT_SHAPE[0] * DIGIT_SHAPE[1]
        self.pool: nn.Module | None = None
        if has_memory(pooling):
            options = _MEMORIES[pooling]
            size = FEATURES if options.get("static") else _HEAD
            self.pool = HopfieldLayer(
                FEATURES,
                head_width=size,
                pooling=1,
                beta=sharpness / size**0.5,
                **options,
            )
            self.pool.log_beta.requires_grad_()
        elif pooling in ("attention", "gated"):
            self.pool = AttentionPooling(_INNER, gated=pooling == "gated")
        self.readout = nn.Linear(FEATURES, 1)
        spent = parameter_count(self) + FEATURES
        hidden = round((PARAMETERS - spent) / (pixels + 1 + FEATURES))
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, FEATURES)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits (bags,)."""
        features = self.encoder(images)
        if self.pooling == "mean":
            pooled = features.mean(-2)
        elif self.pooling == "max":
            pooled = features.amax(-2)
        elif isinstance(self.pool, HopfieldLayer):
            pooled = self.pool(patterns=features).squeeze(-2)
        else:
            assert self.pool is not None
            pooled = self.pool(features)
        logits: Tensor = self.readout(pooled).squeeze(-1)
        return logits

    @torch.no_grad()
    def weights(self, images: Tensor) -> Tensor | None:
        """(bags, n): what each instance weighs in the pool; None for the maximum."""
        features = self.encoder(images)
        if self.pooling == "mean":
            return torch.full(images.shape[:-1], 1.0 / images.shape[-2])
        if isinstance(self.pool, HopfieldLayer):
            found: Tensor = self.pool(patterns=features, need_weights=True)[1][:, 0]
            return found
        if isinstance(self.pool, AttentionPooling):
            return self.pool.weights(features)
        return None


class AttentionPooling(nn.Module):
    """Σ a_i h_i with a = softmax(w·tanh(Vh)), or gated: (..., n, 32) to (..., 32)."""

    def __init__(self, hidden: int, *, gated: bool = False) -> None:
        super().__init__()
        self.turn = nn.Linear(FEATURES, hidden)
        self.gate = nn.Linear(FEATURES, hidden) if gated else None
        self.score = nn.Linear(hidden, 1)

    def weights(self, features: Tensor) -> Tensor:
        """(..., n), sum 1."""
        inner = torch.tanh(self.turn(features))
        if self.gate is not None:
            inner = inner * torch.sigmoid(self.gate(features))
        return torch.softmax(self.score(inner).squeeze(-1), dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        """The weighted mean of the features."""
        return (self.weights(features).unsqueeze(-1) * features).sum(-2)
