"""Regimes of SmolLM2-135M-Instruct when one convention of the atlas is replaced by another.

The window has four tokens. Each variant replaces one thing: the text, the words by random ones, the
whole next-token distribution by its nucleus, single by double precision, or the weights by weights
that are rounded once more.

Criterion, written before the table: a variant makes a difference in a cell, a prefix and a β, if
the mean exponent has another sign than that of the atlas, and differs from it by more than
`NOTABLE`. Expected: precision and rounding make a difference in no cell, and the nucleus only at
β below 1, where it has fewer words than the whole distribution by far.
"""

from copy import deepcopy

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c42d_while_a_model_learns.atlas import BETAS, FRONTS, PLACE
from compendium.c42d_while_a_model_learns.study import WITHIN, regime_rows
from compendium.common.corpora import corpus
from compendium.common.models import checkpoint
from compendium.common.prefixes import PREFIXES
from compendium.common.rows import parameter_product
from spinformer.core.random import torch_generator
from spinformer.core.solve import NotConverged
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts

WINDOW = 4
# Nats per token by which exponents of two signs must differ.
NOTABLE = 0.05
# The probability of the nucleus from which the model card samples.
TOP_P = 0.9
# The text of the atlas is the first; the others are of three kinds.
_OTHER_TEXTS = ("dialogue", "essay")
VARIANTS = ("other texts", "random words", "nucleus", "double precision", "rounded again")
_BLOCK = 32
_LEVELS = 15


def rounded_again(weight: torch.Tensor, *, shift: int) -> torch.Tensor:
    """Round rows of weights (m, n) to four bits, in blocks that straddle those of the file.

    Blocks of the file, of 32 weights with 16 values each, would return the same weights.
    """
    shifted = weight.roll(shift, dims=1)
    blocks = shifted.unflatten(1, (-1, _BLOCK))
    low = blocks.amin(-1, keepdim=True)
    scale = (blocks.amax(-1, keepdim=True) - low) / _LEVELS
    steps = torch.where(scale > 0, (blocks - low) / scale, 0.0).round()
    return (low + steps * scale).flatten(1).roll(-shift, dims=1)


def round_layers(
    model: torch.nn.Module, *, shift: int = _BLOCK // 2
) -> tuple[torch.nn.Module, float]:
    """A copy of a model with the matrices of its layers rounded once more, and the change.

    The change is the root mean square over that of the weights. The embeddings keep their values.
    """
    rounded = deepcopy(model)
    change = 0.0
    total = 0.0
    with torch.no_grad():
        for name, weight in rounded.named_parameters():
            if weight.ndim == 2 and "layers" in name:
                again = rounded_again(weight, shift=shift)
                change += float((again - weight).square().sum())
                total += float(weight.square().sum())
                weight.copy_(again)
    return rounded, (change / total) ** 0.5


def variant_map(variant: str, prefix: str, *, window: int) -> tuple[SoftTokenMap, float]:
    """The map of a variant, and the relative change of its weights."""
    loaded = checkpoint(dtype=torch.float64) if variant == "double precision" else checkpoint()
    model = loaded.model
    change = 0.0
    if variant == "rounded again":
        model, change = round_layers(model)
    soft = SoftTokenMap(
        model,
        window=window,
        prefix=PREFIXES[prefix],
        top_p=TOP_P if variant == "nucleus" else 1.0,
        tokenizer=loaded.tokenizer,
    )
    return soft, change


def variant_starts(soft: SoftTokenMap, variant: str) -> torch.Tensor:
    """Windows (n, T, D) from which a variant begins."""
    if variant == "random words":
        draw = torch_generator(7)
        numbers = torch.randint(soft.vocabulary, (4, soft.window), generator=draw)
        return soft.embed(numbers)
    texts = [sample_texts()["narrative"]]
    if variant == "other texts":
        texts = [sample_texts()[name] for name in _OTHER_TEXTS] + corpus("help")[:2]
    windows = [soft.encode(text)[PLACE - soft.window : PLACE] for text in texts]
    return soft.embed(torch.stack(windows))


@stored(
    "conventions",
    parameter_product(prefix=FRONTS, variant=VARIANTS),
    small={
        "window": 2,
        "prefix": "none",
        "variant": "nucleus",
        "betas": (0.3, 1.0),
        "transient": 1,
        "steps": 4,
    },
    seconds=10.0,
    within=WITHIN | {"change": 0.001},
)
def conventions_table(
    prefix: str,
    *,
    variant: str,
    window: int = WINDOW,
    betas: tuple[float, ...] = BETAS,
    transient: int = 40,
    steps: int = 32,
) -> Rows:
    """Regimes with one convention replaced, 40 tokens dropped and 32 measured, as in the atlas."""
    soft, change = variant_map(variant, prefix, window=window)
    start = variant_starts(soft, variant)
    rows = regime_rows(soft, start, betas=betas, transient=transient, steps=steps)
    return [{"change": change} | row for row in rows]


@stored(
    "nuclei",
    parameter_product(top_p=(0.8, 0.9, 0.95, 0.99)),
    small={"top_p": 0.9, "window": 2, "beta": 0.3, "transient": 1, "steps": 4},
    seconds=10.0,
    within=WITHIN,
)
def nuclei_table(
    top_p: float,
    *,
    window: int = WINDOW,
    beta: float = 1.0,
    transient: int = 40,
    steps: int = 32,
) -> Rows:
    """Regimes of the four other texts behind the first token, at β = 1, by the nucleus.

    Made when the table `conventions` had shown one text in chaos with a nucleus of `TOP_P`, where
    all words together lead to a fixed point.
    """
    loaded = checkpoint()
    soft = SoftTokenMap(
        loaded.model,
        window=window,
        prefix=PREFIXES["first token"],
        top_p=top_p,
        tokenizer=loaded.tokenizer,
    )
    start = variant_starts(soft, "other texts")
    return regime_rows(soft, start, betas=(beta,), transient=transient, steps=steps)


# By how many weights the blocks of a rounding are shifted against those of the file.
SHIFTS = (8, 12, 16, 20, 24)


@stored(
    "roundings",
    parameter_product(shift=SHIFTS),
    small={"shift": 16, "window": 1, "within": (0.1, 0.11)},
    seconds=10.0,
    within={"change": 0.001, "beta": 0.01, "real": 0.02, "imaginary": 0.02},
)
def roundings_table(
    shift: int, *, window: int = WINDOW, within: tuple[float, float] = (0.2, 2.0)
) -> Rows:
    """Find the β at which the fixed point of weights that are rounded again loses its stability.

    Nothing stands in front. The multiplier is that of the first β beyond the loss. Not numbers
    where the fixed point is stable to the end of the range or is not found on the way.

    Criterion, written when the table `conventions` had shown one cell, shift 16 at β = 0.5, to be
    at no fixed point: the rounding of the weights decides the loss of stability if one of the
    roundings moves its β by more than a fifth.
    """
    rounded, change = round_layers(checkpoint().model, shift=shift)
    soft = SoftTokenMap(rounded, window=window)
    try:
        found = soft.critical_beta(within=within, tolerance=0.01)
    except NotConverged:
        return [{"change": change, "beta": np.nan, "real": np.nan, "imaginary": np.nan}]
    leading = found.multiplier
    return [{"change": change, "beta": found.beta, "real": leading.real, "imaginary": leading.imag}]
