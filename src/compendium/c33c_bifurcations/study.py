"""How the document's network changes its kind of motion: four tables, and what is computed live.

Cycles along β from birth to death (`CYCLES`), bifurcations followed in (β, γ) and (β, ε)
(`CURVES`), and the closed curve: rotation number and exponents along it (`STAIRCASE`), the windows
in which it is locked (`TONGUES`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bookmaker.tables import Rows, stored
from compendium.c33c_bifurcations.cycles import (
    Bifurcation,
    Branch,
    Cycle,
    Kind,
    bifurcation,
    cycle,
    follow_bifurcation,
    follow_cycle,
)
from compendium.c33c_bifurcations.rotation import rotation_number
from compendium.common.phase_transitions import protocol_start
from compendium.common.rows import grid, rows_of
from spinformer.dmft.attractors import strobed
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network

_FOLDER = Path(__file__).parent
# Where a long run ends on each: β, period, extent of the strobed m^o_1, first step along the
# branch, points in either direction.
FAMILIES: dict[str, tuple[float, int, tuple[float, float], float, int]] = {
    "16": (1.25, 16, (0.0, 0.2), 2e-4, 45),
    "44": (1.2646, 44, (0.0, 0.2), 5e-4, 45),
    "28": (1.27, 28, (0.2, 0.3), 2e-4, 90),
    "56 doubled": (1.268, 56, (0.2, 0.3), 5e-5, 45),
    "56 other": (1.27, 56, (0.32, 0.4), 5e-5, 45),
    "16 large": (1.271, 16, (0.5, 0.7), 1e-4, 90),
}
_BRANCH = (1.245, 1.285)
_SAME, _APART = 1e-8, 1e-5
# Intervals in which curves of bifurcations are followed, and their first steps.
_WITHIN = {"gamma": ((0.9, 1.6), (0.0, 300.0)), "epsilon": ((0.9, 1.6), (0.0, 0.25))}
_STEP = {"gamma": 2.0, "epsilon": 5e-4}
# Curves of folds: the family of cycles, and β near which it is looked for.
_FOLDS = {"44 low": ("44", 1.26449), "44 high": ("44", 1.26474), "28 fold": ("28", 1.26696)}
# Beside the closed curve lie other attractors, so it is followed from β to β in short steps.
_WALK = np.concatenate(
    [
        np.arange(1.2440, 1.2640, 2e-4),
        np.arange(1.2640, 1.2675, 5e-5),
        np.arange(1.2675, 1.267578, 2e-6),
    ]
)
_REST = 6000
# Extent of m^o_1 on the closed curve is below 0.21, on all other attractors there above 0.25.
ON_CURVE = 0.24
# Starts along the curve from which a fold is searched, and how far off in β it may be.
_STARTS, _NEAR = 24, 3e-5


# ---- cycles


def settled_cycle(family: str) -> Cycle:
    """The cycle of a family, from the first of 96 random contexts that a run ends on it.

    Found by the run (the strobed points repeat to 1e-8), then by Newton's method.
    """
    network = Network.document()
    beta, period, (low, high), _, _ = FAMILIES[family]
    flashes = period // network.positions
    contexts = random_contexts(network, 3, count=96)
    points, ends = strobed(network, contexts, beta=beta, count=2 * flashes, transient=400_000)
    gap = np.abs(points - points[:, :1]).max(axis=-1)
    extent = np.ptp(points[:, :, 0], axis=1)
    fits = (gap[:, flashes] < _SAME) & (gap[:, 1:flashes].min(axis=1) > _APART)
    fits &= (low < extent) & (extent < high)
    if not fits.any():
        raise RuntimeError(f"none of 96 runs ended on the cycle {family}")
    return cycle(network, ends.select(int(np.argmax(fits))), beta=beta, period=period)


@cache
def family_branches(family: str) -> tuple[Branch, Branch]:
    """The branch of a family, upwards and downwards in β from where a run ends on it."""
    start, (_, _, _, step, points) = settled_cycle(family), FAMILIES[family]
    up, down = (
        follow_cycle(Network.document(), start, step=way * step, within=_BRANCH, max_steps=points)
        for way in (1, -1)
    )
    return up, down


@stored(
    _FOLDER / "cycles.csv",
    units=grid(family=FAMILIES),
    seconds=10.0,
    within={"largest": 1e-4, "extent": 1e-5},
)
def CYCLES(family: str) -> Rows:
    """Points of a family's branch and its bifurcations, by β.

    kind: "cycle", or "fold", "flip", "torus". extent: of m^o_1 over the cycle. stable: 0 or 1;
    largest: modulus of the leading multiplier.
    """
    steps, rows, known = FAMILIES[family][1], [], set()

    def add(kind: str, betas: np.ndarray, multipliers: np.ndarray, context: Context) -> None:
        overlaps, _ = trajectory(Network.document(), context, beta=betas, steps=steps, threads=1)
        extents = np.ptp(overlaps[..., 0], axis=-1)
        largest = np.abs(multipliers[:, 0])
        stable = ((largest < 1.0) & (kind == "cycle")).astype(int)
        at = [f"{beta:.8f}" for beta in betas]
        rows.extend(rows_of(kind=kind, at=at, extent=extents, largest=largest, stable=stable))

    for branch in family_branches(family):
        add("cycle", branch.values, branch.multipliers, branch.context)
        for found in branch.bifurcations:
            event = (found.kind, f"{found.beta:.8f}"[:-1])
            if event not in known:
                known.add(event)
                one = Context(found.value.attention[None], found.value.position)
                name = found.kind.name.lower()
                add(name, np.array([found.beta]), found.multipliers[None], one)
    return rows


# ---- curves


def driven_cycle(beta: float) -> Cycle:
    """The cycle of 2^K = 4 steps that the positions drive, by Newton's method from A = 0."""
    network = Network.document()
    zero = Context(np.zeros((network.context, network.features)), 0)
    return cycle(network, zero, beta=beta, period=4)


