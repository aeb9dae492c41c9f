"""The help that comes with Python as a text of 51 characters, and its parts.

`pydoc_data.topics`, in small letters, runs of blanks made one, digits made zeros. It differs
between versions of Python: stored tables are those of Python 3.11.
"""

import re
from functools import cache
from pydoc_data.topics import topics

import torch
from torch import Tensor

ALPHABET = "\0\n abcdefghijklmnopqrstuvwxyz0.,:;()[]_=*-+<>|\"'`/#"


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
