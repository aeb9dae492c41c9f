"""Cycles of the document's network along β, each from birth to death."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from spinformer.core.random import Seed
from spinformer.dmft.bifurcations import Branch, follow_cycle
from spinformer.dmft.cycles import Cycle, cycle
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.rotation import strobed
from spinformer.dmft.state import Context

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
_WITHIN = (1.245, 1.285)
_SAME, _APART = 1e-8, 1e-5


def settled_cycle(
    family: str, *, copies: int = 96, transient: int = 400_000, seed: Seed = 3
) -> Cycle:
    """The cycle of a family, from the first of `copies` random contexts that a run ends on it.

    Found by the run (the strobed points repeat to 1e-8), then by Newton's method. RuntimeError
    where no run ends there.

    >>> settled_cycle("16", copies=2, transient=20_000).stable
    True
    """
    network = Network.document()
    beta, period, (low, high), _, _ = FAMILIES[family]
    flashes = period // network.positions
    contexts = random_contexts(network, seed, count=copies)
    points, ends = strobed(network, contexts, beta=beta, count=2 * flashes, transient=transient)
    gap = np.abs(points - points[:, :1]).max(axis=-1)
    extent = np.ptp(points[:, :, 0], axis=1)
    fits = (gap[:, flashes] < _SAME) & (gap[:, 1:flashes].min(axis=1) > _APART)
    fits &= (low < extent) & (extent < high)
    if not fits.any():
        raise RuntimeError(f"none of {copies} runs ended on the cycle {family}")
    return cycle(network, ends.select(int(np.argmax(fits))), beta=beta, period=period)


@cache
def family_branches(family: str, **settings: int) -> tuple[Branch, Branch]:
    """The branch of a family, upwards and downwards in β from where a run ends on it.

    settings: of `settled_cycle`.

    >>> up, down = family_branches("16", copies=2, transient=20_000)
    >>> sorted({f"{point.beta:.6f}" for point in (*up.bifurcations, *down.bifurcations)})
    ['1.249491', '1.251021']
    """
    start, (_, _, _, step, points) = settled_cycle(family, **settings), FAMILIES[family]
    network = Network.document()
    up, down = (
        follow_cycle(network, start, step=sign * step, within=_WITHIN, max_steps=points)
        for sign in (1, -1)
    )
    return up, down


def family_rows(family: str) -> Rows:
    """Points of a family's branch and its bifurcations, by β.

    kind: "cycle", or "fold", "flip", "torus". extent: of m^o_1 over the cycle. stable: 0 or 1;
    largest: modulus of the leading multiplier.

    >>> {row["kind"] for row in family_rows("16")} == {"cycle", "fold"}
    True
    """
    network = Network.document()
    rows: Rows = []
    for branch in family_branches(family):
        _, period, _, _, _ = FAMILIES[family]
        extents = _extents(network, branch.context, branch.values, period)
        rows += [
            {
                "kind": "cycle",
                "at": f"{beta:.8f}",
                "extent": float(extent),
                "largest": float(abs(mu[0])),
                "stable": int(abs(mu[0]) < 1.0),
            }
            for beta, extent, mu in zip(branch.values, extents, branch.multipliers, strict=True)
        ]
        known = {(row["kind"], row["at"][:-1]) for row in rows}
        for point in branch.bifurcations:
            kind, at = point.kind.name.lower(), f"{point.beta:.8f}"
            if (kind, at[:-1]) not in known:
                known.add((kind, at[:-1]))
                one = Context(point.value.attention[None], point.value.position)
                extent = _extents(network, one, np.array([point.beta]), period)[0]
                rows.append(
                    {
                        "kind": kind,
                        "at": at,
                        "extent": float(extent),
                        "largest": float(abs(point.multipliers[0])),
                        "stable": 0,
                    }
                )
    return rows


def _extents(network: Network, context: Context, beta: np.ndarray, period: int) -> np.ndarray:
    overlaps, _ = trajectory(network, context, beta=beta, steps=period, threads=1)
    return np.asarray(np.ptp(overlaps[..., 0], axis=-1))


CYCLES = Table(
    path=_FOLDER / "cycles.csv",
    units=[{"family": name} for name in FAMILIES],
    rows=family_rows,
)
