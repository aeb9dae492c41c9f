"""Cells of the phase diagrams, their tables, what these say in a few numbers, longer windows."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.ndimage import convolve

from bookmaker.tables import Rows, Table, stored
from compendium.common.drawing import PARAMETERS, REGIME_COLORS
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import Regime
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.fingerprints import Fingerprints, identify_attractors, settled_fingerprints
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts
from spinformer.dmft.network import Context, Network
from spinformer.dmft.regimes import SHORT_STRETCHES, classify_regimes
from spinformer.plot.style import COLORS, DIVERGING, label_panels

# Steps kept in every cell, as many for the exponent of the published context, half as many for
# those of the random ones; how many of these there are.
_KEPT = 4_000
_RANDOM = 8
# Random cells that are run ten times longer, and how many of them are a unit.
_CONTROL = 800
_CHUNK = 400
# The regimes that a statement about attractors can name.
_NAMED = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)
# The planes: β across, γ or ε upwards. Random contexts are run in each so-manieth row and column.
BETAS = np.linspace(1.1, 1.7, 200)
UPWARDS = {"gamma": np.linspace(0.0, 250.0, 200), "epsilon": np.linspace(0.0, 0.3, 200)}
COARSE = {"gamma": 1, "epsilon": 4}


def cells(
    name: str, values: np.ndarray, *, beta: np.ndarray, transient: int = 20_000, random: bool = True
) -> dict[str, np.ndarray]:
    """What cells (n,) at β (n,) and `values` (n,) of γ or ε, whichever `name` says, settle on.

    "regime", "exponent": from the published context. With `random`, "attractors": how many of them
    the random contexts, the same in every cell, end on; "regimes": which occur among these,
    1 periodic + 2 quasi-periodic + 4 chaotic.
    """
    network = Network.poclopez2024()
    start = poclopez2024_context(network, steps=100_000, decimals=8)
    where: dict[str, Any] = {"beta": beta, name: values, "transient": transient}
    classified = classify_regimes(network, start, kept=_KEPT, exponent_steps=_KEPT, **where)
    layers = {"regime": classified.regime, "exponent": classified.exponents.value[:, 0]}
    if random:
        # One batch: the contexts of a cell lie side by side, and share the position with all.
        where |= {"beta": np.repeat(beta, _RANDOM), name: np.repeat(values, _RANDOM)}
        drawn = random_contexts(network, 0, count=_RANDOM).attention
        many = Context(np.tile(drawn, (len(beta), 1, 1)), start.position)
        crowd, prints, _ = settled_fingerprints(network, many, exponent_steps=_KEPT // 2, **where)
        of_cells = np.arange(len(crowd.regime)).reshape(-1, _RANDOM)
        counts = []
        for mine in of_cells:
            own = Fingerprints(
                moments=prints.moments[mine],
                error=prints.error[mine],
                rate=prints.rate[mine],
                rate_error=prints.rate_error[mine],
            )
            counts.append(max(1, identify_attractors(own).max() + 1))
        layers["attractors"] = np.array(counts)
        regime = crowd.regime[of_cells]
        kinds = [2**kind * (regime == kind).any(axis=1) for kind in _NAMED]
        layers["regimes"] = np.sum(kinds, axis=0)
    return layers


def _grid(
    name: str, values: np.ndarray, *, betas: np.ndarray, random: bool = True
) -> dict[str, np.ndarray]:
    """`cells` at all pairs of β and γ or ε, row by row of the latter."""
    beta = np.tile(betas, len(values))
    return cells(name, np.repeat(values, len(betas)), beta=beta, random=random)


def _letters(layer: np.ndarray) -> list[str]:
    # A row of digits would be read as one large number.
    return ["".join(chr(ord("a") + code) for code in line) for line in layer.tolist()]


def _plane_rows(name: str, *, first: int, count: int) -> Rows:
    """Rows `first` to `first + count` of a plane, as `read_plane` reads them."""
    number = first + np.arange(count)
    coarse = COARSE[name]
    values = UPWARDS[name][number]
    chosen = number % coarse == 0
    classified = _grid(name, values, betas=BETAS, random=coarse == 1)
    crowd = classified if coarse == 1 else _grid(name, values[chosen], betas=BETAS[::coarse])
    columns: dict[str, Any] = {"row": number, "value": values}
    columns["regime"] = _letters(classified["regime"].reshape(count, -1))
    for layer in ("attractors", "regimes"):
        columns[layer] = np.full(count, "", dtype=object)
        columns[layer][chosen] = _letters(crowd[layer].reshape(chosen.sum(), -1))
    thousandths = np.rint(1000.0 * classified["exponent"]).astype(int).reshape(count, -1)
    columns["exponent"] = [" ".join(map(str, line)) for line in thousandths]
    return rows_of(columns)


def _plane_table(name: str, *, count: int) -> Table:
    """The table of a plane, so many rows of it a unit."""
    return Table(
        path=Path(__file__).with_name(f"{name}.csv"),
        units=[{"first": first, "count": count} for first in range(0, len(UPWARDS[name]), count)],
        rows=partial(_plane_rows, name),
        small={"first": 12, "count": 1},
        seconds=1.5,
    )


GAMMA = _plane_table("gamma", count=50)
EPSILON = _plane_table("epsilon", count=100)


def read_plane(table: Table) -> dict[str, np.ndarray]:
    """The layers of a plane, arrays (rows, β); of attractors and regimes `COARSE` times fewer."""
    stored = table.read()
    layers = {}
    for name in ("regime", "attractors", "regimes"):
        codes = [list(line.encode()) for line in stored[name] if line]
        layers[name] = np.array(codes) - ord("a")
    layers["exponent"] = np.array([line.split() for line in stored["exponent"]]).astype(int) / 1000
    return layers


def control_cells(name: str) -> tuple[np.ndarray, np.ndarray]:
    """β and γ or ε, (800,) each, of the random cells of a plane that are run ten times longer."""
    wide = len(BETAS)
    rows, columns = np.divmod(
        np.sort(numpy_generator(1).choice(wide**2, size=_CONTROL, replace=False)), wide
    )
    return BETAS[columns], UPWARDS[name][rows]


@stored(
    "control",
    parameter_product(plane=UPWARDS, chunk=range(_CONTROL // _CHUNK)),
    small={"plane": "epsilon", "chunk": 1, "count": 12},
    seconds=0.2,
)
def control_table(plane: str, chunk: int, *, count: int = _CHUNK) -> Rows:
    """The first `count` cells of one chunk after ten times the transient."""
    chosen = slice(chunk * _CHUNK, chunk * _CHUNK + count)
    all_betas, all_values = control_cells(plane)
    betas = all_betas[chosen]
    values = all_values[chosen]
    later = cells(plane, values, beta=betas, transient=200_000, random=False)
    return rows_of(beta=betas, value=values, regime=later["regime"])


def agreement(regime: np.ndarray, *, blocks: int = 10) -> dict[Regime, Estimate]:
    """How much more often than by chance the neighbor of a cell has its label: 1 always, 0 never.

    (a − p)/(1 − p) with a the share of the four neighbors of a regime's cells that have its label,
    p that of the regime in the plane. Errors by the jackknife over blocks × blocks pieces.
    """
    height, width = regime.shape
    rows = np.arange(height) * blocks // height
    columns = np.arange(width) * blocks // width
    piece = (rows[:, None] * blocks + columns).ravel()
    one = np.ones(regime.shape)
    scores = {}
    cross = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    for code in _NAMED:
        own = (regime == code).astype(float)
        if 0.0 < own.mean() < 1.0:
            # Neighbors alike, neighbors, cells of the regime, cells, in each piece.
            around = convolve(own, cross, mode="constant")
            all_around = convolve(one, cross, mode="constant")
            layers = (around * own, all_around * own, own, one)
            counts = np.stack([np.bincount(piece, x.ravel(), minlength=blocks**2) for x in layers])
            total = counts.sum(axis=1, keepdims=True)
            # Without each of the pieces, and with all of them.
            alike, neighbors, mine, cells = np.hstack([total - counts, total])
            score = (alike / neighbors - mine / cells) / (1.0 - mine / cells)
            error = np.sqrt((blocks**2 - 1.0) * score[:-1].var())
            scores[code] = Estimate(value=float(score[-1]), error=float(error))
    return scores


def mixed(regimes: np.ndarray) -> np.ndarray:
    """Where random contexts of one cell settle on more than one regime: booleans."""
    # All sums of two or three of 1, 2 and 4.
    return np.isin(regimes, (3, 5, 6, 7))


def control_changes(name: str, regime: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 2) of the control cells of a plane, their labels, and those ten times later."""
    stored = control_table.read()
    betas, values = control_cells(name)
    before = regime[np.searchsorted(UPWARDS[name], values), np.searchsorted(BETAS, betas)]
    return np.stack([betas, values], axis=1), before, stored["regime"][stored["plane"] == name]