def _start_of(curve: str) -> Bifurcation:
    """The Neimark-Sacker point of the driven cycle, or a fold, at the document's γ and ε."""
    if curve == "torus":
        return bifurcation(Network.document(), driven_cycle(1.25), kind=Kind.TORUS)
    family, near = _FOLDS[curve]
    events = [point for branch in family_branches(family) for point in branch.bifurcations]
    folds = [point for point in events if point.kind == Kind.FOLD]
    best = min(folds, key=lambda point: abs(point.beta - near))
    if abs(best.beta - near) > 1e-4:
        raise RuntimeError(f"no fold near beta {near}: {best.beta}")
    return best


@stored(
    _FOLDER / "curves.csv",
    units=[
        {"curve": curve, "plane": plane, "sign": sign}
        for plane in ("gamma", "epsilon")
        for curve in ("torus", *_FOLDS)
        for sign in (1, -1)
    ],
    seconds=5.0,
    rtol=2e-5,
)
def CURVES(curve: str, *, plane: str, sign: int) -> Rows:
    """Points of one curve in the plane (β, γ) or (β, ε), in one direction from the document's.

    rotation: turns per period of the critical pair, "nan" on neutral saddles.
    """
    start = _start_of(curve)
    found = follow_bifurcation(
        Network.document(),
        start,
        parameters=("beta", plane),
        step=sign * _STEP[plane],
        within=_WITHIN[plane],
        max_steps=80 if curve == "torus" else 40,
    )
    fixed = {name: start.parameters[name] for name in ("gamma", "epsilon")}
    return [
        {"beta": f"{beta:.8f}", **fixed, plane: float(value), "rotation": float(turns)}
        for (beta, value), turns in zip(found.values, found.rotation, strict=True)
    ]


# ---- the closed curve


@cache
def _anchors() -> Context:
    network = Network.document()
    state = Ensemble(network, protocol_start(network, steps=20_000), beta=_WALK[0])
    state.advance(100_000)
    context, found = state.state(), []
    for beta in _WALK:
        ensemble = Ensemble(network, context, beta=float(beta), threads=1)
        ensemble.advance(_REST)
        context = ensemble.state()
        found.append(context.attention)
    return Context(np.array(found), context.position)


def closed_curve(beta: ArrayLike, *, transient: int = 40_000) -> Context:
    """States on the closed curve at the inverse temperatures (n,), 1.2436 to 1.267578.

    The curve is followed upwards from 1.244 in short steps; from the nearest of them, at or below
    β, `transient` steps at β itself.
    """
    betas = np.asarray(beta)
    index = np.maximum(np.searchsorted(_WALK, betas + 1e-12) - 1, 0)
    ensemble = Ensemble(Network.document(), _anchors().select(index), beta=betas)
    ensemble.advance(transient)
    return ensemble.state()


