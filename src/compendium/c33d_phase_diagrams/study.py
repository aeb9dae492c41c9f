"""Cells of the phase diagrams, their tables, what these say in a few numbers, longer windows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c33d_phase_diagrams.attractors import Fingerprints, identify, settle
from compendium.common.phase_transitions import protocol_start
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import (
    SHORT_STRETCHES,
    Attractors,
    Regime,
    Thresholds,
    find_attractors,
)
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset

_FOLDER = Path(__file__).parent
# Steps dropped and kept in every cell, and of the exponents (of the document's context, and of
# each random one); steps dropped and kept at every β of a continuation.
TRANSIENT, KEPT = 20_000, 4_000
EXPONENT_STEPS, RANDOM_EXPONENT_STEPS = 4_000, 2_000
RANDOM = 8
FOLLOW_TRANSIENT, FOLLOW_KEPT = 2_000, 2_000
# Random cells that are run ten times longer, and how many of them are a unit.
_CONTROL, _CHUNK = 800, 400
# The regimes that a statement about attractors can name.
NAMED = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)


@record
class Plane:
    """A plane of parameters: β across, and `name` ("gamma" or "epsilon") upwards.

    betas, values: both ends and how many, (low, high, count). coarse: random contexts and
    hysteresis are measured in each so-manieth row and column only.
    """

    name: str
    betas: tuple[float, float, int]
    values: tuple[float, float, int]
    coarse: int = 1

    @property
    def across(self) -> np.ndarray:
        """The values of β."""
        return np.linspace(*self.betas)

    @property
    def upwards(self) -> np.ndarray:
        """The values of γ or ε."""
        return np.linspace(*self.values)


PLANES = {
    "gamma": Plane(name="gamma", betas=(1.1, 1.7, 200), values=(0.0, 250.0, 200)),
    "epsilon": Plane(name="epsilon", betas=(1.1, 1.7, 200), values=(0.0, 0.3, 200), coarse=4),
}


@cache
def start_of_planes() -> tuple[Network, Context, Context]:
    """The document's network, its initial context, and the random ones, the same in every cell."""
    network = Network.document()
    start = protocol_start(network, steps=100_000)
    drawn = random_contexts(network, 0, count=RANDOM)
    # All systems of a batch share the position.
    return network, start, Context(drawn.attention, start.position)


@record
class Cells:
    """What cells (n,) settle on.

    regime, period, exponent: from the document's context, after `TRANSIENT` steps. attractors: how
    many of them 8 random contexts end on, as far as they are resolved. regimes: which of the three
    regimes occur among these contexts, 1 periodic + 2 quasi-periodic + 4 chaotic.
    """

    regime: np.ndarray
    period: np.ndarray
    exponent: Estimate
    attractors: np.ndarray
    regimes: np.ndarray


def cells(
    beta: np.ndarray, *, transient: int | None = None, random: int = RANDOM, **others: Any
) -> Cells:
    """Measure cells at β (n,) and γ, ε (n,), the document's where they are not given.

    random: how many of the 8 random contexts are used; 0 leaves `attractors` and `regimes` zero.
    """
    network, start, drawn = start_of_planes()
    where: dict[str, Any] = {"beta": beta, **others}
    dropped = TRANSIENT if transient is None else transient
    found = find_attractors(
        network,
        start,
        transient=dropped,
        kept=KEPT,
        exponents=1,
        exponent_steps=EXPONENT_STEPS,
        bins=1,
        thresholds=SHORT_STRETCHES,
        **where,
    )
    attractors, regimes = np.zeros((2, len(beta)), dtype=int)
    if random:
        # One batch: the contexts of a cell lie side by side.
        many: dict[str, Any] = {name: np.repeat(value, random) for name, value in where.items()}
        crowd, prints, rate = settle(
            network,
            Context(np.tile(drawn.attention[:random], (len(beta), 1, 1)), drawn.position),
            transient=dropped,
            kept=KEPT,
            exponent_steps=RANDOM_EXPONENT_STEPS,
            **many,
        )
        for cell in range(len(beta)):
            mine = np.arange(cell * random, (cell + 1) * random)
            rates = Estimate(value=rate.value[mine], error=rate.error[mine])
            numbers = identify(prints.select(mine), exponent=rates)
            attractors[cell] = max(1, numbers.max() + 1)
            for bit, regime in enumerate(NAMED):
                regimes[cell] += (crowd.regime[mine] == regime).any() << bit
    return Cells(
        regime=found.regime,
        period=found.period,
        exponent=Estimate(value=found.exponents.value[:, 0], error=found.exponents.error[:, 0]),
        attractors=attractors,
        regimes=regimes,
    )


