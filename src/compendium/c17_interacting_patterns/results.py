"""The tables of this study and what the chapter reads from them: means, paired intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c17_interacting_patterns import completion, faces, readers
from compendium.common.rows import array_of, grid, groups, mean_rows, rows_of
from spinformer.core.records import record
from spinformer.core.statistics import mean_interval

SEEDS = 10
LINKS = (1, 2, 4)
RATES = (0.1, 0.3)
SEARCHES = 3


HERE = Path(__file__).parent


@stored(HERE / "recall.csv", units=[{"seed": s} for s in range(SEEDS)])
def RECALL(seed: int) -> Rows:
    """A row for each arm."""
    return [{"arm": arm, **found} for arm, found in faces.recall(seed).items()]


@stored(
    HERE / "completion.csv",
    units=grid(data=("digits", "faces"), seed=range(SEEDS)),
    checked=3,
    seconds=10.0,
    within={"error": 2e-3},
)
def COMPLETION(data: str, seed: int) -> Rows:
    """A row for each method."""
    found = completion.completion(seed, data=data)
    return rows_of(method=list(found), error=list(found.values()))


def _hops_rows(arm: str, links: int, rate: float, *, seeds: range) -> Rows:
    """One arm, chain and rate, all seeds trained at once: a row for each."""
    validation, test = readers.train_readers(arm, links=links, seeds=seeds, rate=rate)
    return rows_of(seed=seeds, validation=validation, test=test)


@stored(
    HERE / "hops.csv",
    units=grid(arm=readers.ARMS, links=LINKS, rate=RATES),
    checked=6,
    seconds=20.0,
    within={"validation": 0.02, "test": 0.02},
)
def HOPS(arm: str, links: int, rate: float) -> Rows:
    """Ten trainings."""
    return _hops_rows(arm, links, rate, seeds=range(SEEDS))


@stored(
    HERE / "hops_again.csv",
    units=grid(arm=("dense", "interacting"), links=(2,), rate=RATES),
    seconds=20.0,
    within={"validation": 0.02, "test": 0.02},
)
def HOPS_AGAIN(arm: str, links: int, rate: float) -> Rows:
    """Ten other seeds of the closest case."""
    return _hops_rows(arm, links, rate, seeds=range(SEEDS, 2 * SEEDS))


@stored(
    HERE / "search.csv",
    units=grid(arm=("interacting", "directed"), links=LINKS, seed=range(SEARCHES)),
)
def SEARCH(arm: str, links: int, seed: int) -> Rows:
    """The best that one random search finds."""
    return [{"test": readers.search_readers(arm, links=links, seed=seed)}]


def searched(arm: str) -> np.ndarray:
    """Accuracies of the searches, (links, searches)."""
    return array_of(SEARCH.read(), "test", "links", "seed", arm=arm)


TASKS = ("recall", "digits", "faces", *(f"hops {links}" for links in LINKS))
# No controls of the criterion: what interacts itself, and what uses more stored numbers.
NO_CONTROLS = ("interacting", *completion.INTERACTING, "directed", completion.MORE)
# One plain look at the same patterns, by dot products or by distances.
LOOKS = {"dot products": "attention", "distances": "distances"}


@stored(
    HERE / "settings_A18b.csv",
    units=[
        *grid(task=("recall", "digits", "faces"), choice=LOOKS),
        *grid(task=TASKS[3:], choice=[f"rate {rate}" for rate in RATES]),
    ],
    checked=1,
    seconds=0.1,
)
def SETTINGS(task: str, choice: str) -> Rows:
    """Gain of interactions over one plain look, by the look's score or by the rate of learning."""
    if task.startswith("hops"):
        return mean_rows(over_a_look(task, rates=[float(choice.removeprefix("rate "))]).each)
    return mean_rows(over_a_look(task, look=LOOKS[choice]).each)


