"""What a recurrent memory forgets and a window keeps, with as many stored numbers.

A text is a sequence of pairs, a random key and a random value of d numbers each. Two recurrent
memories keep one matrix S (d, d), and are asked for the value S k of an earlier key:

    "sum":    S ← S + v kᵀ,            linear attention,
    "delta":  S ← S + (v − S k) kᵀ,    which first removes what the key recalls.

A window of the last d/2 pairs keeps as many numbers, d², and recalls its own pairs without error.
A value is recalled if the answer is nearer to it than to every other one of a `codebook` of
values; of an endless codebook, if the answer is nearer to the value than the value is to zero by
half.

Criterion of A21, written before its table: a recurrent memory forgets what a window keeps if it
recalls less than 95 % of the pairs that the window holds, with the whole 95 % interval over texts,
for both memories, both kinds of keys, values from 16 or endlessly many, and 16 to 64 numbers.
"""

from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.core.random import Seed, numpy_generator

RECALLED = 0.95


def recalled_pairs(
    dim: int, *, memory: str, codebook: str, overlap: float, pairs: int, texts: int, seed: Seed
) -> np.ndarray:
    """Which pairs are recalled after the whole text, the last one first: (texts, pairs).

    Keys have length one and the mean `overlap` with each other.
    """
    rng = numpy_generator(seed)
    shape = (texts, pairs, dim)
    common = rng.standard_normal((texts, 1, dim))
    keys = np.sqrt(overlap) * common + np.sqrt(1.0 - overlap) * rng.standard_normal(shape)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    words = rng.standard_normal((texts, 16 if codebook == "sixteen" else pairs, dim))
    spoken = rng.integers(words.shape[1], size=(texts, pairs))
    values = words if codebook == "endless" else np.take_along_axis(words, spoken[..., None], 1)
    state = np.zeros((texts, dim, dim))
    for key, value in zip(keys.swapaxes(0, 1), values.swapaxes(0, 1), strict=True):
        known = np.einsum("tij,tj->ti", state, key) if memory == "delta" else 0.0
        state += np.einsum("ti,tj->tij", value - known, key)
    answers = np.einsum("tij,tpj->tpi", state, keys)
    if codebook == "endless":
        error = np.linalg.norm(answers - values, axis=-1)
        found = error < 0.5 * np.linalg.norm(values, axis=-1)
    else:
        distance = (words**2).sum(-1)[:, None] - 2.0 * answers @ words.swapaxes(1, 2)
        found = distance.argmin(-1) == spoken
    return found[:, ::-1]


_MEMORIES = parameter_product(
    memory=("sum", "delta"), codebook=("sixteen", "endless"), dim=(16, 32, 64), overlap=(0.0, 0.3)
)


def missing_pairs(data: int, dim: int, **choices: Any) -> Rows:
    """What a memory lacks to recall `RECALLED` of the last d/2 pairs of 4 d, over forty texts.

    Also how many pairs of the whole text it recalls.
    """
    found = recalled_pairs(dim, pairs=4 * dim, texts=40, seed=data, **choices)
    (line,) = mean_rows(RECALLED - found[:, : dim // 2].mean(1))
    return [line | {"recalled": found.sum(1).mean()}]


settings_a21 = stored("settings_A21", numbered(_MEMORIES), seconds=1.0, rtol=0.02)(missing_pairs)
# Drawn after the region of A21 had been written down. The delta rule with independent keys, which
# that region leaves out, is asked with values of an endless codebook alone.
_OUTSIDE = {"memory": "delta", "codebook": "sixteen", "overlap": 0.0}
_FRESH = [
    choices
    for choices in parameter_product(
        memory=("sum", "delta"),
        codebook=("sixteen", "endless"),
        dim=(12, 24, 48, 96),
        overlap=(0.0, 0.3, 0.5),
    )
    if not _OUTSIDE.items() <= choices.items()
]
confirm_a21 = stored("confirm_A21", numbered(_FRESH, first=500), seconds=1.0, rtol=0.02)(
    missing_pairs
)
