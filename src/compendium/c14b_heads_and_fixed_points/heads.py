"""How many keys the heads of a language model attend to, and the law of Gaussian logits.

Attention maps have shape (..., queries, keys), rows sum to one. Inverse temperatures stand
inside: logits are β q·k with β = 1/√d, as in [bal2021transformers, Eq. (1)]. Shapes are those of
`spinformer.language`; what has one number a head is a NumPy array (L, H).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from compendium.c14b_heads_and_fixed_points.classes import operating_class
from spinformer.core.checks import check_array, check_tensor
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.encoder import LanguageModel, LayerTrace, run_model

CLASS_NAMES = ("I", "II", "III", "IV")


@record
class HeadStatistics:
    """Medians over sequences and queries for every head of a model, arrays (L, H).

    `entries`: the fewest softmax entries that sum to 0.9, k. `classes`: 1 … 4 for I … IV.
    `spread`: standard deviation of the logits over the keys, s. `law_entries`: N Φ(1.2816 − s),
    the k of Gaussian logits with each query's own s. `law_classes`: the class that it gives.
    `keys`: N.
    """

    entries: np.ndarray
    classes: np.ndarray
    spread: np.ndarray
    law_entries: np.ndarray
    law_classes: np.ndarray
    keys: int


def attention_logits(trace: LayerTrace) -> torch.Tensor:
    """Logits β q·k of every head, (B, H, N, N): the softmax over the last axis attends."""
    return trace.beta * trace.queries @ trace.keys.mT


def head_medians(per_query: torch.Tensor) -> np.ndarray:
    """Median over sequences and queries of a quantity (B, H, N): one number a head, (H,).

    Raises ValueError for another number of axes or if there is nothing to take a median of.
    """
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


def gaussian_fraction(spread: ArrayLike, *, mass: float = 0.9) -> np.ndarray:
    """Fraction k/N of entries that carry `mass` if logits are Gaussian: Φ(z_mass − spread).

    For logits N(0, s²) and N → ∞ the weights are e^z: tilting a Gaussian by e^z shifts its
    mean to s², so the entries above c = s² − z_mass s carry the mass and they are a
    fraction Φ(−c/s) of all. z_0.9 = 1.2816. `spread` ≥ 0, of any shape. Our own derivation.
    """
    return ndtr(ndtri(mass) - check_array("spread", spread, low=0.0))


@torch.no_grad()
def head_statistics(model: LanguageModel, tokens: torch.Tensor) -> HeadStatistics:
    """Run the model on token numbers (B, N) and measure every head (see HeadStatistics).

    Definitions of k and of the classes: [ramsauer2020hopfield, Sec. 3]. Raises what `embed` raises.
    """
    rows: dict[str, list[np.ndarray]] = {"entries": [], "spread": [], "law_entries": []}
    for trace in run_model(model, tokens):
        keys = trace.keys.shape[-2]
        logits = attention_logits(trace)
        spread = logit_spread(logits)
        rows["entries"].append(head_medians(effective_entries(torch.softmax(logits, dim=-1))))
        rows["spread"].append(head_medians(spread))
        law = np.clip(keys * gaussian_fraction(spread.numpy()), 1.0, keys)
        rows["law_entries"].append(head_medians(torch.from_numpy(law)))
    stacked = {name: np.stack(values) for name, values in rows.items()}
    classes, law_classes = (
        operating_class(torch.from_numpy(stacked[name]), size=keys).numpy()
        for name in ("entries", "law_entries")
    )
    return HeadStatistics(classes=classes, law_classes=law_classes, keys=keys, **stacked)


def class_counts(classes: np.ndarray) -> list[int]:
    """How many heads of an array of classes 1 … 4 are in class I, II, III, IV.

    Raises ValueError for an entry that is no class.
    """
    classes = check_array("classes", classes, values=(1, 2, 3, 4))
    return [int((classes == number).sum()) for number in range(1, 5)]


def cumulated_attention(trace: LayerTrace) -> np.ndarray:
    """Weight of the n largest softmax entries, n = 1 … N, averaged over queries: (H, N)."""
    attention = torch.softmax(attention_logits(trace), dim=-1)
    ranked = attention.sort(dim=-1, descending=True).values.cumsum(-1)
    return ranked.transpose(0, 1).flatten(1, 2).mean(1).numpy()


def mark_weight(trace: LayerTrace) -> np.ndarray:
    """Weight on the first and the last key together, the marks that frame a window: mean, (H,)."""
    attention = torch.softmax(attention_logits(trace), dim=-1)
    return attention[..., [0, -1]].sum(-1).mean((0, 2)).numpy()


def sampled_gaussian_entries(
    spread: ArrayLike, *, keys: int, draws: int = 400, seed: Seed = 0
) -> np.ndarray:
    """Median k (mass 0.9) of `keys` Gaussian logits for every standard deviation in `spread`.

    The finite-N counterpart of `gaussian_fraction`, by drawing; the same normal numbers are
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