@stored(
    _FOLDER / "staircase.csv",
    units=[
        {"low": 1.2436, "high": 1.2650, "count": 576},
        {"low": 1.2650, "high": 1.2675, "count": 320},
        {"low": 1.2675, "high": 1.26758, "count": 192},
    ],
)
def STAIRCASE(
    low: float,
    *,
    high: float,
    count: int,
    flashes: int = 6000,
    steps: int = 100_000,
    transient: int = 40_000,
) -> Rows:
    """Rotation number (turns per clock period) and exponents at `count` values of β."""
    network, betas = Network.document(), np.linspace(low, high, count)
    context = closed_curve(betas, transient=transient)
    points, context = strobed(network, context, beta=betas, count=flashes)
    turns = rotation_number(points).turns
    spectrum = lyapunov_spectrum(network, context, beta=betas, steps=steps, count=2).exponents
    return rows_of(
        beta=[f"{beta:.9f}" for beta in betas],
        rotation=[f"{value:.9f}" for value in turns.value],
        error=turns.error,
        extent=np.ptp(points[:, :, 0], axis=1),
        first=spectrum.value[:, 0],
        first_error=spectrum.error[:, 0],
        second=spectrum.value[:, 1],
    )


def protocol_extents(beta: ArrayLike, *, flashes: int) -> np.ndarray:
    """Extent of the strobed m^o_1 (n,) of runs from the document's context at each β."""
    network = Network.document()
    start = protocol_start(network, steps=100_000)
    points, _ = strobed(network, start, beta=np.asarray(beta), count=flashes, transient=100_000)
    return np.asarray(np.ptp(points[:, :, 0], axis=1))


# Where the rotation number of an unlocked curve is p/q, or in the window if it is wide.
@stored(
    _FOLDER / "tongues.csv",
    units=[
        {"p": 1, "q": 4, "near": 1.25},
        {"p": 5, "q": 19, "near": 1.25971111},
        {"p": 4, "q": 15, "near": 1.261722},
        {"p": 3, "q": 11, "near": 1.2646},
        {"p": 5, "q": 18, "near": 1.26645},
        {"p": 7, "q": 25, "near": 1.26707},
        {"p": 9, "q": 32, "near": 1.26735},
        {"p": 11, "q": 39, "near": 1.2675},
        {"p": 13, "q": 46, "near": 1.26755},
        {"p": 15, "q": 53, "near": 1.267573},
    ],
    checked=3,
    seconds=3.0,
    within={"width": 4e-9},
)
def TONGUES(p: int, *, q: int, near: float) -> Rows:
    """Both ends in β of the window in which the closed curve is locked to p/q; `near` is by it.

    `focus`: whether the leading multipliers of the stable cycle are complex somewhere in the
    window; then the closed curve winds into the cycle and is not smooth.
    """
    network = Network.document()
    inside, within = _locked(network, p, q, near), (near - 5e-3, near + 5e-3)
    # Along the branch the state moves by much while β hardly does: the step is one of the state.
    branch = follow_cycle(network, inside, step=1e-3, within=within, max_steps=150)
    folds = sorted({round(x.beta, 12) for x in branch.bifurcations if x.kind == Kind.FOLD})
    leading = branch.multipliers[branch.stable, 0]
    return [
        {
            "low": f"{folds[0]:.9f}",
            "high": f"{folds[-1]:.9f}",
            "width": folds[-1] - folds[0],
            "focus": bool((np.abs(leading.imag) > 1e-6).any()),
        }
    ]


def _locked(network: Network, p: int, q: int, near: float) -> Cycle:
    """The cycle on the closed curve with rotation p/q, or a fold of it."""
    ensemble = Ensemble(network, closed_curve([near]).select(0), beta=near, threads=1)
    for _ in range(_STARTS):
        ensemble.advance(4 * 7)
        state = ensemble.state()
        found = cycle(network, state, beta=near, period=4 * q, max_steps=15, throw=False)
        moved = np.abs(found.value.attention - state.attention).max()
        if found.converged and found.period == 4 * q and moved < 0.05:
            return found
        guess = replace(found, value=state, period=4 * q)
        fold = bifurcation(network, guess, kind=Kind.FOLD, throw=False, max_steps=60)
        if fold.converged and abs(fold.beta - near) < _NEAR:
            return fold
    raise RuntimeError(f"no cycle with rotation {p}/{q} was found near beta {near}")
