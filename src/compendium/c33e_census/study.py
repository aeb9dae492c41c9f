"""What a network does over a range of inverse temperatures, of many networks, and what predicts it.

1. First look: 3,000 steps, then a period of at most 256 steps in 512. Most orbits have one.
2. Second look at the others: `find_attractors` after 8,000 steps more.
3. Third look at what is neither periodic nor chaotic then: the same after 30,000 steps more.
4. Replicas of the chaotic orbits, moved apart by 1e-10, are followed for 40,000 steps. One has
   escaped when its growth stays below a third of the exponent up to the end. Where at least half
   have, the label is transient chaos.

An orbit is *driven* if all contexts at its β end on one orbit whose period divides that of the
clock. The onset is the first β where this fails.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import entropy, rankdata

from bookmaker.tables import Rows, Table, stored
from compendium.common.gauge import canonical_code
from compendium.common.networks import draw_networks
from compendium.common.rows import parameter_product
from spinformer.core.random import Seed
from spinformer.dmft.attractors import Regime, find_attractors, find_period
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lifetimes import detect_escapes
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.regimes import classify_regimes
from spinformer.dmft.settling import perturbed_replicas

Columns = dict[str, np.ndarray]
# All numbers of steps are multiples of the longest clock, 8, so that orbits stay in phase.
_FIRST = 3000
_SECOND = 8000
_THIRD = 30_000
_LONGEST = 256
_EVEN = 48
_FINE = 16
_CONTEXTS = 8
_REPLICAS = 64
_STRETCH = 500
# Orbits of different contexts closer than this are one: just past an onset they are 30 times as
# far apart, and just before it slow ones have come as near.
_ONE = 1e-3


def _looks(network: Network, starts: Context, betas: np.ndarray) -> Columns:
    """The first three looks: labels of every context at every β, (n, contexts), and the ends."""
    shape = len(betas), len(starts.attention)
    beta = np.repeat(betas, shape[1])
    flat = Context(np.tile(starts.attention, (len(betas), 1, 1)), starts.position)
    ensemble = Ensemble(network, flat, beta=beta, threads=1)
    ensemble.advance(_FIRST)
    orbits = ensemble.record(2 * _LONGEST)
    period = np.array([find_period(orbit, longest=_LONGEST) for orbit in orbits])
    state = ensemble.state()
    ends = state.attention.copy()
    regime = np.where(period > 0, Regime.PERIODIC, Regime.UNDECIDED)
    exponent = np.full(period.shape, np.nan)
    for wait in (_SECOND, _THIRD):
        rest = np.flatnonzero(~np.isin(regime, (Regime.PERIODIC, Regime.CHAOTIC)))
        if len(rest):
            left = Context(ends[rest], state.position)
            reached = classify_regimes(
                network,
                left,
                beta=beta[rest],
                transient=wait,
                kept=8000,
                exponent_steps=4004,
                threads=1,
            )
            regime[rest] = reached.regime
            period[rest] = reached.period
            exponent[rest] = reached.exponents.value[:, 0]
            ends[rest] = reached.context.attention
    clock = (period > 0) & (network.positions % np.maximum(period, 1) == 0)
    ends = ends.reshape(*shape, *ends.shape[1:])
    one = np.abs(ends - ends[:, :1]).max(axis=(1, 2, 3)) < _ONE
    return {
        "betas": betas,
        "driven": clock.reshape(shape).all(axis=1) & one,
        "ends": ends,
        "regime": regime.reshape(shape),
        "period": period.reshape(shape),
        "exponent": exponent.reshape(shape),
    }


def sweep(
    network: Network, seed: Seed, *, even: int = _EVEN, fine: int = _FINE, contexts: int = _CONTEXTS
) -> Columns:
    """The protocol for one network; `seed` draws the contexts and moves the replicas apart.

    "betas", "driven": (n,), the even values, then the fine ones. "regime", "period", "exponent":
    (n, contexts). "ends": (n, contexts, T, P), attention in the end.
    """
    starts = random_contexts(network, seed, count=contexts)
    top = 3.0 * float(np.sqrt(network.segments / network.features))
    betas = top * np.arange(1, even + 1) / even
    parts = [_looks(network, starts, betas)]
    lost = betas[~parts[0]["driven"]]
    if fine and len(lost):
        near = lost[0] - betas[0] + 2.0 * betas[0] * np.arange(1, fine + 1) / (fine + 1)
        parts.append(_looks(network, starts, near))
    swept = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    chaotic = swept["regime"] == Regime.CHAOTIC
    ended = chaos_ends(network, swept, position=starts.position, seed=seed)
    swept["regime"][chaotic & ended[:, None]] = Regime.TRANSIENT_CHAOS
    return swept


def chaos_ends(
    network: Network, swept: Columns, *, position: int, seed: Seed, horizon: int = 40_000
) -> np.ndarray:
    """At which β, (n,), at least half of the replicas of chaotic ends of a `sweep` calm down."""
    chaotic = swept["regime"] == Regime.CHAOTIC
    ended = np.full(len(swept["betas"]), False)
    rows = np.flatnonzero(chaotic.any(axis=1))
    if len(rows):
        share = max(1, _REPLICAS // len(rows))
        at = np.repeat(rows, share)
        lane = np.concatenate([np.resize(np.flatnonzero(chaotic[row]), share) for row in rows])
        zero = Context(np.zeros((network.context, network.features)), 0)
        noise = perturbed_replicas(zero, count=len(at), seed=seed).attention
        moved = Context(swept["ends"][at, lane] + noise, position)
        stretches = horizon // _STRETCH
        rates = lyapunov_spectrum(
            network,
            moved,
            beta=swept["betas"][at],
            steps=stretches * _STRETCH,
            batches=stretches,
            count=1,
            threads=1,
        )
        # Each against a third of its own exponent.
        excess = rates.growth[..., 0].T - swept["exponent"][at, lane] / 3.0
        escapes = detect_escapes(excess, threshold=0.0)
        ended[rows] = (escapes.escaped & ~escapes.returned).reshape(-1, share).mean(axis=1) >= 0.5
    return ended


def network_row(
    network: Network, seed: Seed, *, even: int = _EVEN, fine: int = _FINE, contexts: int = _CONTEXTS
) -> dict[str, Any]:
    """One network's row: its code, what the closed form predicts, what the sweep found.

    Shares are over the even β; what is `seen` counts all. `measured`: 0 if the driven cycle lasts.
    """
    swept = sweep(network, seed, even=even, fine=fine, contexts=contexts)
    known = onset(network)
    regime = swept["regime"]
    regular = regime[:even]
    driven = swept["driven"][:even, None] & (regular == Regime.PERIODIC)

    def share(kind: Regime) -> float:
        return float((regular == kind).mean())

    def seen(kind: Regime) -> int:
        return int((regime == kind).any(axis=1).sum())

    return {
        "code": f"x{canonical_code(network)}",
        "angle": float(np.abs(np.angle(known.mu[0])) / np.pi),
        "predicted": known.critical_beta,
        "measured": min(swept["betas"][~swept["driven"]].tolist(), default=0.0),
        "driven": float(driven.mean()),
        "periodic": float(((regular == Regime.PERIODIC) & ~driven).mean()),
        "quasi": share(Regime.QUASI_PERIODIC),
        "chaotic": share(Regime.CHAOTIC),
        "transient": share(Regime.TRANSIENT_CHAOS),
        "undecided": share(Regime.UNDECIDED),
        "seen_quasi": seen(Regime.QUASI_PERIODIC),
        "seen_chaos": seen(Regime.CHAOTIC),
        "seen_transient": seen(Regime.TRANSIENT_CHAOS),
        "exponent": max(swept["exponent"][regime == Regime.CHAOTIC].tolist(), default=0.0),
        "periods": len(set(swept["period"][regime == Regime.PERIODIC].tolist())),
    }


_OURS = {"features": 3, "segments": 3, "context": 4}
_CELLS = ((0, 0.02, 50), (1, 0.02, 24), (0, 0.002, 10), (0, 0.1, 10), (0, 0.3, 10))


@stored(
    "document_size",
    [
        {"family": family} | _OURS | {"epsilon": epsilon, "chunk": chunk}
        for family, epsilon, chunks in _CELLS
        for chunk in range(chunks)
    ],
    seconds=1.0,
)
def document_size_table(
    *,
    family: int,
    features: int,
    segments: int,
    context: int,
    epsilon: float,
    chunk: int,
    size: int = 10,
) -> Rows:
    """The rows of `size` networks of one cell, `network_row` of each."""
    drawn = draw_networks(
        family=family,
        features=features,
        segments=segments,
        context=context,
        epsilon=epsilon,
        count=size * (chunk + 1),
    )
    chosen = list(drawn.items())[size * chunk :]
    return [{"seed": seed} | network_row(network, seed) for seed, network in chosen]


# Every tenth network of the first family.
@stored("longer", parameter_product(family=(0,), number=range(0, 500, 10)), seconds=0.1)
def longer_table(number: int, *, family: int) -> Rows:
    """How many of 64 random systems keep their label, with the steps and rules of chapter 33."""
    drawn = draw_networks(
        family=family, features=3, segments=3, context=4, epsilon=0.02, count=number + 1
    )
    seed, network = list(drawn.items())[number]
    swept = sweep(network, seed)
    early = swept["regime"][:_EVEN]
    picked = np.random.default_rng(seed).permutation(early.size)[:64]
    rows, lanes = np.unravel_index(picked, early.shape)
    where = random_contexts(network, seed, count=_CONTEXTS).select(lanes)
    beta = swept["betas"][rows]
    late = find_attractors(network, where, beta=beta, exponents=1, bins=1, threads=1).regime
    return [{"seed": seed, "systems": 64, "stayed": int((early[rows, lanes] == late).sum())}]


# A regime that fills a narrow window of β is missed by a coarse grid.
@stored(
    "finer", parameter_product(family=(1500,), values=(64, 128, 256, 512, 1024, 2048)), seconds=15.0
)
def finer_table(values: int, *, family: int, networks: int = 100) -> Rows:
    """How many of the same networks show a regime where more values of β are tried.

    Three quarters of the values are even ones and one quarter lies around the onset, as in the
    other tables, whose grid is the first.
    """
    drawn = draw_networks(
        family=family, features=3, segments=3, context=4, epsilon=0.02, count=networks
    )
    rows = [
        network_row(network, seed, even=3 * values // 4, fine=values // 4)
        for seed, network in drawn.items()
    ]
    chaos = np.array([row["seen_chaos"] > 0 for row in rows])
    quasi = np.array([row["seen_quasi"] > 0 for row in rows])
    return [
        {
            "networks": networks,
            "all": int((chaos & quasi).sum()),
            "chaos": int(chaos.sum()),
            "quasi": int(quasi.sum()),
        }
    ]


# A family for each cell: one stream of signs would give cells of equal P and L the same weights.
_SIZES = [
    {"family": 2000 + number} | size | {"epsilon": 0.02}
    for number, size in enumerate(
        parameter_product(features=(2, 3, 4, 6), segments=(3, 5, 16), context=(2, 4, 8))
    )
    if size != _OURS
]
OTHER_SIZES = Table(
    path=Path(__file__).with_name("other_sizes.csv"),
    units=[size | {"chunk": chunk} for size in _SIZES for chunk in range(3)],
    rows=partial(document_size_table.rows, size=3),
    seconds=0.3,
)


def select(table: Columns, **values: float) -> Columns:
    """The rows of a table whose columns have these values."""
    keep = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return {name: column[keep] for name, column in table.items()}


def entropy_of_labels(table: Columns) -> np.ndarray:
    """Entropy in bits of each network's labels over even β and contexts, (n,)."""
    kinds = "driven", "periodic", "quasi", "chaotic", "transient", "undecided"
    return np.asarray(entropy([table[kind] for kind in kinds], base=2))