def _at(name: str, values: np.ndarray) -> dict[str, Any]:
    """γ or ε, whichever `name` says, as an argument."""
    return {name: values}


def _grid(name: str, betas: np.ndarray, values: np.ndarray, *, random: int) -> Cells:
    """`cells` at all pairs of β and γ or ε, row by row of the latter."""
    upwards: dict[str, Any] = {name: np.repeat(values, len(betas))}
    return cells(np.tile(betas, len(values)), random=random, **upwards)


def hysteresis(
    betas: np.ndarray, *, transient: int = FOLLOW_TRANSIENT, **values: Any
) -> np.ndarray:
    """Where the way up in β and the way down end on different attractors: booleans (rows, n).

    betas: (n,) ascending; values: γ, ε or both, (rows,). Every β starts where the one before
    ended, the first from the document's context; the two ways are compared by fingerprints and
    exponents (`identify`), after `transient` steps at every β.
    """
    network, start, _ = start_of_planes()
    ways: list[list[tuple[Fingerprints, Estimate]]] = []
    for way in (betas, betas[::-1]):
        context, seen = start, []
        for beta in way.tolist():
            _, prints, rate = settle(
                network,
                context,
                beta=beta,
                transient=transient,
                surveyed=2,
                kept=FOLLOW_KEPT,
                exponent_steps=FOLLOW_KEPT,
                **values,
            )
            context = prints.context
            seen.append((prints, rate))
        ways.append(seen)
    columns = []
    for (up, rising), (down, falling) in zip(ways[0], ways[1][::-1], strict=True):
        both = Fingerprints(
            moments=np.stack([up.moments, down.moments], axis=1),
            error=np.stack([up.error, down.error], axis=1),
            context=up.context,
        )
        rates = np.stack([rising.value, falling.value], axis=1)
        errors = np.stack([rising.error, falling.error], axis=1)
        pairs = [
            identify(both.select(row), exponent=Estimate(value=rates[row], error=errors[row]))
            for row in range(len(rates))
        ]
        columns.append([one != other for one, other in pairs])
    return np.array(columns).T


def _letters(codes: np.ndarray) -> str:
    # Letters: a row of digits would be read as one large number.
    return "".join(chr(ord("a") + int(code)) for code in codes)


def plane_rows(name: str, *, first: int, count: int) -> Rows:
    """Rows `first` to `first + count` of a plane, as `read_plane` reads them."""
    plane = PLANES[name]
    values, betas = plane.upwards[first : first + count], plane.across
    chosen = np.flatnonzero((first + np.arange(len(values))) % plane.coarse == 0)
    some = betas[:: plane.coarse]
    found = _grid(name, betas, values, random=RANDOM if plane.coarse == 1 else 0)
    crowd = found if plane.coarse == 1 else _grid(name, some, values[chosen], random=RANDOM)
    coarse = {
        "attractors": crowd.attractors,
        "regimes": crowd.regimes,
        "hysteresis": hysteresis(some, **_at(name, values[chosen])),
    }
    texts = {
        layer: dict(
            zip(chosen.tolist(), map(_letters, codes.reshape(len(chosen), -1)), strict=True)
        )
        for layer, codes in coarse.items()
    }
    regime = found.regime.reshape(len(values), -1)
    thousandths = np.rint(1000.0 * found.exponent.value).astype(int).reshape(regime.shape)
    return [
        {
            "row": first + row,
            "value": float(values[row]),
            "regime": _letters(regime[row]),
            **{layer: text.get(row, "") for layer, text in texts.items()},
            "exponent": " ".join(map(str, thousandths[row])),
        }
        for row in range(len(values))
    ]


