"""How many singular values share the couplings of a trained model's attention heads.

The participation ratio of a matrix with singular values σ_i is (Σσ²)² / Σσ⁴. It is P for the
couplings of P orthogonal patterns of one length, 1 for a uniform coupling, and for a product of
independent Gaussian matrices of n × r and r × m the harmonic sum of their three dimensions,
1/PR = 1/n + 1/r + 1/m. The *place* of a matrix is ln PR / ln PR₀, with PR₀ the participation ratio
of the null: 0 for uniform couplings, 1 for random ones.

The couplings of a head are its weights W_QᵀW_K (D × D, of rank d) or the scores β q_i·k_j between
the N tokens of a text. What is added to all scores of a query drops out of the softmax, so that
this mean is subtracted, and for double centring also the mean of every key, which acts as a field.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.models import encoder, layer_modules
from compendium.common.rows import mean_rows
from compendium.common.text_units import window_traces
from spinformer.language.text import TEXTS
from spinformer.language.traces import LayerTrace

ASKED = 0.1  # distance from both ends from which on a place is between them
CENTRINGS = ("queries", "queries and keys")
NULLS = ("same rank", "full rank")


def participation_ratio(matrices: Tensor) -> np.ndarray:
    """Effective number of singular values of matrices (..., n, m), (...,)."""
    squares = torch.linalg.svdvals(matrices.double()).square()
    ratio: np.ndarray = (squares.sum(-1).square() / squares.square().sum(-1)).numpy()
    return ratio


def gaussian_ratio(*dimensions: int) -> float:
    """Participation ratio of a product of independent Gaussian matrices with these dimensions."""
    return 1.0 / sum(1.0 / dimension for dimension in dimensions)


def centred(scores: Tensor, centring: str) -> Tensor:
    """Scores (..., N, N) without the mean of every query and, for both, of every key."""
    scores = scores - scores.mean(-1, keepdim=True)
    return scores if centring == "queries" else scores - scores.mean(-2, keepdim=True)


def weight_couplings(model: Any, layer: int) -> Tensor:
    """The matrices W_QᵀW_K of the heads of a layer, (H, D, D)."""
    maps = layer_modules(model, layer).attention.self
    heads = model.config.num_attention_heads
    query: Tensor = maps.query.weight.unflatten(0, (heads, -1))
    key: Tensor = maps.key.weight.unflatten(0, (heads, -1))
    return query.mT @ key


def score_couplings(trace: LayerTrace) -> Tensor:
    """The scores of the heads of a layer on the first text, (H, N, N)."""
    return trace.scores[0]


def places(couplings: Tensor, *, rank: int | None, lost: int = 0) -> np.ndarray:
    """Places (H,) of square matrices between uniform and Gaussian ones.

    The null is a product of two Gaussian matrices with `rank` in between, or without it one
    Gaussian matrix. Centring takes `lost` dimensions from the null.
    """
    free = couplings.shape[-1] - lost
    between = () if rank is None else (rank,)
    null = gaussian_ratio(free, *between, free)
    place: np.ndarray = np.log(participation_ratio(couplings)) / math.log(null)
    return place


def _lines(couplings: Tensor, *, rank: int, lost: int = 0) -> Rows:
    """Lines of both nulls: mean over heads of the distance from the nearer end, minus 0.1."""
    rows = []
    for null, between in zip(NULLS, (rank, None), strict=True):
        place = places(couplings, rank=between, lost=lost)
        lines = mean_rows(np.minimum(place, 1.0 - place) - ASKED)
        rows += [{"null": null, **line} for line in lines]
    return rows


def coupling_lines(data: str, couplings: str, source: str, length: int, number: int) -> Rows:
    """Lines of a layer's weights, or of the scores of all layers on a window of a text.

    `number` is that of the layer, or of the window.
    """
    model = encoder().model
    rank = model.config.hidden_size // model.config.num_attention_heads
    if couplings == "weights":
        choices = {"centring": "none", "layer": number}
        return [{**choices, **line} for line in _lines(weight_couplings(model, number), rank=rank)]
    rows = []
    for trace in window_traces(source, length, number):
        for centring in CENTRINGS:
            choices = {"centring": centring, "layer": trace.layer}
            scores = centred(score_couplings(trace), centring)
            rows += [{**choices, **line} for line in _lines(scores, rank=rank, lost=1)]
    return rows


def text_units(sources: Sequence[str], *, length: int, window: int) -> Rows:
    """Units of a window of each text."""
    return [
        {
            "data": f"{source} {length} {window}",
            "couplings": "scores",
            "source": source,
            "length": length,
            "number": window,
        }
        for source in sources
    ]


settings_a24 = stored(
    "settings_A24",
    [
        *text_units(TEXTS, length=64, window=0),
        *text_units(TEXTS, length=128, window=1),
        *(
            {
                "data": f"weights {layer}",
                "couplings": "weights",
                "source": "none",
                "length": 0,
                "number": layer,
            }
            for layer in range(6)
        ),
    ],
    seconds=1,
)(coupling_lines)

# Windows behind the first 512 tokens, of which the table above reads none.
confirm_a24 = stored(
    "confirm_A24",
    [
        *text_units(("narrative", "dialogue", "law", "list", "verse"), length=32, window=17),
        *text_units(("narrative", "dialogue", "law", "list", "verse"), length=32, window=18),
        *text_units(("essay",), length=256, window=2),
        *text_units(("essay",), length=256, window=3),
    ],
    seconds=1,
)(coupling_lines)
