"""How deep the landscapes of untrained weights are: table `untrained`.

For every seed and every kind of random weights (see `spinformer.language.random_weights`) the
mean overlap energy of each layer's queries, over heads and over the first window of 128 tokens of
every text.
"""

from __future__ import annotations

from pathlib import Path

import torch

from bookmaker.tables import Rows, stored
from compendium.c14_real_transformer.energies import query_energy
from compendium.common.models import encoder
from spinformer.language.encoder import LanguageModel, join_traces, run_model
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.untrained import random_weights

SEEDS = 10


def first_windows(model: LanguageModel, *, length: int = 128) -> torch.Tensor:
    """The first window of every text that ships with the package: (texts, length).

    >>> from spinformer.language.untrained import example_model
    >>> first_windows(example_model(), length=5).shape
    torch.Size([7, 5])
    """
    texts = sample_texts().values()
    return torch.cat([text_windows(model, text, length)[:1] for text in texts])


def untrained_rows(model: LanguageModel, kind: str, *, seed: int) -> Rows:
    """Rows of the table for one draw of weights: layer and mean overlap energy.

    >>> from spinformer.language.untrained import example_model
    >>> [row["layer"] for row in untrained_rows(example_model(), "initial", seed=0)]
    [0, 1]
    """
    control = random_weights(model, kind, seed=seed)
    length = min(128, model.architecture.positions)
    windows = first_windows(model, length=length)
    traces = join_traces([run_model(control, window[None]) for window in windows])
    return [{"layer": t.layer, "energy": float(query_energy(t).mean())} for t in traces]


@stored(
    Path(__file__).with_name("untrained.csv"),
    units=[{"kind": kind, "seed": s} for kind in ("initial", "shuffled") for s in range(SEEDS)],
)
def UNTRAINED(kind: str, seed: int) -> Rows:
    """The landscapes of one draw of weights in the place of the model's."""
    return untrained_rows(encoder(), kind, seed=seed)
