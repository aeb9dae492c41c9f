"""The stored tables of the phase diagrams, and how they are read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c33d_phase_diagrams.longer import longer_rows
from compendium.c33d_phase_diagrams.planes import PLANES, TRANSIENT, cells_of, plane_rows
from spinformer.core.random import numpy_generator

_FOLDER = Path(__file__).parent
_ROWS = {"gamma": 50, "epsilon": 100}
_GRID, _CONTROL, _CHUNK = 200, 800, 400


def _units(name: str) -> list[dict[str, int]]:
    count = _ROWS[name]
    return [{"first": first, "count": count} for first in range(0, PLANES[name].values[2], count)]


GAMMA = Table(path=_FOLDER / "gamma.csv", units=_units("gamma"), rows=partial(plane_rows, "gamma"))
EPSILON = Table(
    path=_FOLDER / "epsilon.csv", units=_units("epsilon"), rows=partial(plane_rows, "epsilon")
)


def read_plane(table: Table) -> dict[str, np.ndarray]:
    """The layers of a plane, arrays (rows, β): regime, attractors, regimes, hysteresis, exponent.

    Attractors, regimes and hysteresis have `Plane.coarse` times fewer rows and columns.

    >>> layers = read_plane(GAMMA)
    >>> layers["regime"].shape
    (200, 200)
    """
    stored = table.read()
    layers = {
        name: np.array([[ord(code) - ord("a") for code in line] for line in stored[name] if line])
        for name in ("regime", "attractors", "regimes", "hysteresis")
    }
    layers["exponent"] = np.array([line.split() for line in stored["exponent"]]).astype(int) / 1000
    return layers


def control_cells(name: str) -> tuple[np.ndarray, np.ndarray]:
    """β and γ or ε, (800,) each, of the random cells that are run ten times longer.

    They are drawn without repeats from a grid of 200 × 200 over the plane, the cells of the first
    plane.

    >>> betas, values = control_cells("gamma")
    >>> betas.shape, values.shape
    ((800,), (800,))
    """
    plane = PLANES[name]
    chosen = np.sort(numpy_generator(1).choice(_GRID**2, size=_CONTROL, replace=False))
    rows, columns = np.divmod(chosen, _GRID)
    return (
        np.linspace(*plane.betas[:2], _GRID)[columns],
        np.linspace(*plane.values[:2], _GRID)[rows],
    )


def control_rows(plane: str, chunk: int) -> Rows:
    """Cells of one chunk after ten times the transient.

    >>> [unit["chunk"] for unit in CONTROL.units]
    [0, 1, 0, 1]
    """
    betas, values = (part[chunk * _CHUNK : (chunk + 1) * _CHUNK] for part in control_cells(plane))
    found = cells_of(plane, betas=betas, values=values, transient=10 * TRANSIENT)
    return [
        {
            "beta": float(beta),
            "value": float(value),
            "regime": int(regime),
            "period": int(period),
            "exponent": float(round(rate, 3)),
            "attractors": int(attractors),
            "regimes": int(regimes),
        }
        for beta, value, regime, period, rate, attractors, regimes in zip(
            betas,
            values,
            found.regime,
            found.period,
            found.exponent.value,
            found.attractors,
            found.regimes,
            strict=True,
        )
    ]


CONTROL = Table(
    path=_FOLDER / "control.csv",
    units=[
        {"plane": name, "chunk": chunk} for name in PLANES for chunk in range(_CONTROL // _CHUNK)
    ],
    rows=control_rows,
)

LONGER = Table(
    path=_FOLDER / "longer.csv",
    units=[{"bits": bits, "seed": seed} for bits in (2, 3, 4, 5) for seed in range(10)],
    rows=longer_rows,
)
