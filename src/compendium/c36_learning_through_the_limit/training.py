"""What is learned, and trainings by the three gradients at equal numbers of paths.

Two tasks: a cycle of eight tokens that the network writes by itself, and bytes of a text. In both
a token has eleven segments, so that N = 99, 990, 9,900 and 99,000 are whole numbers of bits a
segment. A token of the cycle is eleven random signs. A byte fills the first eight segments, most
significant bit first, and the network is told every byte after it has predicted it. Between two
bytes it writes a token of its own, a *note*, so that a byte is predicted from two bytes and two
notes: gradients reach what it notes only through drawn, or mean, tokens.

Work is counted in path-steps: one step of one path, forward and back. The limit and
straight-through follow one path of every start; REINFORCE draws `copies` of it, for its baseline,
and makes as many fewer updates, so that all have the same number of path-steps. Rate and copies of
each arm are chosen on validation seeds: twelve other cycles, and four trainings that are measured
on the validation part of the texts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c36_learning_through_the_limit.learning import Paths, rollout, surrogate
from compendium.common.rows import Columns, array_of, grid, mean_rows, near_rows, rows_of
from spinformer.core.random import numpy_generator
from spinformer.language.text import sample_texts

_FOLDER = Path(__file__).parent
SEGMENTS, FEATURES, CONTEXT = 11, 12, 4
PUSH: dict[str, Any] = {"beta": 3.0, "gamma": 10.0}
LENGTH, BYTE = 8, 8  # tokens of a cycle, segments that a byte fills
PARTS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
SIZES = (99, 990, 9900, 99_000)
BLOCK = 10  # seeds that are trained side by side
RATES = (0.03, 0.1, 0.3)
SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the budget, where one looks
# What each arm changes in `train`, and how many copies there are to choose from.
ARMS: dict[str, dict[str, Any]] = {
    "limit": {},
    "limit, one step": {"cut": True},
    "limit, shuffled": {"shuffled": True},
    "straight, 99": {"gradient": "straight", "size": 99},
    "straight, 9900": {"gradient": "straight", "size": 9900},
    "score, 99": {"gradient": "score", "size": 99},
    "score, 9900": {"gradient": "score", "size": 9900},
}
COPIES = {arm: (2, 8) if arm.startswith("score") else (1,) for arm in ARMS}


class Task(NamedTuple):
    """steps: tokens after the window. starts: paths of one update, tested: of a test.

    visible, given: as in `learning.rollout`. budget: updates with one path of every start.
    tuned: seeds that choose rate and copies.
    """

    steps: int
    starts: int
    tested: int
    visible: int
    given: int
    budget: int
    tuned: range


TASKS = {
    "cycle": Task(12, 8, 8, SEGMENTS, 0, budget=320, tuned=range(100, 112)),
    "bytes": Task(16, 16, 64, BYTE, 2, budget=160, tuned=range(100, 104)),
}


def examples(
    task: str, *, seeds: Sequence[int], part: str = "train", draw: int = 0, shuffled: bool = False
) -> tuple[Tensor, Tensor]:
    """Windows (S, B, T, L) of every seed and the visible tokens to follow, (S, B, steps, V).

    All eight starts of a cycle, or stretches of a part of the text: those of an update, `draw`,
    are its own in "train" and the same for all seeds otherwise. shuffled: a control. The targets
    keep their tokens and lose their order.
    """
    rule = TASKS[task]
    length, stride = CONTEXT + rule.steps, max(rule.given, 1)
    found = []
    for seed in seeds:
        if task == "cycle":
            rows = draw_cycle(seed)[(np.arange(LENGTH)[:, None] + np.arange(length)) % LENGTH]
        else:
            bits, training = text_bits(part), part == "train"
            generator = np.random.default_rng([seed if training else 0, draw, 21])
            count = rule.starts if training else rule.tested
            begin = generator.integers(len(bits) - length // stride, size=count)
            rows = bits[begin[:, None] + np.arange(length // stride)]
        if shuffled:  # the targets, over all paths and steps
            first, generator = CONTEXT // stride, np.random.default_rng([seed, draw, 22])
            dealt = generator.permutation(rows[:, first:].reshape(-1, rows.shape[-1]))
            rows = np.concatenate([rows[:, :first], dealt.reshape(rows[:, first:].shape)], axis=1)
        found.append(np.repeat(rows, stride, axis=1))
    tokens = torch.as_tensor(np.array(found))
    window = torch.nn.functional.pad(tokens[:, :, :CONTEXT], (0, SEGMENTS - rule.visible))
    if rule.given:
        window[:, :, np.arange(CONTEXT) % stride != stride - 1] = 0.0  # notes not yet written
    return window, tokens[:, :, CONTEXT:]


def draw_cycle(seed: int) -> np.ndarray:
    """Eight different tokens (8, 11) of random signs."""
    numbers = numpy_generator(seed).choice(2**SEGMENTS, size=LENGTH, replace=False)
    return 2.0 * ((numbers[:, None] >> np.arange(SEGMENTS)) & 1) - 1.0


@cache
def text_bytes(part: str) -> np.ndarray:
    """Bytes of a part of the seven texts of `language.text`, each text split alike."""
    low, high = PARTS[part]
    texts = [text.encode() for text in sample_texts().values()]
    pieces = [text[int(low * len(text)) : int(high * len(text))] for text in texts]
    return np.frombuffer(b"\n".join(pieces), dtype=np.uint8)


@cache
def text_bits(part: str) -> np.ndarray:
    """Signs (n, 8) of the bytes of a part, most significant first."""
    return 2.0 * np.unpackbits(text_bytes(part)[:, None], axis=1) - 1.0


def tables() -> dict[str, float]:
    """Bits per bit of tables of pairs counted on the training part, on the test's stretches.

    "bytes after a byte" predicts whole bytes, a mixture with the bytes alone of the weight of ten
    counts; "bits after a byte" the eight bits as if they were independent, as the network has to.
    """
    read, signs = text_bytes("train").astype(int), text_bits("train")
    window, targets = examples("bytes", seeds=[0], part="test")
    rows = torch.cat([window[0, :, -1:, :BYTE], targets[0, :, 1::2]], 1).numpy() > 0
    test = np.packbits(rows, axis=-1)[..., 0].astype(int)
    before, after = test[:, :-1].ravel(), test[:, 1:].ravel()
    alone = (np.bincount(read, minlength=256) + 0.5) / (len(read) + 128.0)
    pairs, ups = np.zeros((256, 256)), np.zeros((256, BYTE))
    np.add.at(pairs, (read[:-1], read[1:]), 1.0)
    np.add.at(ups, read[:-1], signs[1:] > 0)
    count = pairs.sum(1, keepdims=True) + 10.0
    whole = (pairs + 10.0 * alone) / count
    share = ((signs > 0).sum(0) + 0.5) / (len(signs) + 1.0)
    up = ((ups + 10.0 * share) / count)[before]
    wanted = np.unpackbits(after.astype(np.uint8)[:, None], axis=1) == 1
    return {
        "bytes after a byte": float(-np.log2(whole[before, after]).mean() / BYTE),
        "bits after a byte": float(-np.log2(np.where(wanted, up, 1.0 - up)).mean()),
    }


def initial(seeds: Sequence[int]) -> Tensor:
    """θ (S, 4, P, L) before training: normal, of standard deviation ½."""
    shape = (4, FEATURES, SEGMENTS)
    drawn = [0.5 * np.random.default_rng([seed, 20]).standard_normal(shape) for seed in seeds]
    return torch.as_tensor(np.array(drawn))


def train(
    task: str,
    *,
    seeds: Sequence[int] = range(BLOCK),
    gradient: str = "limit",
    size: int = 0,
    copies: int = 1,
    rate: float = 0.03,
    cut: bool = False,
    shuffled: bool = False,
    updates: int,
    looks: Sequence[float] = (1.0,),
) -> dict[float, Tensor]:
    """θ (S, 4, P, L) of seeds side by side after shares of the budget, by Adam, its rate falling.

    size: N of the drawn paths, 0 for the limit and only there. cut: gradients pass one step.
    updates: of one path of every start; with `copies` there are as many fewer.
    """
    theta = initial(seeds).requires_grad_()
    optimizer = torch.optim.Adam([theta], lr=rate, betas=(0.9, 0.99))
    total = max(updates // copies, 1)
    wanted = {round(share * total): share for share in looks}
    found = {}
    for step in range(max(wanted) + 1):
        if step in wanted:
            found[wanted[step]] = theta.detach().clone()
        optimizer.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / total))
        optimizer.zero_grad()
        drawn = examples(task, seeds=seeds, draw=step, shuffled=shuffled)
        how: dict[str, Any] = {"cut": cut, "straight": gradient != "score", "seed": step}
        paths = _paths(torch.tanh(theta), task, drawn, copies=copies, size=size, **how)
        surrogate(paths, kind=gradient, copies=copies).sum().backward()
        optimizer.step()
    return found


def _paths(
    weights: Tensor, task: str, drawn: tuple[Tensor, Tensor], *, copies: int, **how: Any
) -> Paths:
    """Rollout of the same starts `copies` times, copy by copy."""
    window, targets = (part.repeat(1, copies, 1, 1) for part in drawn)
    given = TASKS[task].given
    return rollout(weights, window=window, targets=targets, given=given, **PUSH, **how)


def losses(
    weights: Tensor, task: str, *, seeds: Sequence[int], size: int = 0, part: str = "test"
) -> np.ndarray:
    """Bits per bit of the target, (S,), at N = `size`, eight copies of each start; 0: the limit."""
    rule, held = TASKS[task], examples(task, seeds=seeds, part=part)
    with torch.no_grad():
        paths = _paths(weights, task, held, copies=8 if size else 1, size=size, seed=size)
    told = rule.steps // max(rule.given, 1)  # steps that have a cost
    return (paths.costs.sum(-1).mean(1) / (told * rule.visible)).numpy()


@stored(
    _FOLDER / "tuning.csv",
    units=[
        unit
        for unit in grid(task=TASKS, arm=ARMS, copies=(1, 2, 8), rate=RATES)
        if unit["copies"] in COPIES[unit["arm"]] and unit["arm"] != "limit, shuffled"
    ],
)
def TUNING(task: str, *, arm: str, copies: int, rate: float) -> Rows:
    """Mean loss of the validation seeds at the arm's own N after the whole budget."""
    setting: dict[str, Any] = {"copies": copies, "rate": rate, "updates": TASKS[task].budget}
    seeds, size = TASKS[task].tuned, ARMS[arm].get("size", 0)
    weights = torch.tanh(train(task, seeds=seeds, **setting, **ARMS[arm])[1.0])
    return rows_of(loss=losses(weights, task, seeds=seeds, size=size, part="validation").mean())


