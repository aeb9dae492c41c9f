"""Training of one network on one task, and what is measured in it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.c25b_learning_under_a_drive.networks import Network, stationary_spins
from compendium.c25b_learning_under_a_drive.tasks import (
    PAIRS,
    SHAPES,
    WINDOW,
    Batch,
    draw_recall,
    text_batch,
    text_part,
    whole_windows,
)
from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record

BATCH = 32
# Seed of the fresh sequences on which recall is tested, and on which it is tuned.
TEST, VALIDATION = 2_000_003, 2_000_029


@record
class Trained:
    """Copies of the network at some updates, the last of which is the end."""

    updates: list[int]
    networks: list[Network]


@record
class Score:
    """Bits an answer, and the share of right answers."""

    bits: float
    accuracy: float


def train(
    arm: str,
    *,
    task: str,
    rate: float,
    strength: float,
    seed: int,
    updates: int,
    split: int = 0,
    shuffled: bool = False,
    looks: Sequence[int] = (),
) -> Trained:
    """Adam with a cosine of the `rate` to zero, on batches that depend on `seed` alone.

    `strength` is the first g of the spins, without meaning for attention. The network is kept at
    the end and at the updates `looks`.

    >>> setting = {"rate": 0.01, "strength": 1.0, "seed": 0}
    >>> train("frozen", task="recall", **setting, updates=1, looks=(0,)).updates
    [0, 1]
    """
    check_choice("task", task, tuple(SHAPES))
    rate = check_real("rate", rate, low=0.0)
    updates = check_integer("updates", updates, low=1)
    network = Network(arm, shape=SHAPES[task], strength=strength, seed=seed)
    learned = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / updates))
    )
    when = sorted({*(look for look in looks if look < updates), updates})
    kept = [copy.deepcopy(network)] if when[0] == 0 else []
    batches = _batches(task, seed=seed, split=split, shuffled=shuffled)
    for step in range(1, updates + 1):
        batch = next(batches)
        logits = network(batch.tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step in when:
            kept.append(copy.deepcopy(network))
    return Trained(updates=when, networks=kept)


def held_batch(task: str, *, part: str, split: int = 0) -> Batch:
    """What a network is judged on.

    >>> len(held_batch("recall", part="test").tokens)
    256
    """
    if task == "recall":
        return draw_recall(256, seed=TEST if part == "test" else VALIDATION)
    return whole_windows(text_part(part, split=split))


def score(network: Network, batch: Batch) -> Score:
    """Bits and accuracy of the answers that are asked for, all tokens in one pass.

    >>> network = Network("driven", shape=SHAPES["recall"])
    >>> 0 <= score(network, draw_recall(9, seed=0)).accuracy < 0.5
    True
    """
    with torch.no_grad():
        return _score(network(batch.tokens), batch.targets)


def prefix_score(network: Network, batch: Batch) -> Score:
    """`score` where every answer is read from the tokens up to its own, the later ones unwritten.

    >>> network, batch = Network("driven", shape=SHAPES["recall"]), draw_recall(9, seed=0)
    >>> prefix_score(network, batch).accuracy == score(network, batch).accuracy
    True
    """
    count = batch.tokens.shape[1]
    with torch.no_grad():
        logits = [network(batch.tokens[:, : last + 1])[:, -1] for last in range(count)]
        return _score(torch.stack(logits, 1), batch.targets)


def focus(network: Network, batch: Batch) -> float:
    """Share of a question's coupling that lies on its own pair (recall), in the better head.

    By chance it would be about one in PAIRS + 4, as questions couple to those before them.

    >>> network = Network("driven", shape=SHAPES["recall"])
    >>> 0 < focus(network, draw_recall(9, seed=0)) < 0.3
    True
    """
    _, parts = stationary_spins(network, batch.tokens)
    keys = batch.tokens[..., 0]
    own = keys[:, PAIRS:, None] == keys[:, None, :PAIRS]
    looks = parts.couplings[:, :, PAIRS:]
    shares = looks[..., :PAIRS].mul(own[:, None]).sum(-1) / looks.sum(-1)
    return float(shares.mean((0, 2)).max())


def _score(logits: Tensor, targets: Tensor) -> Score:
    asked = targets >= 0
    loss = functional.cross_entropy(logits[asked].double(), targets[asked])
    right = (logits.argmax(-1) == targets)[asked].double().mean()
    return Score(bits=float(loss) / math.log(2), accuracy=float(right))


def _batches(task: str, *, seed: int, split: int, shuffled: bool) -> Iterator[Batch]:
    check_flag("shuffled", shuffled)
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    text = text_part("train", split=split) if task == "text" else None
    while True:
        if text is None:
            yield draw_recall(BATCH, seed=generator, shuffled=shuffled)
        else:
            high = len(text) - WINDOW
            yield text_batch(text, starts=torch.randint(high, (BATCH,), generator=generator))
