"""The closed curve of the published network: how fast it turns, and where it is locked."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import rows_of
from spinformer.core.solve import NotConverged
from spinformer.dmft.bifurcation_curves import bifurcation_values
from spinformer.dmft.branches import continue_cycle
from spinformer.dmft.cycles import Bifurcation, Cycle, find_bifurcation, find_cycle
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import closed_curve
from spinformer.dmft.stroboscopic import rotation_number, stroboscopic_section

# Extent of m^o_1 on the closed curve is below 0.21, on all other attractors there above 0.25.
ON_CURVE = 0.24
# Starts along the curve from which a fold is searched, and how far off in β it may be.
_STARTS = 24
_NEAR = 3e-5


@stored(
    "staircase",
    [
        {"low": 1.2436, "high": 1.265, "count": 576},
        {"low": 1.265, "high": 1.2675, "count": 320},
        {"low": 1.2675, "high": 1.26758, "count": 192},
    ],
    checked=2,
    seconds=2.0,
    within={"error": 1e-9},
)
def staircase_table(low: float, *, high: float, count: int) -> Rows:
    """Rotation number (turns per clock period) and exponents at `count` values of β."""
    network = Network.poclopez2024()
    betas = np.linspace(low, high, count)
    points, context = stroboscopic_section(network, closed_curve(betas), beta=betas, count=6000)
    turns = rotation_number(points)
    spectrum = lyapunov_spectrum(network, context, beta=betas, steps=100_000, count=2).exponents
    return rows_of(
        beta=[f"{beta:.9f}" for beta in betas],
        rotation=[f"{value:.9f}" for value in turns.value],
        error=turns.error,
        extent=np.ptp(points[:, :, 0], axis=1),
        first=spectrum.value[:, 0],
        first_error=spectrum.error[:, 0],
        second=spectrum.value[:, 1],
    )


# Windows p/q, and β where the rotation number of an unlocked curve is p/q, or within a wide one.
_P = (1, 5, 4, 3, 5, 7, 9, 11, 13, 15)
_Q = (4, 19, 15, 11, 18, 25, 32, 39, 46, 53)
_AT = [1.25, 1.25971111, 1.261722, 1.2646, 1.26645, 1.26707, 1.26735, 1.2675, 1.26755, 1.267573]


@stored("tongues", rows_of(p=_P, q=_Q, near=_AT), checked=3, seconds=0.7, within={"width": 4e-9})
def tongues_table(p: int, *, q: int, near: float) -> Rows:
    """Both ends in β of the window in which the closed curve is locked to p/q; `near` is by it.

    `focus`: whether the leading multipliers of the stable cycle are complex anywhere in it.
    """
    network = Network.poclopez2024()
    inside = _locked(network, p, q, near)
    within = (near - 5e-3, near + 5e-3)
    # Along the branch the state moves by much while β hardly does: the step is one of the state.
    branch = continue_cycle(
        network, inside, step=1e-3, within=within, direction="up", max_steps=150, throw=False
    )
    folds = []
    for at in (int(branch.beta.argmin()), int(branch.beta.argmax())):
        folds.append(find_bifurcation(network, branch.select(at), kind=Bifurcation.FOLD).beta)
    low, high = folds
    leading = branch.multipliers[:, 0]
    focus = bool((np.abs(leading[np.abs(leading) < 1.0].imag) > 1e-6).any())
    return [{"low": f"{low:.9f}", "high": f"{high:.9f}", "width": high - low, "focus": focus}]


def _locked(network: Network, p: int, q: int, near: float) -> Cycle:
    """The cycle on the closed curve with rotation p/q, or a fold of it."""
    ensemble = Ensemble(network, closed_curve([near]).select(0), beta=near, threads=1)
    for _ in range(_STARTS):
        ensemble.advance(4 * 7)
        state = ensemble.state()
        with suppress(NotConverged):
            found = find_cycle(network, state, beta=near, period=4 * q, max_steps=15)
            moved = np.abs(found.value.attention - state.attention).max()
            if found.period == 4 * q and moved < 0.05:
                return found
        with suppress(NotConverged):
            guess = Cycle(
                value=state, parameters={"beta": near}, period=4 * q, multipliers=np.empty(0)
            )
            fold = find_bifurcation(network, guess, kind=Bifurcation.FOLD, max_steps=60)
            if abs(fold.beta - near) < _NEAR:
                return fold
    raise RuntimeError(f"no cycle with rotation {p}/{q} was found near beta {near}")


def weights_of_rotations(network: Network, born: Cycle, rotations: Sequence[float]) -> np.ndarray:
    """Weights of the position up to 0.1 at which the onset has given rotation numbers.

    `born` is the onset of `network`, whose own weight may be on either side of them: the onset is
    followed in both directions. A rotation number that it does not have gives nan.
    """
    ways = [np.arange(network.epsilon, 5e-4, -0.004), np.arange(network.epsilon, 0.1, 0.004)]
    below, above = (
        bifurcation_values(network, born, name="epsilon", values=values) for values in ways
    )
    _, weights, turns = np.concatenate([below[:0:-1], above]).T
    return np.interp(rotations, turns, weights, left=np.nan, right=np.nan)