@stored(
    _FOLDER / "learning.csv",
    units=grid(task=("cycle",), arm=ARMS, block=(0, 1))
    + grid(task=("bytes",), arm=ARMS, block=(0,)),
)
def LEARNING(task: str, *, arm: str, block: int) -> Rows:
    """Losses of ten seeds after these shares of the budget, at every N and with signs.

    Copies and rate have the lowest loss in `TUNING`; a control takes those of the limit.
    """
    table, name = TUNING.read(), "limit" if arm == "limit, shuffled" else arm
    own = np.flatnonzero((table["task"] == task) & (table["arm"] == name))
    best = own[np.argmin(table["loss"][own])]
    setting: dict[str, Any] = {"copies": int(table["copies"][best]), "rate": table["rate"][best]}
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    budget = TASKS[task].budget
    rows = []
    trained = train(task, seeds=seeds, updates=budget, looks=SHARES, **setting, **ARMS[arm])
    for share, theta in trained.items():
        loss = partial(losses, task=task, seeds=seeds)
        weights, signs = torch.tanh(theta), torch.sign(theta)
        found = {"limit": loss(weights), **{f"n{n}": loss(weights, size=n) for n in SIZES}}
        found |= {"signs": loss(signs), "signs99": loss(signs, size=99)}
        rows += rows_of(seed=list(seeds), share=share, **found)
    return rows