def _plane_table(name: str, count: int) -> Table:
    units = [{"first": first, "count": count} for first in range(0, PLANES[name].values[2], count)]
    return Table(path=_FOLDER / f"{name}.csv", units=units, rows=partial(plane_rows, name))


GAMMA, EPSILON = _plane_table("gamma", 50), _plane_table("epsilon", 100)


def read_plane(table: Table) -> dict[str, np.ndarray]:
    """The layers of a plane, arrays (rows, β): regime, attractors, regimes, hysteresis, exponent.

    Attractors, regimes and hysteresis have `Plane.coarse` times fewer rows and columns.
    """
    stored = table.read()
    layers = {
        name: np.array([[ord(code) - ord("a") for code in line] for line in stored[name] if line])
        for name in ("regime", "attractors", "regimes", "hysteresis")
    }
    layers["exponent"] = np.array([line.split() for line in stored["exponent"]]).astype(int) / 1000
    return layers


def control_cells(name: str) -> tuple[np.ndarray, np.ndarray]:
    """β and γ or ε, (800,) each, of the random cells of a plane that are run ten times longer."""
    plane = PLANES[name]
    grid = plane.betas[2]
    chosen = np.sort(numpy_generator(1).choice(grid**2, size=_CONTROL, replace=False))
    rows, columns = np.divmod(chosen, grid)
    return plane.across[columns], plane.upwards[rows]


def control_rows(plane: str, chunk: int) -> Rows:
    """Cells of one chunk after ten times the transient."""
    betas, values = (part[chunk * _CHUNK : (chunk + 1) * _CHUNK] for part in control_cells(plane))
    found = cells(betas, transient=10 * TRANSIENT, **_at(plane, values))
    return [
        {
            "beta": float(betas[cell]),
            "value": float(values[cell]),
            "regime": int(found.regime[cell]),
            "period": int(found.period[cell]),
            "exponent": float(round(found.exponent.value[cell], 3)),
            "attractors": int(found.attractors[cell]),
            "regimes": int(found.regimes[cell]),
        }
        for cell in range(len(betas))
    ]


