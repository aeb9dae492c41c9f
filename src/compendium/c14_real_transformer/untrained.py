"""How deep the landscapes of untrained weights are: table `untrained`.

For every seed and every kind of random weights (see `spinformer.language.random_weights`) the
mean overlap energy of each layer's queries, over heads and over the first window of 128 tokens of
every text.
"""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, stored
from compendium.c14_real_transformer.energies import query_energy
from compendium.common.models import encoder
from spinformer.language.encoder import join_traces, run_model
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.untrained import random_weights

SEEDS = 10


@stored(
    Path(__file__).with_name("untrained.csv"),
    units=[{"kind": kind, "seed": s} for kind in ("initial", "shuffled") for s in range(SEEDS)],
)
def UNTRAINED(kind: str, seed: int) -> Rows:
    """The landscapes of one draw of weights in the place of the model's."""
    control = random_weights(encoder(), kind, seed=seed)
    windows = [text_windows(encoder(), text, 128)[:1] for text in sample_texts().values()]
    traces = join_traces([run_model(control, window) for window in windows])
    return [{"layer": t.layer, "energy": float(query_energy(t).mean())} for t in traces]
