"""What is learned: a cycle of eight tokens that the network writes by itself, and bytes of a text.

In both tasks a token has eleven segments, so that N = 99, 990, 9,900 and 99,000 are whole numbers
of bits a segment. A token of the cycle is eleven random signs. A byte fills the first eight
segments, most significant bit first, and the network is told every byte after it has predicted it.
Between two bytes it writes a token of its own, a *note*, so that a byte is predicted from two
bytes and two notes: gradients reach what it notes only through drawn, or mean, tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_flag, check_integer
from spinformer.core.random import numpy_generator
from spinformer.core.records import record
from spinformer.language.text import sample_texts

SEGMENTS, FEATURES, CONTEXT = 11, 12, 4
BETA, GAMMA = 3.0, 10.0
LENGTH = 8  # tokens of a cycle
BYTE = 8  # segments that a byte fills
PARTS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


@record
class Task:
    """steps: tokens after the window. starts: paths of one update, tested: of a test.

    visible, given: as in `dmft.learning.rollout`.
    """

    steps: int
    starts: int
    tested: int
    visible: int
    given: int

    @property
    def told(self) -> int:
        """How many of the steps have a cost."""
        return self.steps // max(self.given, 1)


TASKS = {
    "cycle": Task(steps=12, starts=8, tested=8, visible=SEGMENTS, given=0),
    "bytes": Task(steps=16, starts=16, tested=64, visible=BYTE, given=2),
}


@record
class Examples:
    """Windows (S, B, T, L) and the visible tokens that should follow them, (S, B, steps, V).

    >>> examples("cycle", seeds=[0]).repeated(3).window.shape
    torch.Size([1, 24, 4, 11])
    """

    window: Tensor
    targets: Tensor

    def repeated(self, copies: int) -> Examples:
        """The same starts `copies` times, copy by copy."""
        repeats = (1, check_integer("copies", copies, low=1), 1, 1)
        return Examples(window=self.window.repeat(repeats), targets=self.targets.repeat(repeats))


def examples(
    task: str, *, seeds: Sequence[int], part: str = "train", draw: int = 0, shuffled: bool = False
) -> Examples:
    """Starts and targets of every seed: all eight of a cycle, or stretches of the text.

    part: of the text, "train", "validation" or "test"; the draw of an update is its own in
    "train" and the same for all seeds otherwise. shuffled: a control. The targets keep their
    tokens and lose their order. Raises ValueError for another word.

    >>> examples("cycle", seeds=[0, 1]).targets.shape
    torch.Size([2, 8, 12, 11])
    >>> examples("bytes", seeds=[0], part="test").window.shape
    torch.Size([1, 64, 4, 11])
    """
    rule = TASKS[check_choice("task", task, TASKS)]
    check_choice("part", part, PARTS)
    check_flag("shuffled", shuffled)
    draw = check_integer("draw", draw, low=0)
    length = CONTEXT + rule.steps
    stride = max(rule.given, 1)
    found = []
    for seed in seeds:
        if task == "cycle":
            signs = draw_cycle(seed)
            rows = signs[(np.arange(LENGTH)[:, None] + np.arange(length)) % LENGTH]
        else:
            bits = text_bits(part)
            own = [seed, draw] if part == "train" else [0, draw]
            count = rule.starts if part == "train" else rule.tested
            most = len(bits) - length // stride
            begin = np.random.default_rng([*own, 21]).integers(most, size=count)
            rows = bits[begin[:, None] + np.arange(length // stride)]
        if shuffled:
            rows = _shuffled(rows, CONTEXT // stride, np.random.default_rng([seed, draw, 22]))
        found.append(np.repeat(rows, stride, axis=1))
    tokens = torch.as_tensor(np.array(found))
    window = torch.nn.functional.pad(tokens[:, :, :CONTEXT], (0, SEGMENTS - rule.visible))
    if rule.given:
        window[:, :, np.arange(CONTEXT) % stride != stride - 1] = 0.0  # notes not yet written
    return Examples(window=window, targets=tokens[:, :, CONTEXT:])


def draw_cycle(seed: int) -> np.ndarray:
    """Eight different tokens (8, 11) of random signs.

    >>> len(np.unique(draw_cycle(3), axis=0))
    8
    """
    numbers = numpy_generator(seed).choice(2**SEGMENTS, size=LENGTH, replace=False)
    return 2.0 * ((numbers[:, None] >> np.arange(SEGMENTS)) & 1) - 1.0


@cache
def text_bytes(part: str) -> np.ndarray:
    """Bytes of a part of the seven texts of `language.text`, each text split alike.

    >>> bytes(text_bytes("train")[:6])
    b'A magn'
    """
    low, high = PARTS[check_choice("part", part, PARTS)]
    texts = [text.encode() for text in sample_texts().values()]
    pieces = [text[int(low * len(text)) : int(high * len(text))] for text in texts]
    return np.frombuffer(b"\n".join(pieces), dtype=np.uint8)


@cache
def text_bits(part: str) -> np.ndarray:
    """Signs (n, 8) of the bytes of a part, most significant first.

    >>> text_bits("train")[0].tolist()  # "A" is 65
    [-1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 1.0]
    """
    return 2.0 * np.unpackbits(text_bytes(part)[:, None], axis=1) - 1.0


def tables(*, smoothing: float = 10.0) -> dict[str, float]:
    """Bits per byte of tables counted on the training part, on the test's stretches.

    "bytes alone" and "bytes after a byte" predict whole bytes, the second a mixture with the first
    of weight `smoothing` counts; "bits alone" and "bits after a byte" predict the eight bits of a
    byte as if they were independent, as the network has to.

    >>> sorted(tables())
    ['bits after a byte', 'bits alone', 'bytes after a byte', 'bytes alone']
    """
    read, signs = text_bytes("train").astype(int), text_bits("train")
    held = examples("bytes", seeds=[0], part="test")
    stride = TASKS["bytes"].given
    told = held.targets[0, :, stride - 1 :: stride]
    rows = torch.cat([held.window[0, :, -1:, :BYTE], told], 1).numpy() > 0
    test = np.packbits(rows, axis=-1)[..., 0].astype(int)
    before, after = test[:, :-1].ravel(), test[:, 1:].ravel()
    alone = (np.bincount(read, minlength=256) + 0.5) / (len(read) + 128.0)
    pairs = np.zeros((256, 256))
    np.add.at(pairs, (read[:-1], read[1:]), 1.0)
    mixed = (pairs + smoothing * alone) / (pairs.sum(1, keepdims=True) + smoothing)
    ups = np.zeros((256, BYTE))
    np.add.at(ups, read[:-1], signs[1:] > 0)
    share = ((signs > 0).sum(0) + 0.5) / (len(signs) + 1.0)
    follow = (ups + smoothing * share) / (pairs.sum(1, keepdims=True) + smoothing)
    wanted = np.unpackbits(after.astype(np.uint8)[:, None], axis=1) == 1

    def bits(chance: np.ndarray) -> float:
        return float(-np.log2(np.where(wanted, chance, 1.0 - chance)).sum(1).mean())

    return {
        "bytes alone": float(-np.log2(alone[after]).mean()),
        "bytes after a byte": float(-np.log2(mixed[before, after]).mean()),
        "bits alone": bits(np.broadcast_to(share, wanted.shape)),
        "bits after a byte": bits(follow[before]),
    }


def _shuffled(rows: np.ndarray, first: int, generator: np.random.Generator) -> np.ndarray:
    """Tokens (B, n, V) of which those after the `first` are dealt anew over all paths and steps."""
    tail = rows[:, first:]
    dealt = generator.permutation(tail.reshape(-1, rows.shape[-1])).reshape(tail.shape)
    return np.concatenate([rows[:, :first], dealt], axis=1)
