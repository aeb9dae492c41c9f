"""How many keys the heads of a language model attend to, and the law of Gaussian logits.

Attention maps have shape (..., queries, keys), rows sum to one. Inverse temperatures stand
inside: logits are β q·k with β = 1/√d, as in [bal2021transformers, Eq. (1)]. Shapes are those of
`spinformer.language`; what has one number a head is a NumPy array (L, H).
"""

from __future__ import annotations

import numpy as np
import torch

from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.fixed_points import effective_entries

CLASS_NAMES = ("I", "II", "III", "IV")


def head_medians(per_query: np.ndarray | torch.Tensor) -> np.ndarray:
    """Median over sequences and queries of a quantity (B, H, N): one number a head, (H,)."""
    return np.median(np.asarray(per_query, dtype=float), axis=(0, 2))


def operating_class(entries: torch.Tensor, *, size: int) -> torch.Tensor:
    """Class 1, 2, 3 or 4 of a head whose softmax rows need `entries` of `size` weights for 0.9.

    1: more than N/2 (it averages over nearly everything), 2: (N/8, N/2], 3: (N/32, N/8],
    4: at most N/32 (few or single patterns). `entries` may be medians over rows
    [ramsauer2020hopfield, Sec. 3, classes I to IV].
    """
    edges = size / torch.tensor([32.0, 8.0, 2.0])
    return 4 - torch.bucketize(entries.double(), edges.double()).int()


def class_counts(classes: np.ndarray) -> list[int]:
    """How many heads of an array of classes 1 … 4 are in class I, II, III, IV."""
    return [int((classes == number).sum()) for number in range(1, 5)]


def sampled_gaussian_entries(
    spread: np.ndarray, *, keys: int, draws: int = 400, seed: Seed = 0
) -> np.ndarray:
    """Median k (mass 0.9) of `keys` Gaussian logits for every standard deviation in `spread`.

    For N → ∞ the fraction k/N is Φ(1.2816 − s). The same normal numbers are
    scaled by each spread, so that the curve is smooth. Gaussian logits are the random energy
    model: for spread above √(2 log N) a few entries carry the weight, while the formula
    for N → ∞ goes on to fractions of an entry. `spread` and the result have shape (n,).
    """
    normal = torch.from_numpy(numpy_generator(seed).standard_normal((draws, keys)))
    return np.array(
        [
            float(np.median(effective_entries(torch.softmax(value * normal, dim=-1)).numpy()))
            for value in spread
        ]
    )
