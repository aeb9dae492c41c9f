"""How many keys heads attend to, the law of Gaussian logits, growth with the text: table `sizes`.

Every text of `spinformer.language.sample_texts` is cut into windows of N tokens, N in LENGTHS, that
cover the same 500 tokens or so; for every head the medians over windows and queries are stored.
kind "window": N keys because the window has N tokens. kind "keys": N keys drawn at random out of
the 512 of the longest window, whose hidden states stay as they are. Three windows of random tokens
stand beside the texts.

Inverse temperatures stand inside: logits are β q·k with β = 1/√d, as in [bal2021transformers, Eq.
(1)]. What has one number a head is a NumPy array (L, H).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.stats import skew

from bookmaker.tables import Rows, stored
from compendium.common.models import encoder
from compendium.common.rows import array_of, rows_of
from spinformer.core.random import Seed, numpy_generator, torch_generator
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.encoder import LanguageModel, run_model
from spinformer.language.text import TEXTS, sample_texts, text_windows

LENGTHS = (32, 64, 128, 256, 512)
DRAWS = ("random 0", "random 1", "random 2")
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


def logit_rows(logits: torch.Tensor) -> list[dict[str, float]]:
    """Medians for every head of logits (B, H, S, N): one dictionary a head.

    "entries": k, the fewest softmax entries that sum to 0.9; "even", "odd": the same from the even
    and the odd sequences (or, of one sequence, queries) alone; "spread", "skewness": standard
    deviation and skewness of the logits over the keys.
    """
    entries = effective_entries(torch.softmax(logits, dim=-1))
    halves = entries if len(entries) > 1 else entries[0].mT.unsqueeze(-1)
    found = {
        "entries": head_medians(entries),
        "even": head_medians(halves[0::2]),
        "odd": head_medians(halves[1::2]),
        "spread": head_medians(logits.std(dim=-1, correction=0)),
        "skewness": head_medians(skew(logits.numpy(), axis=-1)),
    }
    return rows_of(**found)


def random_tokens(model: LanguageModel, like: torch.Tensor, *, seed: int) -> torch.Tensor:
    """Windows shaped as `like` (B, N), first and last token kept, all others drawn uniformly.

    The draw is over the ordinary tokens of the vocabulary (those after the last special
    one), so a word is as likely as any word piece: text without any statistics.
    """
    special = ("[CLS]", "[SEP]", "[MASK]", "[UNK]")
    ordinary = 1 + max(model.tokenizer.token_to_id(name) or 0 for name in special)
    most = model.architecture.vocabulary
    drawn = torch.randint(ordinary, most, tuple(like.shape), generator=torch_generator(seed))
    drawn[:, 0], drawn[:, -1] = like[:, 0], like[:, -1]
    return drawn


def size_rows(model: LanguageModel, source: str, *, lengths: tuple[int, ...] = LENGTHS) -> Rows:
    """Rows of the table for one source: a name of TEXTS, or one of DRAWS for random tokens.

    Windows cover the first 510 tokens.
    """
    text = sample_texts()["essay" if source in DRAWS else source]
    rows = []
    for length in lengths:
        tokens = text_windows(model, text, length)[: max(1, 510 // (length - 2))]
        if source in DRAWS:
            tokens = random_tokens(model, tokens, seed=100 * DRAWS.index(source) + length)
        for trace in run_model(model, tokens):
            logits = trace.beta * trace.queries @ trace.keys.mT
            parts = {("window", length): logits}
            if length == max(lengths):
                generator = numpy_generator(TEXTS.index(source) if source in TEXTS else 99)
                order = torch.from_numpy(generator.permutation(length))
                parts |= {("keys", n): logits[..., order[:n]] for n in lengths}
            rows += [
                {"kind": kind, "length": number, "layer": trace.layer, "head": head} | row
                for (kind, number), part in parts.items()
                for head, row in enumerate(logit_rows(part))
            ]
    return rows


def growth_exponents(entries: np.ndarray, *, lengths: Sequence[int]) -> np.ndarray:
    """Least-squares slopes ν of log k on log N: entries (..., n) at lengths (n,) to (...).

    ν = 1: a head attends to a fraction of the text; ν = 0: to a number of words.
    """
    x = np.log(lengths) - np.log(lengths).mean()
    return np.log(entries) @ x / (x @ x)


@stored(Path(__file__).with_name("sizes.csv"), units=[{"source": s} for s in (*TEXTS, *DRAWS)])
def SIZES(source: str) -> Rows:
    """Medians of every head in windows of one source."""
    return size_rows(encoder(), source)


def read_sizes(column: str, *, kind: str = "window") -> dict[str, np.ndarray]:
    """One column of the stored table for every source: arrays (lengths, L, H)."""
    table = SIZES.read()
    return {
        source: array_of(table, column, "length", "layer", "head", kind=kind, source=source)
        for source in (*TEXTS, *DRAWS)
    }
