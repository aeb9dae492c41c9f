"""Trainings by the three gradients at equal numbers of sampled or computed paths.

Work is counted in path-steps: one step of one path, forward and back. The limit and
straight-through follow one path of every start; REINFORCE draws `copies` of it, for its baseline,
and makes as many fewer updates, so that all have the same number of path-steps. Rate and copies of
each arm are chosen on validation seeds: twelve other cycles, and four trainings that are measured
on the validation part of the texts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, Table
from compendium.c36_learning_through_the_limit.learning import GRADIENTS, rollout, surrogate
from compendium.c36_learning_through_the_limit.tasks import (
    BETA,
    FEATURES,
    GAMMA,
    SEGMENTS,
    TASKS,
    examples,
)
from spinformer.core.checks import check_choice, check_flag, check_integer, check_real
from spinformer.core.records import record

SIZES = (99, 990, 9900, 99_000)
BLOCK = 10  # seeds that are trained side by side
BLOCKS = {"cycle": 2, "bytes": 1}
TUNING_SEEDS = {"cycle": tuple(range(100, 112)), "bytes": tuple(range(100, 104))}
RATES = (0.03, 0.1, 0.3)
BUDGET = {"cycle": 320, "bytes": 160}  # updates with one path of every start
SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the budget, where one looks
# Gradient, N of the training (0: the limit), copies to choose from, steps kept, shuffled targets.
ARMS: dict[str, tuple[str, int, tuple[int, ...], int, bool]] = {
    "limit": ("limit", 0, (1,), 0, False),
    "limit, one step": ("limit", 0, (1,), 1, False),
    "limit, shuffled": ("limit", 0, (1,), 0, True),
    "straight, 99": ("straight", 99, (1,), 0, False),
    "straight, 9900": ("straight", 9900, (1,), 0, False),
    "score, 99": ("score", 99, (2, 8), 0, False),
    "score, 9900": ("score", 9900, (2, 8), 0, False),
}


@record
class Lessons:
    """How to train the seeds of a task, side by side.

    size: N of the drawn paths, 0 for the limit. keep: steps a gradient passes, 0 for all.
    updates: of one path of every start; with `copies` there are as many fewer.
    """

    task: str
    gradient: str = "limit"
    size: int = 0
    copies: int = 1
    rate: float = 0.03
    keep: int = 0
    shuffled: bool = False
    updates: int = 320
    seeds: Sequence[int] = range(BLOCK)

    def __post_init__(self) -> None:
        """Validate every field."""
        check_choice("task", self.task, TASKS)
        check_choice("gradient", self.gradient, GRADIENTS)
        for name, low in (("size", 0), ("copies", 1), ("keep", 0), ("updates", 1)):
            check_integer(name, getattr(self, name), low=low)
        check_real("rate", self.rate, low=0.0, open_low=True)
        check_flag("shuffled", self.shuffled)
        if (self.gradient == "limit") != (self.size == 0):
            raise ValueError(f"size must be 0 in the limit and only there, got {self.size}")


def initial(seeds: Sequence[int]) -> Tensor:
    """θ (S, 4, P, L) before training: normal, of standard deviation ½.

    >>> initial([0, 1]).shape
    torch.Size([2, 4, 12, 11])
    """
    shape = (4, FEATURES, SEGMENTS)
    drawn = [0.5 * np.random.default_rng([seed, 20]).standard_normal(shape) for seed in seeds]
    return torch.as_tensor(np.array(drawn))


def train(lessons: Lessons, *, looks: Sequence[float] = (1.0,)) -> dict[float, Tensor]:
    """θ (S, 4, P, L) after these shares of the budget, by Adam with a rate that falls to zero.

    Stops at the last look; the rate falls as if it went on to the end.

    >>> train(Lessons(task="cycle", updates=2, seeds=(0,)))[1.0].shape
    torch.Size([1, 4, 12, 11])
    """
    theta = initial(lessons.seeds).requires_grad_()
    optimizer = torch.optim.Adam([theta], lr=lessons.rate, betas=(0.9, 0.99))
    total = max(lessons.updates // lessons.copies, 1)
    wanted = {round(share * total): share for share in looks}
    found = {}
    for step in range(max(wanted) + 1):
        if step in wanted:
            found[wanted[step]] = theta.detach().clone()
        if step == max(wanted):
            break
        optimizer.param_groups[0]["lr"] = (
            lessons.rate * 0.5 * (1 + math.cos(math.pi * step / total))
        )
        optimizer.zero_grad()
        _costs(lessons, theta, step).sum().backward()
        optimizer.step()
    return found


def _costs(lessons: Lessons, theta: Tensor, step: int) -> Tensor:
    drawn = examples(lessons.task, seeds=lessons.seeds, draw=step, shuffled=lessons.shuffled)
    drawn = drawn.repeated(lessons.copies)
    paths = rollout(
        torch.tanh(theta), window=drawn.window, targets=drawn.targets, beta=BETA, gamma=GAMMA,
        size=lessons.size or None, given=TASKS[lessons.task].given, keep=lessons.keep or None,
        straight=lessons.gradient != "score", seed=step,
    )  # fmt: skip
    return surrogate(paths, kind=lessons.gradient, copies=lessons.copies)


def losses(
    theta: Tensor,
    *,
    task: str,
    seeds: Sequence[int],
    size: int = 0,
    part: str = "test",
    signs: bool = False,
    copies: int = 8,
) -> np.ndarray:
    """Bits per bit of the target, (S,), at N = `size` (0: the limit), weights tanh θ or sign θ.

    >>> losses(initial([0]), task="cycle", seeds=[0]).shape
    (1,)
    """
    rule = TASKS[check_choice("task", task, TASKS)]
    held = examples(task, seeds=seeds, part=part).repeated(copies if size else 1)
    with torch.no_grad():
        paths = rollout(
            torch.sign(theta) if signs else torch.tanh(theta), window=held.window,
            targets=held.targets, beta=BETA, gamma=GAMMA, size=size or None, given=rule.given,
            seed=size,
        )  # fmt: skip
    return (paths.costs.sum(-1).mean(1) / (rule.told * rule.visible)).numpy()


# ---- the tables


def tuning_rows(
    task: str, *, arm: str, copies: int, rate: float, updates: int | None = None
) -> Rows:
    """Mean loss of the validation seeds at the arm's own N after the whole budget, or `updates`.

    >>> list(tuning_rows("cycle", arm="limit", copies=1, rate=0.1, updates=1)[0])
    ['loss']
    """
    gradient, size, _, keep, _ = ARMS[arm]
    lessons = Lessons(
        task=task, gradient=gradient, size=size, copies=copies, rate=rate, keep=keep,
        updates=updates or BUDGET[task], seeds=TUNING_SEEDS[task],
    )  # fmt: skip
    theta = train(lessons)[1.0]
    loss = losses(theta, task=task, seeds=lessons.seeds, size=size, part="validation")
    return [{"loss": float(loss.mean())}]


def chosen(task: str, *, arm: str) -> tuple[int, float]:
    """Copies and rate of the lowest loss in the table `tuning`; a control takes the limit's.

    >>> chosen("cycle", arm="limit, shuffled") == chosen("cycle", arm="limit")
    True
    """
    check_choice("arm", arm, ARMS)
    table = _tuning()
    name = "limit" if arm == "limit, shuffled" else arm
    own = np.flatnonzero((table["task"] == task) & (table["arm"] == name))
    best = own[np.argmin(table["loss"][own])]
    return int(table["copies"][best]), float(table["rate"][best])


@cache
def _tuning() -> dict[str, np.ndarray]:
    return TUNING.read()


def learning_rows(task: str, *, arm: str, block: int, shares: Sequence[float] = SHARES) -> Rows:
    """Losses of ten seeds after these shares of the budget, at every N and with signs.

    >>> len(learning_rows("cycle", arm="limit", block=0, shares=(0.0,)))
    10
    """
    gradient, size, _, keep, shuffled = ARMS[arm]
    copies, rate = chosen(task, arm=arm)
    lessons = Lessons(
        task=task, gradient=gradient, size=size, copies=copies, rate=rate, keep=keep,
        shuffled=shuffled, updates=BUDGET[task], seeds=range(block * BLOCK, (block + 1) * BLOCK),
    )  # fmt: skip
    rows = []
    for share, theta in train(lessons, looks=shares).items():
        loss = partial(losses, theta, task=task, seeds=lessons.seeds)
        measured = {
            "limit": loss(),
            **{f"n{n}": loss(size=n) for n in SIZES},
            "signs": loss(signs=True),
            "signs99": loss(size=99, signs=True),
        }
        for place, seed in enumerate(lessons.seeds):
            rows.append(
                {"seed": seed, "share": share}
                | {name: float(values[place]) for name, values in measured.items()}
            )
    return rows


def column(
    table: Mapping[str, np.ndarray], *, task: str, arm: str, measure: str, share: float = 1.0
) -> np.ndarray:
    """One measure of every seed (S,) from the table `learning`, after a share of the budget.

    >>> names = ("task", "arm", "share", "limit")
    >>> table = {name: np.array([value]) for name, value in zip(names, ("a", "b", 1.0, 0.5))}
    >>> column(table, task="a", arm="b", measure="limit")
    array([0.5])
    """
    own = (table["task"] == task) & (table["arm"] == arm) & (table["share"] == share)
    return table[measure][own]


def cost_rows(task: str, *, arm: str, repeat: int, updates: int = 6) -> Rows:
    """Processor seconds of a path-step over those of the limit's, both measured in turn.

    repeat: a number that tells one measurement from the next.

    >>> [row["copies"] for row in cost_rows("cycle", arm="score, 99", repeat=0, updates=1)]
    [2, 8]
    """
    gradient, size, copies, _, _ = ARMS[arm]
    kinds = [Lessons(task=task, updates=updates)]
    for several in copies:
        total = updates * several
        kinds.append(
            Lessons(task=task, gradient=gradient, size=size, copies=several, updates=total)
        )
    seconds = []
    for lessons in [kinds[0], *kinds]:  # the first time is a rehearsal
        begin = time.process_time()
        train(lessons)
        seconds.append((time.process_time() - begin) / lessons.copies)
    return [
        {"copies": lessons.copies, "ratio": spent / seconds[1]}
        for lessons, spent in zip(kinds[1:], seconds[2:], strict=True)
    ]


_FOLDER = Path(__file__).parent
COST = Table(
    path=_FOLDER / "cost.csv",
    units=[
        {"task": task, "arm": arm, "repeat": repeat}
        for task in TASKS
        for arm in ("straight, 9900", "score, 9900")
        for repeat in range(5)
    ],
    rows=cost_rows,
)
TUNING = Table(
    path=_FOLDER / "tuning.csv",
    units=[
        {"task": task, "arm": arm, "copies": copies, "rate": rate}
        for task in TASKS
        for arm, (_, _, several, _, shuffled) in ARMS.items()
        if not shuffled
        for copies in several
        for rate in RATES
    ],
    rows=tuning_rows,
)
LEARNING = Table(
    path=_FOLDER / "learning.csv",
    units=[
        {"task": task, "arm": arm, "block": block}
        for task in TASKS
        for arm in ARMS
        for block in range(BLOCKS[task])
    ],
    rows=learning_rows,
)