def longer_network(bits: int, *, seed: Seed = 0) -> Network:
    """The published features in a window of 2^bits tokens, whose slower bits are random."""
    published = Network.poclopez2024()
    # The code has its most significant bit first; what is drawn for 3 bits stays with more.
    drawn = numpy_generator(seed).choice((-1.0, 1.0), size=(8, 4, published.features))
    slower = np.moveaxis(drawn[: bits - 2][::-1], 0, -1)
    position = np.concatenate([slower, published.position], axis=-1)
    return replace(published, position=position, context=2**bits)


@stored("longer", parameter_product(bits=(2, 3, 4, 5), seed=range(10)), seconds=0.1)
def longer_table(bits: int, *, seed: int) -> Rows:
    """Shares of regimes at 64 values of β between 1.4 and 2.4, after 5,000 turns of the clock.

    `rate`: median leading exponent of the chaotic ones, nats per token. `onset`: the first of 64
    values around the closed form at which an orbit of 20,000 turns does not return after one more.
    """
    network = longer_network(bits, seed=seed)
    slower = 2**bits // 4
    start = random_contexts(network, seed, count=1).select(0)
    turn = network.positions
    predicted = onset(network).critical_beta
    betas = np.linspace(predicted - 0.063, predicted + 0.063, 64)
    ensemble = Ensemble(network, start, beta=betas)
    ensemble.advance(20_000 * turn)
    orbit = ensemble.record(2 * turn)
    gone = np.abs(orbit[:, turn:] - orbit[:, :turn]).max(axis=(1, 2)) > 1e-5
    seen = float(betas[gone.argmax()]) if gone.any() else float("inf")
    # The thresholds are `SHORT_STRETCHES` for as many turns, not as many tokens.
    longest = SHORT_STRETCHES.longest * slower
    neutral = SHORT_STRETCHES.neutral / slower
    limits = replace(SHORT_STRETCHES, longest=longest, neutral=neutral)
    reached = classify_regimes(
        network,
        start,
        beta=np.linspace(1.4, 2.4, 64),
        transient=5000 * turn,
        kept=1000 * turn,
        exponent_steps=1000 * turn,
        thresholds=limits,
    )
    rates = reached.exponents.value[reached.regime == Regime.CHAOTIC, 0]
    shares = {one.label: (reached.regime == one).mean() for one in _NAMED}
    rate = float(np.median(rates)) if len(rates) else 0.0
    return rows_of({"predicted": predicted, "onset": seen} | shares, rate=rate)