def column(table: Columns, *, task: str, arm: str, measure: str, share: float = 1.0) -> np.ndarray:
    """One measure of every seed (S,) from the table `learning`, after a share of the budget."""
    return array_of(table, measure, "seed", task=task, arm=arm, share=share)


@stored(
    _FOLDER / "cost.csv",
    units=grid(task=TASKS, arm=("straight, 9900", "score, 9900"), repeat=range(5)),
)
def COST(task: str, *, arm: str, repeat: int) -> Rows:
    """Processor seconds of a path-step over those of the limit's, both measured in turn.

    repeat: a number that tells one measurement from the next.
    """
    kinds = [{"updates": 6}, *({**ARMS[arm], "copies": n, "updates": 6 * n} for n in COPIES[arm])]
    seconds = []
    for how in [kinds[0], *kinds]:  # the first time is a rehearsal
        begin = time.process_time()
        train(task, **how)
        seconds.append((time.process_time() - begin) / how.get("copies", 1))
    return rows_of(copies=COPIES[arm], ratio=np.array(seconds[2:]) / seconds[1])


# ---- tables of settings


@stored(
    _FOLDER / "settings_C19.csv",
    units=grid(task=TASKS, rival=("score", "straight"), size=SIZES, budget=(0.25, 1.0)),
    seconds=0.5,
)
def RIVALS(task: str, rival: str, size: int, budget: float) -> Rows:
    """Bits per bit by which the limit ends below a rival of N = 9,900, seed by seed, at `size`."""
    table = LEARNING.read()
    ours, theirs = (
        column(table, task=task, arm=arm, measure=f"n{size}", share=budget)
        for arm in ("limit", f"{rival}, 9900")
    )
    return mean_rows(theirs - ours)


