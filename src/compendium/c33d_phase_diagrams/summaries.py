"""What the layers of a plane say in a few numbers."""

from __future__ import annotations

import numpy as np

from compendium.c33d_phase_diagrams.planes import Plane, cells_of
from compendium.c33d_phase_diagrams.tables import CONTROL, control_cells
from spinformer.core.checks import check_array, check_integer
from spinformer.dmft.attractors import Regime

# The regimes that a statement about attractors can name.
NAMED = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)


def agreement(regime: np.ndarray) -> dict[Regime, float]:
    """How much more often than by chance the neighbor of a cell has its label: 1 always, 0 never.

    regime: labels (n, m) of a plane. Of the four neighbors of all cells of one regime the share a
    has its label; p is the share of that regime in the plane; returned is (a − p)/(1 − p).

    >>> halves = np.where(np.arange(8)[:, None] + np.zeros(8) < 4, 0, 2)
    >>> {regime.label: round(value, 2) for regime, value in agreement(halves).items()}
    {'periodic': 0.86, 'chaotic': 0.86}
    """
    return {code: _score(counts.sum(axis=0)) for code, counts in _tallies(regime, 1).items()}


def agreement_errors(regime: np.ndarray, *, blocks: int = 10) -> dict[Regime, float]:
    """Standard errors of `agreement` by the jackknife over blocks × blocks pieces of the plane.

    Neighboring cells are not independent; pieces larger than the regions nearly are. ValueError
    for more blocks than rows or columns.

    >>> halves = np.where(np.arange(8)[:, None] + np.zeros(8) < 4, 0, 2)
    >>> f"{agreement_errors(halves, blocks=4)[Regime.PERIODIC]:.2f}"
    '0.06'
    """
    blocks = check_integer("blocks", blocks, low=2, high=min(np.shape(regime)))
    found = {}
    for code, counts in _tallies(regime, blocks).items():
        left_out = np.array([_score(counts.sum(axis=0) - piece) for piece in counts])
        spread = np.square(left_out - left_out.mean()).sum()
        found[code] = float(np.sqrt((1.0 - 1.0 / len(counts)) * spread))
    return found


def _tallies(regime: np.ndarray, blocks: int) -> dict[Regime, np.ndarray]:
    """(blocks², 4) for each regime in the plane: neighbors alike, neighbors, cells of it, cells."""
    regime = check_array("regime", regime, ndim=2)
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
            found[code] = np.stack(
                [np.bincount(piece, one.ravel(), minlength=blocks**2) for one in layers], axis=1
            )
    return found


def _score(counts: np.ndarray) -> float:
    alike, neighbors, mine, cells = counts
    share = mine / cells
    return float((alike / neighbors - share) / (1.0 - share))


def mixed(regimes: np.ndarray) -> np.ndarray:
    """Where random contexts of one cell settle on more than one regime: booleans.

    >>> mixed(np.array([1, 3, 4, 0]))
    array([False,  True, False, False])
    """
    codes = check_array("regimes", regimes).astype(int)
    return np.asarray((codes & 1) + (codes >> 1 & 1) + (codes >> 2 & 1) > 1)


def control_changes(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 2) of the control cells of a plane, their labels, and those ten times later.

    The later labels are stored; the earlier ones are computed now.

    >>> points, before, after = control_changes("gamma")
    >>> points.shape, before.shape == after.shape
    ((800, 2), True)
    """
    stored = CONTROL.read()
    after = stored["regime"][stored["plane"] == name]
    betas, values = control_cells(name)
    before = cells_of(name, betas=betas, values=values, random=0).regime
    return np.stack([betas, values], axis=1), before, after


def diversity(regime: np.ndarray) -> np.ndarray:
    """Shannon entropy, in nats, of the named regimes along each row of labels (rows, n).

    >>> diversity(np.array([[0, 0, 2, 2], [0, 0, 0, 0]])).round(2) + 0.0
    array([0.69, 0.  ])
    """
    regime = check_array("regime", regime, ndim=2)
    counts = np.stack([(regime == code).sum(axis=1) for code in NAMED], axis=1)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(-(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1))


def coarse_plane(plane: Plane, *, every: int) -> dict[str, np.ndarray]:
    """Regimes and exponents of every `every`-th cell of a plane, computed now.

    >>> small = Plane(name="gamma", betas=(0.4, 0.6, 5), values=(100.0, 120.0, 5))
    >>> coarse_plane(small, every=4)["regime"]
    array([[0, 0],
           [0, 0]])
    """
    every = check_integer("every", every, low=1)
    across, upwards = plane.across[::every], plane.upwards[::every]
    found = cells_of(
        plane.name,
        betas=np.tile(across, len(upwards)),
        values=np.repeat(upwards, len(across)),
        random=0,
    )
    shape = (len(upwards), len(across))
    return {
        "regime": found.regime.reshape(shape),
        "exponent": found.exponent.value.reshape(shape),
    }