def draw_plane(
    axes: tuple[Axes, Axes],
    regime: np.ndarray,
    exponent: np.ndarray,
    *,
    across: np.ndarray,
    upwards: np.ndarray,
) -> None:
    """Regimes (m, n) on one panel and leading exponents, with their scale, on another."""
    half = [0.5 * (values[1] - values[0]) for values in (across, upwards)]
    ends = (across[0] - half[0], across[-1] + half[0], upwards[0] - half[1], upwards[-1] + half[1])
    palette = ListedColormap([REGIME_COLORS[code] for code in Regime])
    images = []
    for axis, layer, colors, low, high in (
        (axes[0], regime, palette, -0.5, 4.5),
        (axes[1], exponent, DIVERGING, -0.2, 0.2),
    ):
        axis.grid(False)
        image = axis.imshow(
            layer,
            cmap=colors,
            vmin=low,
            vmax=high,
            origin="lower",
            aspect="auto",
            interpolation="nearest",
            extent=ends,
        )
        images.append(image)
    axes[1].figure.colorbar(images[1], ax=axes[1], label="leading exponent (nats per step)")


def show_plane(
    layers: Mapping[str, np.ndarray],
    *,
    name: str,
    curves: Mapping[str, np.ndarray],
    changed: np.ndarray,
    point: tuple[float, float],
) -> Figure:
    """Regimes and exponents of a plane of `name`, with curves and marked points (n, 2) on top."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 4.1), sharey=True)
    plane = (layers["regime"], layers["exponent"])
    upwards = UPWARDS[name]
    draw_plane((left, right), *plane, across=BETAS, upwards=upwards)
    red = COLORS["red"]
    blue = COLORS["blue"]
    green = COLORS["green"]
    for axis in (left, right):
        for (word, curve), line, color in zip(
            curves.items(), ("-", "--"), (red, blue), strict=True
        ):
            axis.plot(*curve.T, line, color=color, lw=1.6, label=word)
        axis.plot(*point, "o", ms=8, mfc="none", mew=1.6, color=green, label="published network")
        axis.set(xlabel=PARAMETERS["beta"], xlim=BETAS[[0, -1]], ylim=upwards[[0, -1]])
    left.plot(*changed.T, "x", ms=4, mew=1.1, color=red, label="another label later")
    left.set_ylabel(PARAMETERS[name])
    regimes = [Patch(color=REGIME_COLORS[code], label=code.label) for code in Regime]
    handles = [*regimes, *left.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    label_panels([left, right])
    return figure
