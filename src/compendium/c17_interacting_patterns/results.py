"""Gains in pairs, from the tables of the tasks."""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c17_interacting_patterns import pictures
from compendium.c17_interacting_patterns.readers import (
    ARMS,
    LENGTH,
    LINKS,
    RATES,
    hops_again_table,
    hops_table,
)
from compendium.common.rows import array_of, groupby, mean_rows
from spinformer.core.statistics import student_interval

PICTURE_TASKS = ("recall", "digits", "faces")
TASKS = (*PICTURE_TASKS, *(f"hops {links}" for links in LINKS))
# No controls of the criterion: what interacts itself, and what uses more stored numbers.
NO_CONTROLS = ("interacting", "directed", pictures.MORE)
# Scores by method, more is better: fractions, or minus the error; one a seed.
Scores = dict[str, np.ndarray]


def picture_scores(task: str, *, count: int = pictures.COUNT) -> Scores:
    """Fractions recalled, or minus the errors of what is completed, with `count` stored."""
    usual = count == pictures.COUNT
    if task == "recall":
        table = pictures.recall_table.read() if usual else pictures.recall_counts.read()
        here = np.full(len(table["arm"]), True)
    else:
        table = pictures.completion_table.read() if usual else pictures.completion_counts.read()
        here = table["data"] == task
    if not usual:
        here &= table["count"] == count
    rows = {name: column[here] for name, column in table.items()}
    if task == "recall":
        return {arm: one["recalled"] for arm, one in groupby(rows, "arm")}
    return {method: -one["error"] for method, one in groupby(rows, "method")}


def hop_scores(links: int, *, rate: float | None = None, again: bool = False) -> Scores:
    """Right answers at a learning rate, or at that which is best on the validation lines.

    With `again` those of the ten other seeds follow, of two arms, and the rate is chosen by all.
    """
    tables = [hops_table.read()]
    if again:
        tables.append(hops_again_table.read())
    rates = [place for place, one in enumerate(RATES) if rate in (None, one)]
    scores = {}
    for arm in ("dense", "interacting") if again else ARMS:
        by_rate = {}
        for name in ("validation", "test"):
            arrays = [
                array_of(table, name, "rate", "seed", arm=arm, links=links)[rates]
                for table in tables
            ]
            by_rate[name] = np.hstack(arrays)
        scores[arm] = by_rate["test"][by_rate["validation"].mean(1).argmax()]
    return scores


def scores(task: str) -> Scores:
    """What each method scores in one of the TASKS at its usual number of pictures and best rate."""
    if task in PICTURE_TASKS:
        return picture_scores(task)
    return hop_scores(_links(task))


def gains_over_look(
    task: str, *, look: str = "dot products", count: int = pictures.COUNT
) -> np.ndarray:
    """Gains in a task with pictures over one look at them by "dot products" or "distances"."""
    by_method = picture_scores(task, count=count)
    plain = "distances" if look == "distances" else "attention"
    return by_method["interacting"] - by_method[plain]


def over_a_look(task: str) -> np.ndarray:
    """Gains over one plain look at the same patterns; twenty seeds of two links, else ten."""
    if task in PICTURE_TASKS:
        return gains_over_look(task)
    links = _links(task)
    by_arm = hop_scores(links, again=links == 2)
    return by_arm["interacting"] - by_arm["dense"]


def over_controls(found: Scores) -> Scores:
    """Gains of the seeds over each control of equal resources."""
    return {
        name: found["interacting"] - one for name, one in found.items() if name not in NO_CONTROLS
    }


def over_equals(task: str) -> tuple[str, np.ndarray]:
    """The control of equal resources over which the gain is surely smallest, and those gains."""
    return min(over_controls(scores(task)).items(), key=lambda one: student_interval(one[1])[0])


def _links(task: str) -> int:
    return LINKS[TASKS.index(task) - len(PICTURE_TASKS)]


# Numbers of stored pictures.
COUNTS = {"recall": (40, 60, 80), "digits": (30, 60, 90), "faces": (30, 60, 90)}
_PICTURES = [
    {"data": f"{task} {count}", "task": task, "stored": count, "rate": 0.0}
    for task, counts in COUNTS.items()
    for count in counts
]
_CHAINS = [
    {"data": f"{task} {rate}", "task": task, "stored": LENGTH, "rate": rate}
    for task in TASKS[len(PICTURE_TASKS) :]
    for rate in RATES
]


@stored(
    "settings_A18b",
    [unit | {"look": look} for unit in _PICTURES for look in ("dot products", "distances")]
    + [unit | {"look": "dot products"} for unit in _CHAINS],
    checked=2,
    seconds=0.1,
)
def settings_A18b(data: str, task: str, stored: int, rate: float, look: str) -> Rows:
    """Gain of interactions over one plain look, with so many pictures or at a rate of learning."""
    if task in PICTURE_TASKS:
        return mean_rows(gains_over_look(task, look=look, count=stored))
    links = _links(task)
    by_arm = hop_scores(links, rate=rate, again=links == 2)
    return mean_rows(by_arm["interacting"] - by_arm["dense"])


# What a gain must exceed to matter: fractions of tokens or pictures, or of the variance.
MATTERS = 0.02


@stored("settings_A18c", _PICTURES + _CHAINS, seconds=0.1)
def settings_A18c(data: str, task: str, stored: int, rate: float) -> Rows:
    """Gain over the control of equal resources that is best on average, minus what matters."""
    if task in PICTURE_TASKS:
        by_method = picture_scores(task, count=stored)
    else:
        by_method = hop_scores(_links(task), rate=rate)
    return mean_rows(min(over_controls(by_method).values(), key=np.mean) - MATTERS)
