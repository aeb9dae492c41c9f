"""How well tokens are told apart before and behind the key maps of attention heads.

A token is *found* if its hidden state plus isotropic Gaussian noise has its own state as the
nearest of all states of the text, or, behind a map, its own key as the nearest key. The length of
the noise is a multiple of the root mean square distance of the states from their mean.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c18b_trained_couplings.study import text_units
from compendium.common.models import encoder, layer_modules
from compendium.common.rows import mean_rows
from compendium.common.text_units import window_traces
from spinformer.language.text import TEXTS

NOISES = (1.0, 2.0)
DRAWS = 4


def key_maps(model: Any, layer: int) -> Tensor:
    """Key maps W_K of the heads of a layer, (H, d, D)."""
    weights: Tensor = layer_modules(model, layer).attention.self.key.weight
    return weights.unflatten(0, (model.config.num_attention_heads, -1))


def found_fraction(
    states: Tensor, *, maps: Tensor, noise: float, seed: int, draws: int = DRAWS
) -> np.ndarray:
    """Fraction of the states (N, D) that are found behind each of the maps (H, d, D), (H,)."""
    generator = torch.Generator().manual_seed(seed)
    spread = (states - states.mean(0)).square().sum(-1).mean().sqrt()
    size = noise * spread / states.shape[1] ** 0.5
    stored_patterns = states @ maps.mT
    fractions = []
    for _ in range(draws):
        drawn = torch.randn(states.shape, generator=generator, dtype=states.dtype)
        nearest = torch.cdist((states + size * drawn) @ maps.mT, stored_patterns).argmin(-1)
        right = nearest == torch.arange(len(states))
        fractions.append(right.double().mean(-1))
    return torch.stack(fractions).mean(0).numpy()


def bottleneck_lines(data: str, couplings: str, source: str, length: int, number: int) -> Rows:
    """Fraction found by states minus that by the keys of a head, mean over the heads of a layer."""
    rows = []
    for trace in window_traces(source, length, number):
        states = trace.inputs[0]
        identity = torch.eye(states.shape[1], dtype=states.dtype)[None]
        for noise in NOISES:
            before, behind = (
                found_fraction(states, maps=maps, noise=noise, seed=trace.layer)
                for maps in (identity, key_maps(encoder().model, trace.layer))
            )
            choices = {"layer": trace.layer, "noise": noise}
            rows += [{**choices, **line} for line in mean_rows(before - behind)]
    return rows


settings_a28 = stored(
    "settings_A28",
    [
        *text_units(TEXTS, length=64, window=0),
        *text_units(TEXTS, length=128, window=1),
    ],
    seconds=3,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)(bottleneck_lines)
