"""The help that comes with Python as a text of 51 characters, its parts, and counted characters.

`pydoc_data.topics`, in small letters, runs of blanks made one, digits made zeros. It differs
between versions of Python: stored tables are those of Python 3.11.
"""

from __future__ import annotations

import re
from functools import cache
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor

ALPHABET = "\0\n abcdefghijklmnopqrstuvwxyz0.,:;()[]_=*-+<>|\"'`/#"
# Pseudo-counts among which a validation part chooses.
WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@cache
def help_text() -> Tensor:
    """The text as numbers of ALPHABET, (characters,); what is not in it is number 0."""
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    text = re.sub(r"[0-9]", "0", re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)))
    numbers = {letter: index for index, letter in enumerate(ALPHABET)}
    return torch.tensor([numbers.get(letter, 0) for letter in text])


def cut_text(*, validation: int, test: int) -> dict[str, Tensor]:
    """The text in parts: the tenths of these numbers, and for "train" all others in their order."""
    held = (validation, test)
    tenths = help_text().tensor_split(10)
    rest = [tenth for number, tenth in enumerate(tenths) if number not in held]
    return {"train": torch.cat(rest), "validation": tenths[validation], "test": tenths[test]}


def mixed(counts: np.ndarray, *, below: np.ndarray, weight: float) -> np.ndarray:
    """Probabilities (n + κ p)/(Σn + κ) of the last axis: `counts` n, `below` p, `weight` κ."""
    result: np.ndarray = (counts + weight * below) / (counts.sum(-1, keepdims=True) + weight)
    return result
