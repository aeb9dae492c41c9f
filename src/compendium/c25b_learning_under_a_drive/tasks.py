"""Two tasks: recall of pairs, and the next character of a text that Python ships.

Recall: PAIRS tokens hold a key and a value each, then come the same keys in another order,
alone. No key and no value occurs twice among the pairs, so that without a look-up nobody is right
more often than once in PAIRS. The text is that of `help_text`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from compendium.c25b_learning_under_a_drive.networks import Shape
from compendium.common.help_text import ALPHABET, WEIGHTS, cut_text, mixed
from spinformer.core.checks import check_choice, check_integer
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record

PAIRS, KEYS, WINDOW = 8, 16, 32
SHAPES = {
    "recall": Shape(first=KEYS, second=PAIRS + 1, answers=PAIRS),
    "text": Shape(first=len(ALPHABET), second=WINDOW, answers=len(ALPHABET)),
}
PARTS = ("train", "validation", "test")


@record
class Batch:
    """Tokens (batch, N, 2) and targets (batch, N), −100 where nothing is asked."""

    tokens: Tensor
    targets: Tensor


def draw_recall(count: int, *, seed: TorchSeed, shuffled: bool = False) -> Batch:
    """`count` sequences of recall, fresh; `shuffled` answers belong to keys drawn by chance.

    >>> batch = draw_recall(1, seed=0)
    >>> batch.tokens.shape, (batch.targets[0, :PAIRS] == -100).all().item()
    (torch.Size([1, 16, 2]), True)
    """
    count = check_integer("count", count, low=1)
    generator = torch_generator(seed)

    def orders(size: int) -> Tensor:
        return torch.rand(count, size, generator=generator).argsort(-1)

    keys, values, asked = orders(KEYS)[:, :PAIRS], orders(PAIRS), orders(PAIRS)
    said = values.gather(1, orders(PAIRS) if shuffled else asked)
    nothing = torch.full_like(values, PAIRS)
    told = torch.stack([keys, values], -1)
    questions = torch.stack([keys.gather(1, asked), nothing], -1)
    targets = torch.cat([torch.full_like(said, -100), said], 1)
    return Batch(tokens=torch.cat([told, questions], 1), targets=targets)


def text_part(part: str, *, split: int) -> Tensor:
    """One part of the text: a tenth each for "validation" and "test", the rest for "train".

    Split s takes as test the tenth number 9 − 4s, and the one before it for validation.

    >>> train, held, test = (len(text_part(part, split=1)) for part in PARTS)
    >>> train > 7 * test, abs(held - test) <= 1
    (True, True)
    """
    check_choice("part", part, PARTS)
    split = check_integer("split", split, low=0, high=2)
    last = 9 - 4 * split
    return cut_text(validation=last - 1, test=last)[part]


def text_batch(text: Tensor, *, starts: Tensor) -> Batch:
    """Windows of WINDOW characters from `starts` on, and the character after each.

    >>> text_batch(torch.arange(40), starts=torch.tensor([0])).targets[0, :3]
    tensor([1, 2, 3])
    """
    found = text[starts[:, None] + torch.arange(WINDOW + 1)]
    places = torch.arange(WINDOW).expand(len(starts), -1)
    return Batch(tokens=torch.stack([found[:, :-1], places], -1), targets=found[:, 1:])


def whole_windows(text: Tensor) -> Batch:
    """All of `text` in windows one after the other.

    >>> whole_windows(torch.arange(70)).targets.shape
    torch.Size([2, 32])
    """
    return text_batch(text, starts=torch.arange(0, len(text) - WINDOW, WINDOW))


def count_bits(split: int) -> dict[str, float]:
    """Bits per character of the test part from counts in the training part, in its windows.

    Each order is mixed with the one below, p(c|ab) = (n_abc + κ p(c|b))/(n_ab + κ), κ chosen on
    the validation part; the first character of a window is known only to the one after it.

    >>> sorted(count_bits.__annotations__)
    ['return', 'split']
    """
    size = len(ALPHABET)
    train = text_part("train", split=split).numpy()
    one = (np.bincount(train, minlength=size) + 1.0) / (len(train) + size)
    two = np.bincount(train[:-1] * size + train[1:], minlength=size**2).reshape(size, size)
    three = np.bincount(
        (train[:-2] * size + train[1:-1]) * size + train[2:], minlength=size**3
    ).reshape(size, size, size)

    def bits(part: str, *, pairs: np.ndarray, triples: np.ndarray | None = None) -> float:
        windows = whole_windows(text_part(part, split=split))
        now, then = windows.tokens[..., 0].numpy(), windows.targets.numpy()
        found = pairs[now, then]
        if triples is not None:
            found[:, 1:] = triples[now[:, :-1], now[:, 1:], then[:, 1:]]
        return float(-np.log2(found).mean())

    pairs = min(
        (mixed(two, below=one, weight=w) for w in WEIGHTS),
        key=lambda p: bits("validation", pairs=p),
    )
    triples = min(
        (mixed(three, below=pairs, weight=w) for w in WEIGHTS),
        key=lambda t: bits("validation", pairs=pairs, triples=t),
    )
    return {
        "unigram": bits("test", pairs=np.broadcast_to(one, (size, size))),
        "bigram": bits("test", pairs=pairs),
        "trigram": bits("test", pairs=pairs, triples=triples),
    }
