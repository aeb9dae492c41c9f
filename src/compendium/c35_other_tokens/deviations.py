"""Deviation from the mean field against N: sites with letters, and whole words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from spinformer.core.checks import check_integer
from spinformer.core.random import Seed
from spinformer.core.statistics import fit_power, mean_estimate
from spinformer.dmft.letter_tokens import (
    generate_letters,
    letter_overlaps,
    letter_window,
    mean_letter_path,
    predicted_deviation,
    vocabulary,
)
from spinformer.dmft.letters import LetterNetwork
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import OUTPUT

_GAMMA = 220.0 / 3.0**0.5
_STEPS, _TRANSIENT = 8, 1000
SIZES = (3_000, 30_000, 300_000, 3_000_000, 30_000_000, 300_000_000)
# Slopes are fitted from this size on.
SMALLEST = 30_000
FAMILIES = {"first": range(10), "second": range(100, 110)}


def deviation_rows(
    letters: int,
    *,
    words: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
    runs: int = 1000,
    beta: float = 1.5,
) -> Rows:
    """One row for each N: root mean square of |m − m_∞| over texts and eight tokens.

    words: 0, every site is drawn on its own; else each token is one of so many words whose N sites
    were drawn beforehand. The network is `LetterNetwork.segmented(seed)`; the window is one of its
    mean field after 1,000 steps, drawn, too. `predicted` is the theory of first order in the noise.

    >>> row, = deviation_rows(3, words=0, seed=0, sizes=[3000], runs=50)
    >>> 0.8 < row["deviation"] / row["predicted"] < 1.25
    True
    """
    words = check_integer("words", words, low=0)
    sites = LetterNetwork.segmented(seed, letters=letters)
    rows = []
    for size in sizes:
        network, drawn = sites, size
        if words:
            network, drawn = vocabulary(sites, size, words=words, seed=seed + 1), 1
        rows.append({"size": size, **_deviation(network, drawn, beta=beta, runs=runs, seed=seed)})
    return rows


def _deviation(
    network: LetterNetwork, size: int, *, beta: float, runs: int, seed: Seed
) -> dict[str, float]:
    variance = float((network.semantic[OUTPUT] ** 2).mean())
    network, beta = network.with_parameters(gamma=_GAMMA / variance), beta / variance
    start = random_contexts(network, seed, count=1).select(0)
    _, context = trajectory(network, start, beta=beta, steps=0, transient=_TRANSIENT, threads=1)
    window, position = letter_window(network, context, beta=beta), context.position
    path = mean_letter_path(network, beta, window=window, steps=_STEPS, position=position)
    texts = generate_letters(
        network, size, beta=beta, window=window, steps=_STEPS, runs=runs, seed=seed,
        position=position,
    )  # fmt: skip
    off = (texts.overlaps() - letter_overlaps(network, path))[:, -_STEPS:]
    square = mean_estimate((off**2).sum(axis=2).mean(axis=1))
    rms = float(np.sqrt(square.value))
    predicted = predicted_deviation(network, beta, path=path, position=position)[-_STEPS:]
    return {
        "deviation": rms,
        "error": float(square.error) / (2.0 * rms),
        "predicted": float(np.sqrt((predicted**2).mean() / size)),
    }


def slopes(
    table: Mapping[str, np.ndarray], *, letters: int, words: int, seeds: Sequence[int]
) -> np.ndarray:
    """Exponent of the deviation against N of each network, from N = `SMALLEST` on: (seeds,).

    >>> rows = deviation_rows(2, words=0, seed=0, sizes=[30_000, 300_000, 3_000_000], runs=50)
    >>> table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    >>> whole = {**table, "letters": np.full(3, 2), "words": np.zeros(3), "seed": np.zeros(3)}
    >>> bool(abs(slopes(whole, letters=2, words=0, seeds=[0])[0] + 0.5) < 0.1)
    True
    """
    found = []
    for seed in seeds:
        keep = (table["letters"] == letters) & (table["words"] == words)
        keep &= (table["seed"] == seed) & (table["size"] >= SMALLEST)
        fit = fit_power(
            table["size"][keep], values=table["deviation"][keep], errors=table["error"][keep]
        )
        found.append(fit.slope.value)
    return np.array(found)


DEVIATIONS = Table(
    path=Path(__file__).parent / "deviations.csv",
    units=[
        {"letters": letters, "words": words, "seed": seed}
        for letters, words in ((2, 0), (3, 0), (4, 0), (8, 0), (2, 64), (2, 256), (8, 64))
        for seeds in FAMILIES.values()
        for seed in seeds
    ],
    rows=deviation_rows,
)
