"""Two tasks: recall of pairs, and the next character of a text that Python ships.

Recall: PAIRS tokens hold a key and a value each, then come the same keys in another order,
alone. No key and no value occurs twice among the pairs, so that without a look-up nobody is right
more often than once in PAIRS.

The text is the help that comes with Python, `pydoc_data.topics`, in small letters, runs of blanks
made one, digits made zeros. It differs between versions: stored tables are those of Python 3.11.
"""

import re
from functools import cache
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spinformer.core.random import TorchSeed, torch_generator

PAIRS, KEYS, WINDOW = 8, 16, 32
ALPHABET = "\0\n abcdefghijklmnopqrstuvwxyz0.,:;()[]_=*-+<>|\"'`/#"
# Pseudo-counts among which a validation part chooses.
WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Batch(NamedTuple):
    """Tokens (batch, N, 2) and targets (batch, N), −100 where nothing is asked."""

    tokens: Tensor
    targets: Tensor


def draw_recall(count: int, *, seed: TorchSeed, shuffled: bool = False) -> Batch:
    """`count` sequences of recall, fresh; `shuffled` answers belong to keys drawn by chance."""
    generator = torch_generator(seed)

    def orders(size: int) -> Tensor:
        return torch.rand(count, size, generator=generator).argsort(-1)

    keys, values, asked = orders(KEYS)[:, :PAIRS], orders(PAIRS), orders(PAIRS)
    said = values.gather(1, orders(PAIRS) if shuffled else asked)
    told = torch.stack([keys, values], -1)
    questions = torch.stack([keys.gather(1, asked), torch.full_like(values, PAIRS)], -1)
    targets = torch.cat([torch.full_like(said, -100), said], 1)
    return Batch(torch.cat([told, questions], 1), targets)


@cache
def help_text() -> Tensor:
    """The text as numbers of ALPHABET, (characters,); what is not in it is number 0."""
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    text = re.sub(r"[0-9]", "0", re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)))
    return torch.tensor([max(ALPHABET.find(letter), 0) for letter in text])


def cut_text(*, validation: int, test: int) -> dict[str, Tensor]:
    """The text in parts: the tenths of these numbers, and for "train" all others in their order."""
    tenths = help_text().tensor_split(10)
    rest = [tenth for number, tenth in enumerate(tenths) if number not in (validation, test)]
    return {"train": torch.cat(rest), "validation": tenths[validation], "test": tenths[test]}


def text_part(part: str, *, split: int) -> Tensor:
    """A part of split s: as test the tenth number 9 − 4s, the one before it for validation."""
    last = 9 - 4 * split
    return cut_text(validation=last - 1, test=last)[part]


def text_batch(text: Tensor, *, starts: Tensor) -> Batch:
    """Windows of WINDOW characters from `starts` on, and the character after each."""
    found = text[starts[:, None] + torch.arange(WINDOW + 1)]
    places = torch.arange(WINDOW).expand(len(starts), -1)
    return Batch(torch.stack([found[:, :-1], places], -1), found[:, 1:])


def whole_windows(text: Tensor) -> Batch:
    """All of `text` in windows one after the other."""
    return text_batch(text, starts=torch.arange(0, len(text) - WINDOW, WINDOW))


def count_bits(split: int) -> dict[str, float]:
    """Bits per character of the test part, in its windows, from counts in the training part.

    Each order is mixed with the one below, p(c|ab) = (n_abc + κ p(c|b))/(n_ab + κ), κ chosen on
    the validation part.
    """
    size = len(ALPHABET)
    train = text_part("train", split=split).numpy()

    def mixed(order: int, below: np.ndarray) -> list[np.ndarray]:
        runs = [train[k : len(train) - order + 1 + k] for k in range(order)]
        number = np.ravel_multi_index(runs, [size] * order)
        counted = np.bincount(number, minlength=size**order).reshape([size] * order)
        total = counted.sum(-1, keepdims=True)
        return [(counted + weight * below) / (total + weight) for weight in WEIGHTS]

    def bits(part: str, pairs: np.ndarray, triples: np.ndarray | None = None) -> float:
        windows = whole_windows(text_part(part, split=split))
        now, then = windows.tokens[..., 0].numpy(), windows.targets.numpy()
        found = pairs[now, then]
        if triples is not None:
            found[:, 1:] = triples[now[:, :-1], now[:, 1:], then[:, 1:]]
        return float(-np.log2(found).mean())

    one = (np.bincount(train, minlength=size) + 1.0) / (len(train) + size)
    pairs = min(mixed(2, one), key=lambda p: bits("validation", p))
    triples = min(mixed(3, pairs), key=lambda t: bits("validation", pairs, t))
    return {
        "unigram": bits("test", np.broadcast_to(one, (size, size))),
        "bigram": bits("test", pairs),
        "trigram": bits("test", pairs, triples),
    }
