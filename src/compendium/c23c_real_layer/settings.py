"""Robustness of what chapter 23c says of a trained encoder: by layers, lengths and parts of texts.

The `data` of a line are a layer and a part of the texts, their first or their second 256 tokens:
windows of another length read the same tokens.
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c23c_real_layer.study import (
    MIXED,
    layers_later,
    layers_table,
    mixing_scores,
    score_symmetry,
)
from compendium.common.rows import array_of, mean_rows, parameter_product

TOKENS = 256
PLACES = ("first", "second")


@stored(
    "settings_B9c",
    parameter_product(
        mixing=("symmetrized", "all orders", "onsager"),
        companion=("response", "onsager"),
        place=PLACES,
    ),
    seconds=0.1,
)
def settings_b9c(mixing: str, companion: str, place: str) -> Rows:
    """What the worse of both halves of B9c lacks in each layer, mean of texts.

    Of the attention output more than a half, and 0.05 added to the feed-forward output.
    """
    table = (layers_table if place == "first" else layers_later).read()

    def score(target: str, part: str) -> np.ndarray:
        return array_of(table, "score", "layer", "text", target=target, part=part)

    added = score("feed-forward", companion) - score("feed-forward", "own")
    worse = np.minimum(score("attention", mixing) - 0.5, added - 0.05)
    return _by_layer(worse, place)


@stored("settings_B9d", parameter_product(length=(32, 64, 128), place=PLACES), seconds=20.0)
def settings_b9d(length: int, place: str) -> Rows:
    """How much more balanced weights predict than with Pᵀ shuffled, less 0.1, in each layer."""
    windows = TOKENS // length
    found = mixing_scores(
        length=length,
        windows=windows,
        left_out=(0, 1, 8),
        skipped=0 if place == "first" else windows,
    )
    names = list(MIXED)
    rows = []
    for count, scores in found.items():
        balanced = scores[names.index("balanced")]
        shuffled = scores[names.index("balanced shuffled")]
        lines = _by_layer(balanced - shuffled - 0.1, place)
        rows += [{"left_out": count} | line for line in lines]
    return rows


@stored("settings_B9e", parameter_product(length=(32, 64, 128), place=PLACES), seconds=8.0)
def settings_b9e(length: int, place: str) -> Rows:
    """How much more scores correlate with their own transpose than with a null's."""
    windows = TOKENS // length
    first = 0 if place == "first" else windows
    found = score_symmetry(length=length, windows=slice(first, first + windows))
    rows = []
    for null in ("other head", "relabelled"):
        lines = _by_layer(found["own"] - found[null], place)
        rows += [{"null": null} | line for line in lines]
    return rows


def _by_layer(values: np.ndarray, place: str) -> Rows:
    """A line for each layer, from the texts: the mean with Student's interval."""
    rows = []
    for layer, by_text in enumerate(values):
        (line,) = mean_rows(by_text)
        rows.append({"data": f"layer {layer}, {place} tokens", "layer": layer} | line)
    return rows
