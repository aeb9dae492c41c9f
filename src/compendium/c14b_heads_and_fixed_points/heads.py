"""How many keys the heads of a language model attend to, and the law of Gaussian logits.

Attention maps have shape (..., queries, keys), rows sum to one. Inverse temperatures stand
inside: logits are β q·k with β = 1/√d, as in [bal2021transformers, Eq. (1)]. Shapes are those of
`spinformer.language`; what has one number a head is a NumPy array (L, H).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_tensor
from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.encoder import LayerTrace

CLASS_NAMES = ("I", "II", "III", "IV")


def attention_logits(trace: LayerTrace) -> torch.Tensor:
    """Logits β q·k of every head, (B, H, N, N): the softmax over the last axis attends."""
    return trace.beta * trace.queries @ trace.keys.mT


def head_medians(per_query: torch.Tensor) -> np.ndarray:
    """Median over sequences and queries of a quantity (B, H, N): one number a head, (H,)."""
    if per_query.ndim != 3 or not per_query.numel():
        raise ValueError(
            f"per_query must have 3 axes, none empty, got shape {tuple(per_query.shape)}"
        )
    return np.median(per_query.detach().double().numpy(), axis=(0, 2))


def logit_spread(logits: torch.Tensor) -> torch.Tensor:
    """Standard deviation over the keys of logits (..., N), β included: (...)."""
    return check_tensor("logits", logits).std(dim=-1, correction=0)


def logit_skewness(logits: torch.Tensor) -> torch.Tensor:
    """Third moment over the keys of logits (..., N) in units of their spread: (...), or 0."""
    centered = check_tensor("logits", logits) - logits.mean(-1, keepdim=True)
    spread = centered.square().mean(-1).sqrt()
    return torch.where(spread > 0, (centered**3).mean(-1) / spread.clamp_min(1e-30) ** 3, 0.0)


def class_counts(classes: np.ndarray) -> list[int]:
    """How many heads of an array of classes 1 … 4 are in class I, II, III, IV."""
    classes = check_array("classes", classes, values=(1, 2, 3, 4))
    return [int((classes == number).sum()) for number in range(1, 5)]


def sampled_gaussian_entries(
    spread: ArrayLike, *, keys: int, draws: int = 400, seed: Seed = 0
) -> np.ndarray:
    """Median k (mass 0.9) of `keys` Gaussian logits for every standard deviation in `spread`.

    For N → ∞ the fraction k/N is Φ(1.2816 − s). The same normal numbers are
    scaled by each spread, so that the curve is smooth. Gaussian logits are the random energy
    model: for spread above √(2 log N) a few entries carry the weight, while the formula
    for N → ∞ goes on to fractions of an entry. `spread` and the result have shape (n,). Raises
    ValueError for a negative spread or sizes below one.
    """
    spread = check_array("spread", spread, ndim=1, low=0.0)
    normal = torch.from_numpy(numpy_generator(seed).standard_normal((draws, keys)))
    return np.array(
        [
            float(np.median(effective_entries(torch.softmax(value * normal, dim=-1)).numpy()))
            for value in spread
        ]
    )
