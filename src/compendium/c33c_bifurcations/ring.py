"""The closed curve of the document's network: its rotation number, its locked windows, its end."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bookmaker.tables import Rows, Table
from compendium.common.phase_transitions import protocol_start
from spinformer.core.checks import check_array
from spinformer.dmft.bifurcations import Bifurcation, bifurcation, follow_cycle
from spinformer.dmft.conditions import Kind
from spinformer.dmft.cycles import Cycle, cycle
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.network import Network
from spinformer.dmft.rotation import rotation_number, strobed
from spinformer.dmft.state import Context

_FOLDER = Path(__file__).parent
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

    >>> closed_curve([1.25, 1.26], transient=400).attention.shape
    (2, 4, 3)
    """
    betas = check_array("beta", beta, ndim=1, low=1.2436, high=1.26758)
    anchors = _anchors()
    index = np.maximum(np.searchsorted(_WALK, betas + 1e-12) - 1, 0)
    ensemble = Ensemble(Network.document(), anchors.select(index), beta=betas)
    ensemble.advance(transient)
    return ensemble.state()


def staircase_rows(
    low: float,
    *,
    high: float,
    count: int,
    flashes: int = 6000,
    steps: int = 100_000,
    transient: int = 40_000,
) -> Rows:
    """Rotation number (turns per clock period) and exponents at `count` values of β.

    >>> row, = staircase_rows(1.25, high=1.25, count=1, flashes=64, steps=400)
    >>> f"{float(row['rotation']):.4f}", row["beta"]
    ('0.2500', '1.250000000')
    """
    network, betas = Network.document(), np.linspace(low, high, count)
    context = closed_curve(betas, transient=transient)
    points, context = strobed(network, context, beta=betas, count=flashes)
    found = rotation_number(points)
    spectrum = lyapunov_spectrum(network, context, beta=betas, steps=steps, count=2).exponents
    return [
        {
            "beta": f"{beta:.9f}",
            "rotation": f"{found.turns.value[i]:.9f}",
            "error": float(found.turns.error[i]),
            "extent": float(np.ptp(points[i, :, 0])),
            "first": float(spectrum.value[i, 0]),
            "first_error": float(spectrum.error[i, 0]),
            "second": float(spectrum.value[i, 1]),
        }
        for i, beta in enumerate(betas)
    ]


def protocol_extents(
    beta: ArrayLike, *, transient: int = 100_000, flashes: int = 2000
) -> np.ndarray:
    """Extent of the strobed m^o_1 (n,) of runs from the document's context at each β.

    >>> protocol_extents([1.2], transient=4000, flashes=16).round(3)
    array([0.])
    """
    betas = check_array("beta", beta, ndim=1)
    network = Network.document()
    start = protocol_start(network, steps=100_000)
    points, _ = strobed(network, start, beta=betas, count=flashes, transient=transient)
    return np.asarray(np.ptp(points[:, :, 0], axis=1))


def saddle_distances(
    beta: ArrayLike, *, saddles: Context, at: np.ndarray, flashes: int = 4000
) -> np.ndarray:
    """Smallest distance (n,), strobed m^o, from the closed curve to the saddle of 28 steps.

    saddles, at: contexts near the saddle (m, T, P) and their β (m,), as its branch holds them;
    Newton's method goes from the nearest in β.

    >>> from compendium.c33c_bifurcations.cycles import family_branches
    >>> _, down = family_branches("28", copies=16, transient=20_000)
    >>> turned = np.argmin(down.values)
    >>> found = saddle_distances([1.2670], saddles=down.context.select(slice(turned, None)),
    ...     at=down.values[turned:], flashes=500)
    >>> bool(0.01 < found[0] < 0.1)
    True
    """
    betas = check_array("beta", beta, ndim=1)
    network = Network.document()
    curve, _ = strobed(network, closed_curve(betas), beta=betas, count=flashes)
    found = []
    for number, value in enumerate(betas):
        near = saddles.select(int(np.argmin(np.abs(at - value))))
        saddle = cycle(network, near, beta=float(value), period=28)
        if saddle.stable:
            raise RuntimeError(f"the cycle of 28 steps at beta {value} is no saddle")
        flash, _ = strobed(network, saddle.value, beta=float(value), count=7)
        gaps = np.linalg.norm(curve[number][:, None] - flash, axis=-1)
        found.append(float(gaps.min()))
    return np.array(found)


def tongue_rows(p: int, *, q: int, near: float) -> Rows:
    """Both ends in β of the window in which the closed curve is locked to p/q; `near` is in or
    near it.

    Written with ten digits. `focus`: whether the leading multipliers of the stable cycle are
    complex somewhere in the window; then the closed curve winds into the cycle and is not smooth.

    >>> row, = tongue_rows(1, q=4, near=1.25)
    >>> row["low"], row["high"], row["focus"]
    ('1.249491168', '1.251021315', True)
    """
    network = Network.document()
    inside = _locked(network, p, q, near)
    # Along the branch the state moves by much while β hardly does: the step is one of the state.
    branch = follow_cycle(
        network, inside, step=1e-3, within=(near - 5e-3, near + 5e-3), max_steps=150
    )
    folds = sorted({round(x.beta, 12) for x in branch.bifurcations if x.kind == Kind.FOLD})
    stable = branch.multipliers[branch.stable]
    focus = bool((np.abs(stable[:, 0].imag) > 1e-6).any()) if len(stable) else False
    return [
        {
            "low": f"{folds[0]:.9f}",
            "high": f"{folds[-1]:.9f}",
            "width": folds[-1] - folds[0],
            "focus": focus,
        }
    ]


def _locked(network: Network, p: int, q: int, near: float) -> Cycle | Bifurcation:
    """The cycle on the closed curve with rotation p/q, or a fold of it."""
    context = closed_curve([near]).select(0)
    ensemble = Ensemble(network, context, beta=near, threads=1)
    for _ in range(_STARTS):
        ensemble.advance(4 * 7)
        state = ensemble.state()
        found = cycle(network, state, beta=near, period=4 * q, max_steps=15, throw=False)
        if found.converged and found.period == 4 * q and found.moved < 0.05:
            return found
        guess = Cycle(
            value=state,
            residual=found.residual,
            steps=0,
            status=found.status,
            period=4 * q,
            beta=near,
            gamma=network.gamma,
            epsilon=network.epsilon,
            multipliers=found.multipliers,
            moved=0.0,
        )
        fold = bifurcation(network, guess, kind=Kind.FOLD, throw=False, max_steps=60)
        if fold.converged and abs(fold.beta - near) < _NEAR:
            return fold
    raise RuntimeError(f"no cycle with rotation {p}/{q} was found near beta {near}")


STAIRCASE = Table(
    path=_FOLDER / "staircase.csv",
    units=[
        {"low": 1.2436, "high": 1.2650, "count": 576},
        {"low": 1.2650, "high": 1.2675, "count": 320},
        {"low": 1.2675, "high": 1.26758, "count": 192},
    ],
    rows=staircase_rows,
)
# Where the rotation number of an unlocked curve is p/q, or in the window if it is wide.
TONGUES = Table(
    path=_FOLDER / "tongues.csv",
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
    rows=tongue_rows,
)
