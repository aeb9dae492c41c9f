"""Bifurcations of the document's network followed in the planes (β, γ) and (β, ε)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from bookmaker.tables import Rows, Table
from compendium.c33c_bifurcations.cycles import family_branches
from spinformer.dmft.bifurcations import Bifurcation, bifurcation, follow_bifurcation
from spinformer.dmft.conditions import Kind
from spinformer.dmft.cycles import Cycle, cycle
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context

_FOLDER = Path(__file__).parent
# Intervals in which the curves are followed, and their first steps.
_WITHIN = {"gamma": ((0.9, 1.6), (0.0, 300.0)), "epsilon": ((0.9, 1.6), (0.0, 0.25))}
_STEP = {"gamma": 2.0, "epsilon": 5e-4}
# Curves of folds and flips: the family of cycles, the kind, and β near which it is looked for.
_OTHERS = {
    "44 low": ("44", Kind.FOLD, 1.26449),
    "44 high": ("44", Kind.FOLD, 1.26474),
    "28 fold": ("28", Kind.FOLD, 1.26696),
}


def driven_cycle(beta: float, *, gamma: float | None = None, epsilon: float | None = None) -> Cycle:
    """The cycle of 2^K = 4 steps that the positions drive, by Newton's method from A = 0.

    >>> driven_cycle(1.2).stable, driven_cycle(1.25).stable
    (True, False)
    """
    network = Network.document()
    zero = Context(np.zeros((network.context, network.features)), 0)
    return cycle(network, zero, beta=beta, period=4, gamma=gamma, epsilon=epsilon)


def first_torus() -> Bifurcation:
    """The Neimark-Sacker point of the driven cycle at the document's γ and ε.

    >>> f"{first_torus().beta:.6f}"
    '1.243445'
    """
    return bifurcation(Network.document(), driven_cycle(1.25), kind=Kind.TORUS)


def resonance(turns: float, *, low: float, high: float) -> Bifurcation:
    """The Neimark-Sacker point of the driven cycle where it turns by `turns` a clock period.

    low, high: values of ε between which its rotation crosses `turns`, β solved for at each.

    >>> found = resonance(0.25, low=0.02, high=0.04)
    >>> f"{found.rotation:.6f}"
    '0.250000'
    """
    network, point = Network.document(), first_torus()

    def solve(epsilon: float) -> Bifurcation:
        nonlocal point
        # In short steps, so that each starts near its solution.
        count = int(np.ceil(abs(epsilon - point.epsilon) / 2e-3))
        for value in np.linspace(point.epsilon, epsilon, count + 1)[1:]:
            moved = replace(point, epsilon=float(value))
            point = bifurcation(network, moved, kind=Kind.TORUS)
        return point

    epsilon = brentq(lambda x: solve(x).rotation - turns, low, high, xtol=1e-12)
    return solve(float(epsilon))


def curve_rows(curve: str, *, plane: str, sign: int, points: int | None = None) -> Rows:
    """Points of one curve in the plane (β, γ) or (β, ε), in one direction from the document's.

    rotation: turns per period of the critical pair, "nan" on neutral saddles.

    >>> rows = curve_rows("torus", plane="epsilon", sign=-1, points=3)
    >>> [row["epsilon"] < 0.021 for row in rows]
    [True, True, True]
    """
    network = Network.document()
    if curve == "torus":
        start = first_torus()
    else:
        family, kind, near = _OTHERS[curve]
        start = _nearest(family, kind=kind, near=near)
    found = follow_bifurcation(
        network,
        start,
        parameters=("beta", plane),
        step=sign * _STEP[plane],
        within=_WITHIN[plane],
        max_steps=points or (80 if curve == "torus" else 40),
    )
    names = ("gamma", "epsilon")
    return [
        {"beta": f"{beta:.8f}"}
        | {name: float(value) if name == plane else getattr(start, name) for name in names}
        | {"rotation": float(turns)}
        for (beta, value), turns in zip(found.values, found.rotation, strict=True)
    ]


def _nearest(family: str, *, kind: Kind, near: float) -> Bifurcation:
    """The bifurcation of a kind nearest to β = `near` on the branch of a family."""
    found = [
        point
        for branch in family_branches(family)
        for point in branch.bifurcations
        if point.kind == kind
    ]
    best = min(found, key=lambda point: abs(point.beta - near))
    if abs(best.beta - near) > 1e-4:
        raise RuntimeError(f"no {kind.name.lower()} near beta {near}: {best.beta}")
    return best


CURVES = Table(
    path=_FOLDER / "curves.csv",
    units=[
        {"curve": curve, "plane": plane, "sign": sign}
        for plane in ("gamma", "epsilon")
        for curve in ("torus", *_OTHERS)
        for sign in (1, -1)
    ],
    rows=curve_rows,
)