CONTROL = Table(
    path=_FOLDER / "control.csv",
    units=[
        {"plane": name, "chunk": chunk} for name in PLANES for chunk in range(_CONTROL // _CHUNK)
    ],
    rows=control_rows,
)


# Pieces of the plane of β and ε about the document's parameters, ends of both.
_PATCHES = {
    "near": ((1.22, 1.29), (0.0, 0.03)),
    "middle": ((1.2, 1.4), (0.0, 0.06)),
    "far": ((1.1, 1.7), (0.0, 0.12)),
}


def patch_rows(patch: str, *, finer: int, wait: int) -> Rows:
    """Score of quasi-periodic motion in a piece of the plane of β and ε, less one half.

    finer: cells for each one of the plane, in either direction. wait: steps dropped.
    """
    plane = PLANES["epsilon"]
    betas, values = (
        np.arange(low, high, (axis[1] - axis[0]) / finer)
        for (low, high), axis in zip(_PATCHES[patch], (plane.across, plane.upwards), strict=True)
    )
    found = cells(
        np.tile(betas, len(values)), transient=wait, random=0,
        **_at("epsilon", np.repeat(values, len(betas))),
    )  # fmt: skip
    regime = found.regime.reshape(len(values), -1)
    value = agreement(regime)[Regime.QUASI_PERIODIC] - 0.5
    reach = 1.96 * agreement_errors(regime, blocks=5)[Regime.QUASI_PERIODIC]
    ends = {"value": value, "low": value - reach, "high": value + reach}
    return [{**ends, "runs": regime.size}]


SETTINGS = Table(
    path=_FOLDER / "settings_C14.csv",
    units=[
        *(
            {"patch": "near", "finer": finer, "wait": wait}
            for finer in (1, 2, 4)
            for wait in (20_000, 100_000)
        ),
        *(
            {"patch": "middle", "finer": finer, "wait": wait}
            for finer in (1, 2)
            for wait in (20_000, 100_000)
        ),
        *({"patch": "far", "finer": finer, "wait": 20_000} for finer in (1, 2)),
    ],
    rows=patch_rows,
)


# ---- summaries


def agreement(regime: np.ndarray) -> dict[Regime, float]:
    """How much more often than by chance the neighbor of a cell has its label: 1 always, 0 never.

    regime: labels (n, m) of a plane. Of the four neighbors of all cells of one regime the share a
    has its label; p is the share of that regime in the plane; returned is (a − p)/(1 − p).
    """
    return {code: _score(counts.sum(axis=0)) for code, counts in _tallies(regime, 1).items()}


def agreement_errors(regime: np.ndarray, *, blocks: int = 10) -> dict[Regime, float]:
    """Standard errors of `agreement` by the jackknife over blocks × blocks pieces of the plane.

    Neighboring cells are not independent; pieces larger than the regions nearly are.
    """
    found = {}
    for code, counts in _tallies(regime, blocks).items():
        left_out = np.array([_score(counts.sum(axis=0) - piece) for piece in counts])
        found[code] = float(np.sqrt((len(counts) - 1.0) * left_out.var()))
    return found


def _tallies(regime: np.ndarray, blocks: int) -> dict[Regime, np.ndarray]:
    """(blocks², 4) for each regime in the plane: neighbors alike, neighbors, cells of it, cells."""
    rows, columns = (np.arange(n) * blocks // n for n in regime.shape)
    piece = (rows[:, None] * blocks + columns).ravel()
    near = np.full(regime.shape, 4.0)
    for edge in (near[0], near[-1], near[:, 0], near[:, -1]):
        edge -= 1.0
    found = {}
    for code in NAMED:
        mine = np.pad(regime == code, 1).astype(float)
        own = mine[1:-1, 1:-1]
        if 0.0 < own.mean() < 1.0:
            alike = mine[:-2, 1:-1] + mine[2:, 1:-1] + mine[1:-1, :-2] + mine[1:-1, 2:]
            layers = (alike * own, near * own, own, np.ones_like(own))
            tallies = [np.bincount(piece, one.ravel(), minlength=blocks**2) for one in layers]
            found[code] = np.stack(tallies, axis=1)
    return found


def _score(counts: np.ndarray) -> float:
    alike, neighbors, mine, cells = counts
    share = mine / cells
    return float((alike / neighbors - share) / (1.0 - share))


def mixed(regimes: np.ndarray) -> np.ndarray:
    """Where random contexts of one cell settle on more than one regime: booleans."""
    # All sums of two or three of 1, 2 and 4.
    return np.isin(regimes, (3, 5, 6, 7))


def control_changes(name: str, regime: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 2) of the control cells of a plane, their labels, and those ten times later.

    regime: the labels of the plane, as `read_plane` gives them.
    """
    stored, plane = CONTROL.read(), PLANES[name]
    betas, values = control_cells(name)
    rows = np.searchsorted(plane.upwards, values - 1e-9)
    columns = np.searchsorted(plane.across, betas - 1e-9)
    late = stored["regime"][stored["plane"] == name]
    return np.stack([betas, values], axis=1), regime[rows, columns], late


# ---- longer windows


def longer_network(bits: int, *, seed: Seed = 0) -> Network:
    """The document's features in a window of 2^bits tokens.

    Its two position bits stay the fastest ones of the clock; the signs of the slower bits are
    random, drawn with `seed`. γ and ε are the document's, and with 2 bits so is the network.
    """
    document = Network.document()
    # The code has its most significant bit first; what is drawn for 3 bits stays with more.
    drawn = numpy_generator(seed).choice((-1.0, 1.0), size=(8, 4, document.features))
    slower = np.moveaxis(drawn[: bits - 2][::-1], 0, -1)
    position = np.concatenate([slower, document.position], axis=-1)
    return replace(document, position=position, context=2**bits)


def scaled_thresholds(bits: int) -> Thresholds:
    """`SHORT_STRETCHES` for a clock of 2^bits positions: as many turns, not as many tokens."""
    longest, neutral = SHORT_STRETCHES.longest, SHORT_STRETCHES.neutral
    slower = 2**bits // 4
    return replace(SHORT_STRETCHES, longest=longest * slower, neutral=neutral / slower)


def longer_diagram(
    bits: int, *, betas: np.ndarray, seed: Seed = 0, turns: int = 5000, bins: int = 400
) -> Attractors:
    """Orbit diagram of `longer_network(bits)` over `betas` (n,), from one random context.

    `turns` turns of the clock are dropped, a fifth as many kept, and as many averaged for the
    leading exponent, which is in nats per token.
    """
    network = longer_network(bits, seed=seed)
    steps = turns * network.positions
    return find_attractors(
        network,
        random_contexts(network, seed, count=1).select(0),
        beta=betas,
        transient=steps,
        kept=steps // 5,
        exponent_steps=steps // 5,
        exponents=1,
        bins=bins,
        thresholds=scaled_thresholds(bits),
    )


def first_unrest(bits: int, *, low: float, high: float, seed: Seed = 0, count: int = 64) -> float:
    """Smallest of `count` even steps of β from `low` to `high` where the driven cycle is gone.

    The cycle of 2^bits tokens is gone where the orbit has not returned to 1e-5 after one turn of
    the clock, 20,000 turns after a start beside it.
    """
    network = longer_network(bits, seed=seed)
    turn, betas = network.positions, np.linspace(low, high, count)
    ensemble = Ensemble(network, random_contexts(network, seed, count=1).select(0), beta=betas)
    ensemble.advance(20_000 * turn)
    orbit = ensemble.record(2 * turn)
    gone = np.abs(orbit[:, turn:] - orbit[:, :turn]).max(axis=(1, 2)) > 1e-5
    return float(betas[gone.argmax()]) if gone.any() else float("inf")


def longer_rows(bits: int, *, seed: int) -> Rows:
    """Onset, regimes and exponents of one network, as the one row of its unit.

    Regimes are shares of 64 values of β between 1.4 and 2.4; `rate` the median leading exponent of
    the chaotic ones among them, nats per token; `onset` from 64 values around the closed form.
    """
    network = longer_network(bits, seed=seed)
    predicted = onset(network, epsilon=network.epsilon).critical_beta
    found = longer_diagram(bits, betas=np.linspace(1.4, 2.4, 64), seed=seed, bins=1)
    rates = found.exponents.value[found.regime == Regime.CHAOTIC, 0]
    row: dict[str, Any] = {
        "predicted": predicted,
        "onset": first_unrest(bits, low=predicted - 0.063, high=predicted + 0.063, seed=seed),
    }
    for regime in Regime:
        row[regime.label.replace(" ", "-")] = float((found.regime == regime).mean())
    return [row | {"rate": float(np.median(rates)) if len(rates) else 0.0}]


LONGER = Table(
    path=_FOLDER / "longer.csv",
    units=[{"bits": bits, "seed": seed} for bits in (2, 3, 4, 5) for seed in range(10)],
    rows=longer_rows,
    seconds=3.0,
)