@record
class Gain:
    """Gain of interactions over a control, its 95 % interval, and the gains of the seeds (n,)."""

    mean: float
    low: float
    high: float
    each: np.ndarray


def scores(task: str) -> dict[str, np.ndarray]:
    """What each method scores in a task, by seed, more is better: shares, or minus the error."""
    if task == "recall":
        return {arm: rows["recalled"] for arm, rows in groups(RECALL.read(), "arm")}
    if task in ("digits", "faces"):
        by_method = groups(COMPLETION.read(), "data", "method")
        return {name: -rows["error"] for (data, name), rows in by_method if data == task}
    return {arm: hop_scores(arm, links=int(task.split()[1])) for arm in readers.ARMS}


def hop_scores(
    arm: str, *, links: int, rates: Sequence[float] = RATES, again: bool = False
) -> np.ndarray:
    """Accuracies of an arm by seed, at the one of `rates` that is best on the validation lines.

    With `again` those of the ten other seeds follow; the rate is chosen by all.
    """
    tables = [HOPS.read(), *([HOPS_AGAIN.read()] if again else [])]
    tried = []
    for rate in rates:
        chosen = {"arm": arm, "links": links, "rate": rate}
        validation, test = (
            np.concatenate([array_of(table, name, "seed", **chosen) for table in tables])
            for name in ("validation", "test")
        )
        tried.append((float(validation.mean()), test))
    return max(tried, key=lambda found: found[0])[1]


def _gain(each: np.ndarray) -> Gain:
    low, high = mean_interval(each)
    return Gain(mean=float(each.mean()), low=low, high=high, each=each)


def over_a_look(task: str, *, look: str = "attention", rates: Sequence[float] = RATES) -> Gain:
    """Gain over one plain look at the same patterns: all the tokens, in the hops."""
    if task.startswith("hops"):
        links = int(task.split()[1])
        mine, plain = (
            hop_scores(arm, links=links, rates=rates, again=links == 2)
            for arm in ("interacting", "dense")
        )
    else:
        mine, plain = (scores(task)[name] for name in ("interacting", look))
    return _gain(mine - plain)


def over_equals(task: str) -> tuple[str, Gain]:
    """The control of equal resources over which the gain is smallest, and that gain."""
    found = scores(task)
    controls = {
        name: _gain(found["interacting"] - values)
        for name, values in found.items()
        if name not in NO_CONTROLS
    }
    name = min(controls, key=lambda each: controls[each].low)
    return name, controls[name]


# What a gain must exceed to matter: shares of tokens or pictures, or of the variance.
MATTERS = 0.02


@stored(
    HERE / "settings_A18c.csv",
    units=[
        *grid(task=("recall",), choice=("seeds 0 to 4", "seeds 5 to 9")),
        *grid(task=("digits", "faces"), choice=("30 stored", "60 stored", "90 stored")),
        *grid(task=TASKS[3:], choice=[f"rate {rate}" for rate in RATES]),
    ],
    seconds=0.1,
)
def OVER_EQUALS(task: str, choice: str) -> Rows:
    """Gain over the control of equal resources that is best in the mean, less what matters."""
    number = choice.split()[1 if task == "recall" or "hops" in task else 0]
    if task == "recall":
        found = {arm: each.reshape(2, -1)[int(number) // 5] for arm, each in scores(task).items()}
    elif "hops" in task:
        links, rates = int(task.split()[1]), [float(number)]
        found = {arm: hop_scores(arm, links=links, rates=rates) for arm in readers.ARMS}
    elif number == "60":
        found = scores(task)
    else:
        pictures = int(number)
        draws = [completion.completion(s, data=task, count=pictures) for s in range(SEEDS)]
        found = {name: -np.array([draw[name] for draw in draws]) for name in draws[0]}
    best = max((each for arm, each in found.items() if arm not in NO_CONTROLS), key=np.mean)
    return mean_rows(found["interacting"] - best - MATTERS)
