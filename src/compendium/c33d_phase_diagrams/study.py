"""Cells of the phase diagrams, their tables, what these say in a few numbers, longer windows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.tables import Rows, Table, stored
from compendium.c33d_phase_diagrams.attractors import Fingerprints, identify, settle
from compendium.common.phase_transitions import protocol_start
from compendium.common.rows import grid, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import SHORT_STRETCHES, Attractors, Regime, find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset

_FOLDER = Path(__file__).parent
# Steps dropped and kept in every cell, as many for the exponent of the document's context, half as
# many for those of the random ones; steps dropped and kept at every β of a continuation.
TRANSIENT, KEPT = 20_000, 4_000
RANDOM = 8
FOLLOWED = 2_000
# Random cells that are run ten times longer, and how many of them are a unit.
_CONTROL, _CHUNK = 800, 400
# The regimes that a statement about attractors can name.
NAMED = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)


@record
class Plane:
    """A plane of parameters: β `across`, and γ or ε `upwards`.

    coarse: random contexts and hysteresis are measured in each so-manieth row and column only.
    """

    across: np.ndarray
    upwards: np.ndarray
    coarse: int = 1


PLANES = {
    "gamma": Plane(across=np.linspace(1.1, 1.7, 200), upwards=np.linspace(0.0, 250.0, 200)),
    "epsilon": Plane(
        across=np.linspace(1.1, 1.7, 200), upwards=np.linspace(0.0, 0.3, 200), coarse=4
    ),
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
    exponent: np.ndarray
    attractors: np.ndarray
    regimes: np.ndarray


def cells(
    name: str,
    values: np.ndarray,
    *,
    beta: np.ndarray,
    transient: int = TRANSIENT,
    random: int = RANDOM,
) -> Cells:
    """Measure cells at β (n,) and `values` (n,) of γ or ε, whichever `name` says.

    random: how many of the 8 random contexts are used; 0 leaves `attractors` and `regimes` zero.
    """
    network, start, drawn = start_of_planes()
    where: dict[str, Any] = {"beta": beta, name: values, "transient": transient}
    found = find_attractors(
        network,
        start,
        kept=KEPT,
        exponents=1,
        exponent_steps=KEPT,
        bins=1,
        thresholds=SHORT_STRETCHES,
        **where,
    )
    attractors, regimes = np.zeros((2, len(beta)), dtype=int)
    if random:
        # One batch: the contexts of a cell lie side by side.
        where |= {"beta": np.repeat(beta, random), name: np.repeat(values, random)}
        many = Context(np.tile(drawn.attention[:random], (len(beta), 1, 1)), drawn.position)
        crowd, prints, rate = settle(network, many, exponent_steps=KEPT // 2, **where)
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
        exponent=found.exponents.value[:, 0],
        attractors=attractors,
        regimes=regimes,
    )


def _grid(name: str, values: np.ndarray, *, betas: np.ndarray, **how: int) -> Cells:
    """`cells` at all pairs of β and γ or ε, row by row of the latter."""
    beta = np.tile(betas, len(values))
    return cells(name, np.repeat(values, len(betas)), beta=beta, **how)


def hysteresis(
    name: str, values: np.ndarray, *, betas: np.ndarray, transient: int = FOLLOWED
) -> np.ndarray:
    """Where the way up in β and the way down end on different attractors: booleans (rows, n).

    betas: (n,) ascending; values: (rows,) of γ or ε, as `name` says. Every β starts where the one
    before ended, the first from the document's context; the two ways are compared by fingerprints
    and exponents (`identify`), after `transient` steps at every β.
    """
    network, start, _ = start_of_planes()
    ways = []
    for way in (betas, betas[::-1]):
        context, seen = start, []
        for beta in way.tolist():
            where: dict[str, Any] = {"beta": beta, name: values, "transient": transient}
            _, prints, rate = settle(
                network, context, surveyed=2, kept=FOLLOWED, exponent_steps=FOLLOWED, **where
            )
            context = prints.context
            seen.append((prints.moments, prints.error, rate.value, rate.error))
        ways.append(seen)
    pairs = zip(ways[0], ways[1][::-1], strict=True)
    apart = np.empty((len(values), len(betas)), dtype=bool)
    for column, (up, down) in enumerate(pairs):
        moments, errors, rates, spreads = map(np.stack, zip(up, down, strict=True))
        for row in range(len(values)):
            both = Fingerprints(moments=moments[:, row], error=errors[:, row], context=start)
            rate = Estimate(value=rates[:, row], error=spreads[:, row])
            one, other = identify(both, exponent=rate)
            apart[row, column] = one != other
    return apart


def _letters(codes: np.ndarray) -> str:
    # Letters: a row of digits would be read as one large number.
    return "".join(chr(ord("a") + int(code)) for code in codes)


def plane_rows(name: str, *, first: int, count: int) -> Rows:
    """Rows `first` to `first + count` of a plane, as `read_plane` reads them."""
    plane = PLANES[name]
    values, betas = plane.upwards[first : first + count], plane.across
    chosen = np.flatnonzero((first + np.arange(len(values))) % plane.coarse == 0)
    found = _grid(name, values, betas=betas, random=RANDOM if plane.coarse == 1 else 0)
    crowd, some = found, betas[:: plane.coarse]
    if plane.coarse > 1:
        crowd = _grid(name, values[chosen], betas=some)
    coarse = {
        "attractors": crowd.attractors,
        "regimes": crowd.regimes,
        "hysteresis": hysteresis(name, values[chosen], betas=some),
    }
    texts = {
        layer: dict(
            zip(chosen.tolist(), map(_letters, codes.reshape(len(chosen), -1)), strict=True)
        )
        for layer, codes in coarse.items()
    }
    regime = found.regime.reshape(len(values), -1)
    thousandths = np.rint(1000.0 * found.exponent).astype(int).reshape(regime.shape)
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
    units = [
        {"first": first, "count": count} for first in range(0, len(PLANES[name].upwards), count)
    ]
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
    wide = len(plane.across)
    chosen = np.sort(numpy_generator(1).choice(wide**2, size=_CONTROL, replace=False))
    rows, columns = np.divmod(chosen, wide)
    return plane.across[columns], plane.upwards[rows]


@stored(_FOLDER / "control.csv", units=grid(plane=PLANES, chunk=range(_CONTROL // _CHUNK)))
def CONTROL(plane: str, chunk: int) -> Rows:
    """Cells of one chunk after ten times the transient."""
    betas, values = (part[chunk * _CHUNK : (chunk + 1) * _CHUNK] for part in control_cells(plane))
    found = cells(plane, values, beta=betas, transient=10 * TRANSIENT)
    return rows_of(
        beta=betas,
        value=values,
        regime=found.regime,
        period=found.period,
        exponent=np.round(found.exponent, 3),
        attractors=found.attractors,
        regimes=found.regimes,
    )


# Pieces of the plane of β and ε about the document's parameters, ends of both.
_PATCHES = {
    "near": ((1.22, 1.29), (0.0, 0.03)),
    "middle": ((1.2, 1.4), (0.0, 0.06)),
    "far": ((1.1, 1.7), (0.0, 0.12)),
}


@stored(
    _FOLDER / "settings_C14.csv",
    units=[
        *grid(patch=("near",), finer=(1, 2, 4), wait=(20_000, 100_000)),
        *grid(patch=("middle",), finer=(1, 2), wait=(20_000, 100_000)),
        *grid(patch=("far",), finer=(1, 2), wait=(20_000,)),
    ],
)
def SETTINGS(patch: str, *, finer: int, wait: int) -> Rows:
    """Score of quasi-periodic motion in a piece of the plane of β and ε, less one half.

    finer: cells for each one of the plane, in either direction. wait: steps dropped.
    """
    plane = PLANES["epsilon"]
    betas, values = (
        np.arange(low, high, (axis[1] - axis[0]) / finer)
        for (low, high), axis in zip(_PATCHES[patch], (plane.across, plane.upwards), strict=True)
    )
    found = _grid("epsilon", values, betas=betas, transient=wait, random=0)
    regime = found.regime.reshape(len(values), -1)
    value = agreement(regime)[Regime.QUASI_PERIODIC] - 0.5
    reach = 1.96 * agreement_errors(regime, blocks=5)[Regime.QUASI_PERIODIC]
    ends = {"value": value, "low": value - reach, "high": value + reach}
    return [{**ends, "runs": regime.size}]


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
    one = np.ones(regime.shape)
    found = {}
    for code in NAMED:
        own = (regime == code).astype(float)
        if 0.0 < own.mean() < 1.0:
            layers = (_around(own) * own, _around(one) * own, own, one)
            tallies = [np.bincount(piece, layer.ravel(), minlength=blocks**2) for layer in layers]
            found[code] = np.stack(tallies, axis=1)
    return found


def _around(cells: np.ndarray) -> np.ndarray:
    """The sum over the four neighbors of every cell."""
    wide = np.pad(cells, 1)
    return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]


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


def longer_diagram(
    bits: int, *, betas: np.ndarray, seed: Seed = 0, turns: int = 5000
) -> Attractors:
    """Attractors of `longer_network(bits)` over `betas` (n,), from one random context.

    `turns` turns of the clock are dropped, a fifth as many kept, and as many averaged for the
    leading exponent, which is in nats per token. The thresholds are `SHORT_STRETCHES` for as many
    turns, not as many tokens.
    """
    network, slower = longer_network(bits, seed=seed), 2**bits // 4
    steps = turns * network.positions
    longest, neutral = SHORT_STRETCHES.longest, SHORT_STRETCHES.neutral
    return find_attractors(
        network,
        random_contexts(network, seed, count=1).select(0),
        beta=betas,
        transient=steps,
        kept=steps // 5,
        exponent_steps=steps // 5,
        exponents=1,
        bins=1,
        thresholds=replace(SHORT_STRETCHES, longest=longest * slower, neutral=neutral / slower),
    )


def first_unrest(bits: int, *, low: float, high: float, seed: Seed) -> float:
    """Smallest of 64 even steps of β from `low` to `high` where the driven cycle is gone.

    The cycle of 2^bits tokens is gone where the orbit has not returned to 1e-5 after one turn of
    the clock, 20,000 turns after a start beside it.
    """
    network = longer_network(bits, seed=seed)
    turn, betas = network.positions, np.linspace(low, high, 64)
    ensemble = Ensemble(network, random_contexts(network, seed, count=1).select(0), beta=betas)
    ensemble.advance(20_000 * turn)
    orbit = ensemble.record(2 * turn)
    gone = np.abs(orbit[:, turn:] - orbit[:, :turn]).max(axis=(1, 2)) > 1e-5
    return float(betas[gone.argmax()]) if gone.any() else float("inf")


@stored(_FOLDER / "longer.csv", units=grid(bits=(2, 3, 4, 5), seed=range(10)), seconds=3.0)
def LONGER(bits: int, *, seed: int) -> Rows:
    """Onset, regimes and exponents of one network, as the one row of its unit.

    Regimes are shares of 64 values of β between 1.4 and 2.4; `rate` the median leading exponent of
    the chaotic ones among them, nats per token; `onset` from 64 values around the closed form.
    """
    network = longer_network(bits, seed=seed)
    predicted = onset(network, epsilon=network.epsilon).critical_beta
    found = longer_diagram(bits, betas=np.linspace(1.4, 2.4, 64), seed=seed)
    rates = found.exponents.value[found.regime == Regime.CHAOTIC, 0]
    row: dict[str, Any] = {
        "predicted": predicted,
        "onset": first_unrest(bits, low=predicted - 0.063, high=predicted + 0.063, seed=seed),
    }
    for regime in Regime:
        row[regime.label.replace(" ", "-")] = float((found.regime == regime).mean())
    return [row | {"rate": float(np.median(rates)) if len(rates) else 0.0}]
