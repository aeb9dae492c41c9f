"""The stored table of chapter 19: five poolings, two rules, numbers of bags, ten seeds."""

from __future__ import annotations

from pathlib import Path

from bookmaker.tables import Rows, Table
from compendium.c19_hopfield_layer.data import draw_bags
from compendium.c19_hopfield_layer.training import inspect, train_bags

SEEDS = tuple(range(10))
COMPARED = ("mean", "gated", "hopfield", "hopfield, rest", "static")


def curve_rows(*, rule: str, bags: int, pooling: str) -> Rows:
    """One row a seed: the choices made on validation bags, test results, a look inside."""
    found = train_bags(pooling, rule=rule, bags=bags, seeds=SEEDS)
    rows = []
    for index, (seed, model) in enumerate(zip(SEEDS, found.models, strict=True)):
        test = draw_bags(200, rule=rule, part="test", seed=seed)
        rows.append(
            {
                "seed": seed,
                "accuracy": float(found.accuracy[index]),
                "loss": float(found.loss[index]),
                "rate": float(found.rate[index]),
                "sharpness": float(found.sharpness[index]),
                **inspect(model, test),
            }
        )
    return rows


CURVE = Table(
    path=Path(__file__).with_name("curve.csv"),
    units=[
        *(
            {"rule": rule, "bags": bags, "pooling": pooling}
            for rule, bags in (("needle", 30), ("needle", 100), ("needle", 300), ("majority", 300))
            for pooling in COMPARED
        ),
        {"rule": "needle", "bags": 100, "pooling": "hopfield, 3 steps"},
    ],
    rows=curve_rows,
)
