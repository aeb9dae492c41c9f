"""Gains in pairs, from the tables of the tasks."""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c17_interacting_patterns import pictures
from compendium.c17_interacting_patterns.readers import ARMS, HOPS, HOPS_AGAIN, LINKS, RATES
from compendium.common.rows import array_of, grid, groups, mean_rows
from spinformer.core.statistics import student_interval

TASKS = ("recall", "digits", "faces", *(f"hops {links}" for links in LINKS))
# No controls of the criterion: what interacts itself, and what uses more stored numbers.
NO_CONTROLS = ("interacting", "directed", pictures.MORE)
Scores = dict[str, np.ndarray]


def scores(task: str, *, choice: str = "", again: bool = False) -> Scores:
    """What each method scores in a task, by seed, more is better: shares, or minus the error.

    Of the hops at the rate of the `choice`, or the best on the validation lines; with `again` those
    of the ten other seeds follow, and the rate is chosen by all.
    """
    if task == "recall":
        return {arm: rows["recalled"] for arm, rows in groups(pictures.RECALL.read(), "arm")}
    if task in ("digits", "faces"):
        by_method = groups(pictures.COMPLETION.read(), "data", "method")
        return {name: -rows["error"] for (data, name), rows in by_method if data == task}
    tables = [HOPS.read(), *([HOPS_AGAIN.read()] if again else [])]
    rates = [place for place, rate in enumerate(RATES) if choice in ("", f"rate {rate}")]
    found = {}
    for arm in ("dense", "interacting") if again else ARMS:
        about = {"arm": arm, "links": int(task.split()[1])}
        validation, test = (
            np.hstack([array_of(table, name, "rate", "seed", **about)[rates] for table in tables])
            for name in ("validation", "test")
        )
        found[arm] = test[validation.mean(1).argmax()]
    return found


def over_a_look(task: str, *, choice: str = "") -> np.ndarray:
    """Gains over one plain look at the same patterns, by dot products or by "distances"."""
    found = scores(task, choice=choice, again=task == "hops 2")
    look = "distances" if choice == "distances" else "attention"
    return found["interacting"] - found["dense" if "hops" in task else look]


def over_controls(found: Scores) -> Scores:
    """Gains of the seeds over each control of equal resources."""
    return {n: found["interacting"] - one for n, one in found.items() if n not in NO_CONTROLS}


def over_equals(task: str) -> tuple[str, np.ndarray]:
    """The control of equal resources over which the gain is surely smallest, and those gains."""
    return min(over_controls(scores(task)).items(), key=lambda one: student_interval(one[1])[0])


_BY_RATE = grid(task=TASKS[3:], choice=[f"rate {rate}" for rate in RATES])


@stored(
    "settings_A18b",
    [*grid(task=TASKS[:3], choice=("dot products", "distances")), *_BY_RATE],
    checked=1,
    seconds=0.1,
)
def SETTINGS(task: str, choice: str) -> Rows:
    """Gain of interactions over one plain look, by the look's score or by the rate of learning."""
    return mean_rows(over_a_look(task, choice=choice))


# What a gain must exceed to matter: shares of tokens or pictures, or of the variance.
MATTERS = 0.02


@stored(
    "settings_A18c",
    [
        *grid(task=("recall",), choice=("seeds 0 to 4", "seeds 5 to 9")),
        *grid(task=("digits", "faces"), choice=("30 stored", "60 stored", "90 stored")),
        *_BY_RATE,
    ],
    seconds=0.1,
)
def OVER_EQUALS(task: str, choice: str) -> Rows:
    """Gain over the control of equal resources that is best in the mean, less what matters."""
    if task == "recall":
        first = int(choice.split()[1])
        found = {arm: each[first : first + 5] for arm, each in scores(task).items()}
    elif "hops" in task or choice == "60 stored":
        found = scores(task, choice=choice)
    else:
        given = {"data": task, "count": int(choice[:2])}
        seeds = (pictures.COMPLETION.rows(seed=seed, **given) for seed in range(pictures.SEEDS))
        methods = zip(*seeds, strict=True)
        found = {rows[0]["method"]: np.array([-row["error"] for row in rows]) for rows in methods}
    return mean_rows(min(over_controls(found).values(), key=np.mean) - MATTERS)