def scores(table: Columns) -> dict[str, np.ndarray]:
    """The predictors of chaos, (n,): β_top/β_c, whether the first eigenvalue is complex, both."""
    reach = 3.0 * np.sqrt(table["segments"] / table["features"]) / table["predicted"]
    turns = ((table["angle"] > 1e-9) & (table["angle"] < 1.0 - 1e-9)).astype(float)
    return {"both": reach * turns, "onset": reach, "rotation": turns}


def _areas(ranks: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Chance that a network with the label scores higher than one without, ties as one half."""
    positive = labels.sum(axis=-1)
    excess = (ranks * labels).sum(axis=-1) - positive * (positive + 1) / 2.0
    with np.errstate(invalid="ignore"):
        return np.asarray(excess / (positive * (labels.shape[-1] - positive)))


class Judged(NamedTuple):
    """A predictor on networks held out: threshold set on the others, counts, area with interval.

    confusion: (2, 2), rows the truth (without, with the label).
    """

    threshold: float
    confusion: np.ndarray
    area: float
    low: float
    high: float


def judge(score: np.ndarray, *, label: np.ndarray, draws: int = 2000) -> Judged:
    """Threshold of the largest sum of both rates on even networks, judgment on the odd ones."""
    seen = score[::2]
    truth = label[::2]
    options = np.unique(seen)
    gains = [(seen[truth] >= cut).mean() + (seen[~truth] < cut).mean() for cut in options]
    threshold = float(options[int(np.argmax(gains))])
    held = score[1::2]
    truth = label[1::2]
    confusion = np.bincount(2 * truth + (held >= threshold), minlength=4).reshape(2, 2)
    picks = np.random.default_rng(0).integers(len(truth), size=(draws, len(truth)))
    areas = _areas(rankdata(held[picks], axis=1), truth[picks])
    low, high = np.nanpercentile(areas, [2.5, 97.5])
    return Judged(
        threshold=threshold,
        confusion=confusion,
        area=float(_areas(rankdata(held), truth)),
        low=float(low),
        high=float(high),
    )
