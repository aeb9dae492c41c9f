"""The stored comparison: rates chosen on validation data, then accuracies on test data.

Also its margins and the table of settings of A17: how far a signal is behind the better of the two
bars, in points of accuracy, with Student's interval over ten splits.

Predictions, written before the tables were made:

1. "raw" falls without bound: keys grow, tokens become alike, the features end below random ones.
2. "density" cannot let keys grow, but queries and keys shrink to one point, where its floor
   −(d/2) log(β/2π) lies; not above random features, so not above PCA.
3. "raw local" and "density local" change only queries and keys: close to random features.
4. "density held" has no such floor to fall to, yet the states from which its queries come still
   move; between random features and PCA.
5. "contrast" ends above random features and below PCA.
6. "supervised" ends above both, so the bar can be passed.

Of these, 4 to 6 failed, and 1 and 3 in part: at its best rate "raw" is level with random features,
"density local" above them. "supervised" passes with LONGER updates, which were added afterwards.

Energies alone are useful if at least one of their five signals is above random features and above
PCA in one and the same of the four read-outs, by paired intervals over ten seeds.

After LONGER updates, at the same rates, "raw" and "density local" were predicted to stay below
the bar in every read-out, with a margin that falls for "raw" and changes by less than 3 points
for "density local": so it came out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, Table, stored
from compendium.c16_energies_as_signal.network import Weights, initial_weights, run
from compendium.c16_energies_as_signal.readouts import (
    PENALTIES,
    POOLINGS,
    READOUTS,
    Parts,
    all_features,
    autoencoder_features,
    effective_rank,
    pixel_features,
    probe_accuracies,
)
from compendium.c16_energies_as_signal.signals import ALONE, SIGNALS, mean_energy
from compendium.c16_energies_as_signal.training import Digits, split_digits, train_copies
from compendium.common.rows import array_of, groups, mean_rows, rows_of
from spinformer.core.statistics import mean_interval

FOLDER = Path(__file__).parent
STEPS, LONGER = 150, 600
RATES = (1e-4, 1e-3, 3e-3, 1e-2)
DEPTHS = (3, 4)  # the states that the energies of the last layer read, and the last ones
CONTROLS = ("pca", "pixels", "autoencoder")
SOURCES = ("random", *CONTROLS, *SIGNALS)
BARS = ("random", "pca")
NEAREST = ("raw", "density local")
COLUMNS = tuple(" ".join(readout) for readout in READOUTS)
TUNING_SEEDS = (1000, 1001)
SEEDS = 10


@torch.no_grad()
def condition(weights: Weights, *, data: Digits) -> dict[str, np.ndarray]:
    """How far each copy has collapsed, on its test images: arrays (C,) by name.

    energy, density: the means that "raw" and "density" lower; query, key: mean norms in the
    heads; tokens: mean cosine between different tokens of an image, after the last layer.
    """
    found = run(weights, data["test"][0])
    unit = torch.nn.functional.normalize(found.states[-1], dim=-1)
    sites = unit.shape[-2]
    alike = ((unit @ unit.mT).sum((-1, -2)) - sites) / (sites * (sites - 1))
    norms = {
        name: torch.stack([heads.norm(dim=-1).mean((1, 2, 3)) for heads in layers]).mean(0)
        for name, layers in (("query", found.queries), ("key", found.keys))
    }
    means = {
        "energy": mean_energy(found).mean(-1),
        "density": mean_energy(found, kind="density").mean(-1),
        **norms,
        "tokens": alike.mean(-1),
    }
    return {name: values.numpy() for name, values in means.items()}


def measure(
    source: str, *, seeds: Sequence[int], rate: float, steps: int
) -> tuple[dict[tuple[str, int], Parts], Parts, dict[str, np.ndarray]]:
    """Features of every copy by (pooling, depth), its labels, and its rank and `condition`.

    A control has one set of features, whatever the pooling and depth, and the condition NaN;
    "random" is the network as it starts.
    """
    data = split_digits(seeds)
    labels = {part: values.numpy() for part, (_, values) in data.items()}
    if source in CONTROLS:
        if source == "autoencoder":
            kept = autoencoder_features(data, seeds=seeds, rate=rate, steps=steps)
        else:
            kept = pixel_features(data, components=source == "pca")
        features = dict.fromkeys(product(POOLINGS, DEPTHS), kept)
        unknown = np.full(len(seeds), np.nan)
        state = dict.fromkeys(("energy", "density", "query", "key", "tokens"), unknown)
    else:
        if source == "random":
            weights = initial_weights(seeds)
        else:
            weights = train_copies(source, seeds=seeds, rate=rate, data=data, steps=steps)[steps]
        features = all_features(weights, data=data, depths=DEPTHS)
        state = condition(weights, data=data)
    ranks = [effective_rank(copy) for copy in features["mean", DEPTHS[-1]]["test"]]
    return features, labels, {"rank": np.array(ranks), **state}


@stored(FOLDER / "rates.csv", units=[{"source": source} for source in SOURCES])
def RATE_TABLE(source: str) -> Rows:
    """One row a rate and read-out: the best depth and penalty, by mean validation accuracy."""
    depths = DEPTHS[-1:] if source in CONTROLS else DEPTHS
    rows: Rows = []
    for rate in RATES if source in (*SIGNALS, "autoencoder") else RATES[:1]:
        features, labels, state = measure(source, seeds=TUNING_SEEDS, rate=rate, steps=STEPS)
        means = {name: float(values.mean()) for name, values in state.items()}
        for pooling, using in READOUTS:
            tried: dict[str, Any] = {"labels": labels, "using": using, "on": "validation"}
            found = {
                (depth, penalty): float(
                    np.mean(probe_accuracies(features[pooling, depth], penalty=penalty, **tried))
                )
                for depth, penalty in product(depths, PENALTIES)
            }
            depth, penalty = max(found, key=lambda one: found[one])
            about = {"rate": rate, "pooling": pooling, "using": using, "depth": depth}
            about |= {"penalty": penalty, "accuracy": found[depth, penalty]}
            rows.append({**about, **means})
    return rows


def chosen(source: str) -> tuple[float, dict[tuple[str, str], tuple[int, float]]]:
    """The rate of a source, and the depth and penalty of every read-out, from the table of rates.

    The rate is the one with the largest accuracy on validation data, averaged over read-outs.
    """
    tables = groups(RATE_TABLE.read(), "source", "rate")
    mine = {rate: table for (one, rate), table in tables if one == source}
    rate = max(mine, key=lambda rate: mine[rate]["accuracy"].mean())
    columns = (mine[rate][name].tolist() for name in ("pooling", "using", "depth", "penalty"))
    return rate, {
        (pooling, using): (depth, penalty)
        for pooling, using, depth, penalty in zip(*columns, strict=True)
    }


def score_rows(source: str, *, seeds: Sequence[int], steps: int = STEPS) -> Rows:
    """One row a seed: test accuracies of the four read-outs, rank and state of the copy.

    At the rate that is best for STEPS.
    """
    rate, tuned = chosen(source)
    features, labels, state = measure(source, seeds=seeds, rate=rate, steps=steps)
    found = {
        f"{pooling} {using}": probe_accuracies(
            features[pooling, depth], labels=labels, using=using, penalty=penalty, on="test"
        )
        for (pooling, using), (depth, penalty) in tuned.items()
    }
    return rows_of(seed=seeds, **found, **state)


def _table(name: str, *sources: str, blocks: Sequence[int], steps: int = STEPS) -> Table:
    """A seed decides split, first weights and batches; a block has ten."""

    def rows(source: str, block: int) -> Rows:
        return score_rows(source, seeds=range(SEEDS * block, SEEDS * (block + 1)), steps=steps)

    units = [{"source": source, "block": block} for block in blocks for source in sources]
    return Table(path=FOLDER / f"{name}.csv", units=units, rows=rows)


# The full comparison; the energies with the largest margins again, with other seeds; can the bar be
# passed at all? The labels with more updates, and two energies with as many.
SCORE_TABLE = _table("scores", *SOURCES, blocks=(0,))
AGAIN_TABLE = _table("again", *BARS, *NEAREST, blocks=(1, 2))
LONGER_TABLE = _table("longer", "supervised", *NEAREST, blocks=(0, 1, 2), steps=LONGER)


def accuracies(source: str, *, column: str, block: int = 0, updates: int = STEPS) -> np.ndarray:
    """Test accuracies of a source in one read-out, in percent, in the order of the seeds.

    Block 0 is the full comparison, blocks 1 and 2 its repetitions with ten other seeds each;
    after LONGER `updates` there are "supervised", "raw" and "density local".
    """
    again = AGAIN_TABLE if block else SCORE_TABLE
    table = (LONGER_TABLE if updates == LONGER else again).read()
    return 100 * array_of(table, column, "seed", source=source, block=block)


def margin(source: str, *, column: str, block: int = 0, updates: int = STEPS) -> float:
    """Points by which `source` is surely above both random features and PCA (below 0: not).

    The smaller of the two lower ends of Student's intervals of differences in pairs: positive
    exactly if both intervals lie above 0.
    """
    mine = accuracies(source, column=column, block=block, updates=updates)
    bars = [accuracies(bar, column=column, block=block) for bar in BARS]
    return min(mean_interval(mine - bar)[0] for bar in bars)


SPLITS = ("first ten", "other ten", "third ten")


@stored(
    FOLDER / "settings_A17.csv",
    units=[
        {"signal": signal, "updates": updates, "splits": splits, "readout": readout}
        for updates, splits, signals in (
            (STEPS, "first ten", (*ALONE, "supervised")),
            (STEPS, "other ten", NEAREST),
            (STEPS, "third ten", NEAREST),
            *((LONGER, splits, (*NEAREST, "supervised")) for splits in SPLITS),
        )
        for signal in signals
        for readout in COLUMNS
    ],
    seconds=0.1,
)
def SETTINGS(signal: str, updates: int, splits: str, readout: str) -> Rows:
    """One signal, read out in one way, over the first, another or a third ten splits."""
    block = SPLITS.index(splits)
    mine = accuracies(signal, column=readout, block=block, updates=updates)
    bars = [accuracies(bar, column=readout, block=block) - mine for bar in BARS]
    return mean_rows(max(bars, key=np.mean))
