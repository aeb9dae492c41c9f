"""The tables of the census, their units of work, and the networks in them."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c33e_census.protocol import CONTEXTS, EVEN, highest_beta, network_row, sweep
from compendium.common.networks import draw_networks
from spinformer.core.checks import check_integer
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.state import Context

_FOLDER = Path(__file__).parent
_CHUNK = 10


def census_rows(
    *,
    family: int,
    features: int,
    segments: int,
    context: int,
    epsilon: float,
    chunk: int,
    size: int = _CHUNK,
) -> Rows:
    """The rows of `size` networks of one cell, `network_row` of each.

    >>> rows = census_rows(
    ...     family=0, features=1, segments=3, context=2, epsilon=0.02, chunk=0
    ... )
    >>> len(rows), len({row["code"] for row in rows})
    (10, 10)
    """
    found = draw_networks(
        family=family,
        features=features,
        segments=segments,
        context=context,
        epsilon=epsilon,
        count=size * (chunk + 1),
    )
    chosen = list(found.items())[size * chunk :]
    return [{"seed": seed, **network_row(network, seed)} for seed, network in chosen]


def longer_row(number: int, *, family: int, systems: int = 64) -> Rows:
    """Some systems of one network of the document's size, after ten times the transient.

    Draws `systems` of the even β and contexts at random, labels them after 100,000 steps with the
    thresholds of chapter 33, and counts which label of the census became which; `stayed`: none.

    >>> row, = longer_row(0, family=0, systems=4)
    >>> row["systems"]
    4
    """
    found = draw_networks(
        family=family, features=3, segments=3, context=4, epsilon=0.02, count=number + 1
    )
    seed, network = list(found.items())[number]
    early = sweep(network, seed).regime[:EVEN]
    rng = np.random.default_rng(seed)
    picked = rng.permutation(early.size)[: check_integer("systems", systems, low=1, high=384)]
    rows, lanes = np.unravel_index(picked, early.shape)
    starts = random_contexts(network, seed, count=CONTEXTS)
    late = find_attractors(
        network,
        Context(starts.attention[lanes], starts.position),
        beta=highest_beta(network) * (rows + 1) / EVEN,
        exponents=1,
        bins=1,
        threads=1,
    ).regime
    before = early[rows, lanes]
    counts = {
        f"{word}_to_{other}": int(((before == one) & (late == two)).sum())
        for word, one in _WORDS.items()
        for other, two in _WORDS.items()
        if one != two
    }
    return [
        {
            "seed": seed,
            "systems": len(picked),
            "stayed": int((before == late).sum()),
            **{word: int((before == regime).sum()) for word, regime in _WORDS.items()},
            **counts,
        }
    ]


_WORDS = {
    "periodic": Regime.PERIODIC,
    "quasi": Regime.QUASI_PERIODIC,
    "chaotic": Regime.CHAOTIC,
    "unclear": Regime.UNDECIDED,
    "ended": Regime.TRANSIENT_CHAOS,
}


def _chunks(numbers: range, **sizes: float) -> list[dict[str, float]]:
    return [{**sizes, "chunk": chunk} for chunk in numbers]


# Networks in each cell of the crossed design, made three at a time.
EACH = 9
_THREE = 3
_OURS = {"features": 3, "segments": 3, "context": 4}
DOCUMENT_SIZE = Table(
    path=_FOLDER / "document_size.csv",
    units=[
        *_chunks(range(50), family=0, **_OURS, epsilon=0.02),
        *_chunks(range(24), family=1, **_OURS, epsilon=0.02),
        *(
            unit
            for epsilon in (0.002, 0.1, 0.3)
            for unit in _chunks(range(10), family=0, **_OURS, epsilon=epsilon)
        ),
    ],
    rows=census_rows,
)
# A family for each cell: one stream of signs would give cells of equal P and L the same weights.
OTHER_SIZES = Table(
    path=_FOLDER / "other_sizes.csv",
    units=[
        {
            "family": 2000 + number,
            "features": features,
            "segments": segments,
            "context": context,
            "epsilon": 0.02,
            "chunk": chunk,
        }
        for number, (features, segments, context) in enumerate(
            product((2, 3, 4, 6), (3, 5, 16), (2, 4, 8))
        )
        if (features, segments, context) != (3, 3, 4)
        for chunk in range(EACH // _THREE)
    ],
    rows=partial(census_rows, size=_THREE),
)
# Every tenth network of the first family.
LONGER = Table(
    path=_FOLDER / "longer.csv",
    units=[{"family": 0, "number": number} for number in range(0, 500, 10)],
    rows=longer_row,
)