def excess(task: str, size: int, *, share: float = 1.0) -> np.ndarray:
    """Loss at N = `size` less that in the limit, (seeds,), of trainings in the limit."""
    ours: Any = {"task": task, "arm": "limit", "share": share}
    at_size, limit = (column(LEARNING.read(), measure=m, **ours) for m in (f"n{size}", "limit"))
    return np.asarray(at_size - limit)


@stored(
    _FOLDER / "settings_C19b.csv",
    units=grid(task=TASKS, size=SIZES, budget=(0.25, 0.5, 1.0)),
    seconds=0.5,
)
def EXCESSES(task: str, size: int, budget: float) -> Rows:
    """0.02 bits per bit less the excess of a training in the limit, after a share of the budget."""
    return mean_rows(0.02 - excess(task, size, share=budget))


@stored(
    _FOLDER / "settings_C19d.csv",
    units=[
        {"task": task, "smallest": smallest, "largest": largest, "middle": middle}
        for task in TASKS
        for smallest, largest in ((99, 9900), (99, 99_000), (990, 99_000))
        for middle in ("mean", "median")
    ],
    seconds=1.0,
)
def POWERS(task: str, smallest: int, largest: int, middle: str) -> Rows:
    """The power by a straight line through the "mean" or "median" excess of the seeds.

    The interval is that of 2,000 draws of the seeds with replacement.
    """
    sizes = [size for size in SIZES if smallest <= size <= largest]
    found = np.array([excess(task, size) for size in sizes])
    seeds = found.shape[1]
    drawn = np.random.default_rng(0).integers(seeds, size=(2000, seeds))
    chosen = np.concatenate([np.arange(seeds)[None], drawn])
    reduce = np.mean if middle == "mean" else np.median
    levels = np.log(np.maximum(reduce(found[:, chosen], axis=-1), 1e-6))
    powers = np.polyfit(np.log(sizes), levels, 1)[0]
    interval = (powers[0], *np.quantile(powers[1:], (0.025, 0.975)))
    return near_rows(interval, aim=-1.0, within=0.25, runs=seeds)
