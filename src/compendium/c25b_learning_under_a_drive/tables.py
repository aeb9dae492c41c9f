"""The stored tables: the tuning of every arm, recall along the training, and text on two splits.

Tuning uses a seed that the results do not use.
"""

import math
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c25b_learning_under_a_drive.study import (
    ARMS,
    PAIRS,
    UPDATES,
    Batch,
    count_bits,
    held_batch,
    score,
    stationary_spins,
    train,
)
from compendium.common.rows import array_of, grid, median_rows

RATES, STRENGTHS = (0.003, 0.01, 0.03), (1.0, 3.0)
LOOKS = (0, 25, 50, 100, 200, 300)
SEEDS, TEXT_SEEDS, SPLITS = tuple(range(10)), tuple(range(5)), (0, 1)
# A split on which two arms were trained later, to see whether the lead is one of the first two.
THIRD = 2
# The recall arm that is trained on answers dealt out by chance.
SHUFFLED = "shuffled"
TEXT_ARMS = ("driven", "symmetric", "uniform", "attention")


def _thinned(batch: Batch) -> Batch:
    return Batch(*(part[::4] for part in batch))


@stored("tuning", [*grid(task=("recall",), arm=ARMS), *grid(task=("text",), arm=TEXT_ARMS)])
def TUNING(task: str, arm: str) -> Rows:
    """Validation bits of all settings of one arm; read from the past alone if it is symmetric."""
    held = held_batch(task, part="validation")
    past_alone = arm == "symmetric"
    held = _thinned(held) if past_alone else held
    rows = []
    for strength in STRENGTHS[:1] if arm == "attention" else STRENGTHS:
        for rate in RATES:
            network = train(arm, task=task, rate=rate, strength=strength, seed=100)[UPDATES]
            bits = score(network, held, past_alone=past_alone).bits
            rows.append({"rate": rate, "strength": strength, "bits": bits})
    return rows


def chosen_setting(arm: str, *, task: str) -> dict[str, Any]:
    """Rate and strength of the least validation bits."""
    table = TUNING.read()
    here = np.flatnonzero((table["arm"] == arm) & (table["task"] == task))
    best = here[np.nanargmin(table["bits"][here])]
    return {name: float(table[name][best]) for name in ("rate", "strength")}


@stored(
    "recall",
    [{"arm": arm, "seed": seed} for seed in SEEDS for arm in (*ARMS, SHUFFLED)],
    checked=len(ARMS),  # shuffled answers: nothing is learned that could amplify rounding much
    seconds=10.0,
    within={"entropy": 0.3, "strength": 0.3, "bits": 0.1, "accuracy": 0.1},
)
def RECALL(arm: str, seed: int) -> Rows:
    """A row a look: bits, accuracy, entropy production (per spin and component), strength g."""
    kind = "driven" if arm == SHUFFLED else arm
    setting = {**chosen_setting(kind, task="recall"), "seed": seed, "looks": LOOKS}
    found = train(kind, task="recall", shuffled=arm == SHUFFLED, **setting)
    held = held_batch("recall", part="test")
    few = Batch(*(part[:32] for part in held))
    rows = []
    for update, network in found.items():
        spins = dict.fromkeys(("entropy", "strength"), math.nan)
        if kind != "attention":
            mixer, parts = stationary_spins(network, few.tokens)
            spins = {
                "entropy": float(parts.entropy_production.mean()),
                "strength": float(mixer.log_strength.detach().exp().mean()),
            }
        rows.append({"update": update, **score(network, held)._asdict(), **spins})
    return rows


@stored(
    "text",
    [
        {"arm": arm, "split": split, "seed": seed}
        for splits, arms in ((SPLITS, TEXT_ARMS), ((THIRD,), ("driven", "uniform")))
        for seed in TEXT_SEEDS
        for split in splits
        for arm in arms
    ],
)
def TEXT(arm: str, split: int, seed: int) -> Rows:
    """Bits per character of the test part in one pass, and read from the past alone; entropy.

    From the past alone on every fourth window, and in one pass on these as well: `bits_quarter`.
    """
    setting = chosen_setting(arm, task="text")
    found = train(arm, task="text", **setting, seed=seed, split=split, looks=(0,))
    held = held_batch("text", part="test", split=split)
    few, network = _thinned(held), found[UPDATES]
    entropy = [math.nan] * 2
    if arm != "attention":
        states = [stationary_spins(one, few.tokens[::10])[1] for one in found.values()]
        entropy = [float(parts.entropy_production.mean()) for parts in states]
    return [
        {
            "bits": score(network, held).bits,
            "bits_quarter": score(network, few).bits,
            "bits_past": score(network, few, past_alone=True).bits,
            "entropy_before": entropy[0],
            "entropy_after": entropy[1],
        }
    ]


# The help of another Python has another length, by a tenth from 3.11 to 3.13.
@stored(
    "counts",
    [{"split": split} for split in (*SPLITS, THIRD)],
    seconds=2.0,
    within=dict.fromkeys(("unigram", "bigram", "trigram"), 0.1),
)
def COUNTS(split: int) -> Rows:
    """Bits per character from counts."""
    return [count_bits(split)]


@stored(
    "settings_B13b",
    [
        *grid(
            task=("text",),
            null=("counted letters", "counted pairs", "uniform"),
            place=[f"split {split}" for split in (*SPLITS, THIRD)],
        ),
        *grid(
            task=("recall",),
            null=("chance", "uniform", SHUFFLED),
            place=[f"updates {update}" for update in (200, 300, 400)],
        ),
    ],
    seconds=0.1,
)
def SETTINGS(task: str, null: str, place: str) -> Rows:
    """What driven spins are ahead; `place`: "split 0" of the text, or "updates 400" of recall."""
    kind, number = place.split()
    table = (TEXT if kind == "split" else RECALL).read()
    here = {"split" if kind == "split" else "update": int(number)}

    def column(arm: str, name: str) -> np.ndarray:
        return array_of(table, name, "seed", arm=arm, **here)

    if task == "recall":
        other = 1 / PAIRS if null == "chance" else column(null, "accuracy")
        return median_rows(column("driven", "accuracy") - other)
    counts, known = COUNTS.read(), {"counted pairs": "bigram", "counted letters": "unigram"}
    if null in known:
        other = counts[known[null]][counts["split"] == int(number)]
    else:
        other = column(null, "bits")
    return median_rows(other - column("driven", "bits"))
