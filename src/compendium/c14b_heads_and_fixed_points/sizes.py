"""How many keys heads attend to, the law of Gaussian logits, growth with the text: table `sizes`.

Every text of `spinformer.language.sample_texts` is cut into windows of N tokens, N in LENGTHS, that
cover the same 500 tokens or so; for every head the medians over windows and queries are stored.
kind "window": N keys because the window has N tokens. kind "keys": N keys drawn at random out of
the 512 of the longest window, whose hidden states stay as they are. Three windows of random tokens
stand beside the texts.

Logits are β q·k with β = 1/√d, as in [bal2021transformers, Eq. (1)].
"""

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.common.models import encoder
from compendium.common.rows import rows_of
from spinformer.core.random import numpy_generator, torch_generator
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.checkpoints import Checkpoint
from spinformer.language.text import TEXTS, sample_texts, text_windows
from spinformer.language.traces import trace_layers

LENGTHS = (32, 64, 128, 256, 512)
DRAWS = ("random 0", "random 1", "random 2")


def logit_rows(logits: torch.Tensor) -> Rows:
    """Medians over logits (B, H, S, N), a row a head.

    "entries": k, the fewest softmax entries that sum to 0.9; "spread": deviation over the keys.
    """
    entries = np.median(effective_entries(torch.softmax(logits, dim=-1)).numpy(), axis=(0, 2))
    spread = np.median(logits.std(dim=-1, correction=0).numpy(), axis=(0, 2))
    return rows_of(head=range(len(entries)), entries=entries, spread=spread)


def random_tokens(model: Checkpoint, like: torch.Tensor, *, seed: int) -> torch.Tensor:
    """Windows shaped as `like` (B, N); all but first and last are uniform over ordinary tokens."""
    ordinary = 1 + max(model.tokenizer.all_special_ids)
    most = model.model.config.vocab_size
    drawn = torch.randint(ordinary, most, tuple(like.shape), generator=torch_generator(seed))
    drawn[:, 0] = like[:, 0]
    drawn[:, -1] = like[:, -1]
    return drawn


@stored("sizes", [{"source": source} for source in (*TEXTS, *DRAWS)], seconds=8.0, rtol=1e-4)
def sizes_table(source: str) -> Rows:
    """Medians of every head in windows over the first 510 tokens of a text, or of random ones."""
    model = encoder()
    text = sample_texts()["essay" if source in DRAWS else source]
    rows = []
    for length in LENGTHS:
        tokens = text_windows(model, text, length)[: max(1, 510 // (length - 2))]
        if source in DRAWS:
            tokens = random_tokens(model, tokens, seed=100 * DRAWS.index(source) + length)
        for trace in trace_layers(model.model, tokens):
            logits = trace.scores
            parts = {("window", length): logits}
            if length == LENGTHS[-1]:
                generator = numpy_generator(TEXTS.index(source) if source in TEXTS else 99)
                order = torch.from_numpy(generator.permutation(length))
                parts |= {("keys", n): logits[..., order[:n]] for n in LENGTHS}
            rows += [
                {"kind": kind, "length": number, "layer": trace.layer} | row
                for (kind, number), part in parts.items()
                for row in logit_rows(part)
            ]
    return rows
