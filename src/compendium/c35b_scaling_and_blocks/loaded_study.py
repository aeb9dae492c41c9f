"""The measurements behind the tables of `compendium.c35b_scaling_and_blocks`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from bookmaker.tables import Rows, Table
from compendium.c35b_scaling_and_blocks.loaded import loaded_path, resting_state, simulate_loaded
from spinformer.core.checks import check_choice, check_real
from spinformer.core.statistics import PowerLaw, fit_power, mean_estimate
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset

_FOLDER = Path(__file__).parent
# The softmax of paths and onsets is soft enough for the random features' scores, of deviation
# γ√(α/N), to be small at the sizes that are simulated.
_GAMMA = 5.0
_LOAD, _BETA = 0.25, 1.4
_STEPS = 30
SIZES = (300, 600, 1200, 2400)
# Signs of the first tokens on the three segments, newest first.
START = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
_POSITION = 3
RULES = ("fixed", "unit, P = 3 + alpha N", "unit, P = 3")


def _soft() -> Network:
    return Network.document().with_parameters(gamma=_GAMMA)


def score_rows(rule: str, *, size: int, seed: int, load: float = _LOAD, steps: int = 20) -> Rows:
    """Deviation of the softmax's arguments in one text, and the tokens that it attends to.

    attended: mean of 1/Σ π², from 1 to T. Rules "fixed" (γ of the document) and "unit, P = 3 + αN"
    (g = 1) run from random bits at β = 1; "unit, P = 3" has no random features and starts from
    tokens on segments, at β = 2, where the document's network is magnetized strongly.

    >>> row, = score_rows("unit, P = 3", size=300, seed=0)
    >>> row["attended"] < 1.1
    True
    """
    check_choice("rule", rule, RULES)
    few = rule == RULES[2]
    network = Network.document()
    run = simulate_loaded(
        network if few else network.with_parameters(epsilon=0.0),
        size=size,
        load=0.0 if few else load,
        beta=2.0 if few else 1.0,
        steps=steps,
        seed=seed,
        window=START if few else None,
        position=_POSITION,
        sharpness=None if rule == "fixed" else 1.0,
    )
    weight = np.exp(run.scores - run.scores.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return [
        {
            "deviation": float(np.sqrt((run.scores**2).mean())),
            "attended": float((1.0 / (weight**2).sum(axis=1)).mean()),
        }
    ]


@cache
def _theory(load: float, steps: int) -> np.ndarray:
    found = loaded_path(_soft(), START, position=_POSITION, beta=_BETA, load=load, steps=steps)
    return found.means[len(START) :]


def path_rows(size: int, *, seed: int, load: float = _LOAD, steps: int = _STEPS) -> Rows:
    """Root mean square distance of one text's mean bits from the theory, with and without load.

    >>> row, = path_rows(300, seed=0)
    >>> row["without"] > 0.0
    True
    """
    run = simulate_loaded(
        _soft(),
        size=size,
        load=load,
        beta=_BETA,
        steps=steps,
        seed=seed,
        window=START,
        position=_POSITION,
    )
    return [
        {
            name: float(np.sqrt(((run.means - _theory(at, steps)) ** 2).mean()))
            for name, at in (("with", load), ("without", 0.0))
        }
    ]


def rest_rows(
    load: float, *, beta: float, seed: int, size: int = 1500, steps: int = 120, drop: int = 40
) -> Rows:
    """Token correlations C(1), C(2) and the variance of the crosstalk in one text at rest.

    Attention is flat (γ = 0), so that the document's features only add 3 to αN; β below the onset.

    >>> row, = rest_rows(0.5, beta=1.0, seed=0, size=300, steps=50)
    >>> row["first"] > row["second"]
    True
    """
    run = simulate_loaded(
        Network.document().with_parameters(gamma=0.0, epsilon=0.0),
        size=size,
        load=load,
        beta=beta,
        steps=steps,
        seed=seed,
    )
    late = run.correlation[drop:, drop:]
    return [
        {
            "first": float(np.diagonal(late, 1).mean()),
            "second": float(np.diagonal(late, 2).mean()),
            "noise": float(run.noise[drop:].mean()),
        }
    ]


@cache
def loaded_onset(load: float) -> tuple[float, float, float]:
    """β where the few features start to move at a load, or NaN; the best β, and the gain there.

    The document's network without positions. The gain β E sech² β√R z of the resting state takes
    the place of β in the linear theory of `dmft.onset`.

    >>> [round(value, 2) for value in loaded_onset(0.0)]
    [1.22, 20.0, 20.0]
    """
    load = check_real("load", load, low=0.0)
    critical = onset(Network.document().with_parameters(epsilon=0.0)).critical_beta
    top = 20.0

    def gain(beta: float) -> float:
        return resting_state(float(beta), load=load, context=4).gain

    best = minimize_scalar(lambda beta: -gain(beta), bounds=(0.5, top), method="bounded").x
    best = top if gain(top) >= gain(best) else float(best)
    reached = gain(best)
    if reached < critical:
        return float("nan"), best, reached
    return float(brentq(lambda beta: gain(beta) - critical, 0.5, best)), best, reached


def limit_rows(load: float) -> Rows:
    """What the theory says at a load: β of the onset (0: none), the best β and the gain there.

    >>> limit_rows(0.0)[0]["best"]
    20.0
    """
    start, best, gain = loaded_onset(load)
    return [{"onset": start if np.isfinite(start) else 0.0, "best": best, "gain": gain}]


def largest_load(table: dict[str, np.ndarray]) -> float:
    """The load at which the largest gain, from `LIMITS`, falls to the onset without load.

    >>> 0.5 < largest_load(LIMITS.read()) < 0.7
    True
    """
    critical = float(table["onset"][table["load"] == 0.0][0])
    falling = np.argsort(table["gain"])
    return float(np.interp(critical, table["gain"][falling], table["load"][falling]))


def onset_rows(load: float, *, size: int, seed: int, steps: int = 160, drop: int = 80) -> Rows:
    """Root mean square overlap m^o with the few features in one text, at the best β of the load.

    >>> row, = onset_rows(0.2, size=150, seed=0, steps=40, drop=20)
    >>> row["overlap"] > 0.0
    True
    """
    network = Network.document().with_parameters(gamma=_GAMMA, epsilon=0.0)
    beta = min(loaded_onset(load)[1], 4.0)
    run = simulate_loaded(
        network, size=size, load=load, beta=beta, steps=steps, seed=seed, window=START
    )
    overlap = network.overlaps(run.means[drop:])[:, 0]
    return [{"beta": beta, "overlap": float(np.sqrt((overlap**2).mean()))}]


def power(table: dict[str, np.ndarray], *, column: str, chosen: np.ndarray) -> PowerLaw:
    """The power of N with which the mean over seeds of a column changes, over `chosen` rows.

    >>> table = {"size": np.repeat([1, 2, 4], 2), "x": np.array([1.1, 0.9, 2.1, 1.9, 4.1, 3.9])}
    >>> f"{power(table, column='x', chosen=table['size'] > 0).slope.value:.2f}"
    '1.00'
    """
    sizes = np.unique(table["size"][chosen])
    groups = [table[column][chosen & (table["size"] == size)] for size in sizes]
    found = [mean_estimate(group) for group in groups]
    return fit_power(
        sizes,
        values=np.array([one.value for one in found]),
        errors=np.array([one.error for one in found]),
    )


LIMITS = Table(
    path=_FOLDER / "limits.csv",
    units=[{"load": round(0.05 * n, 2)} for n in range(25)],
    rows=limit_rows,
)
_SEEDS = range(1, 11)
SCORES = Table(
    path=_FOLDER / "scores.csv",
    units=[
        {"rule": rule, "size": size, "seed": seed}
        for rule in RULES
        for size in SIZES
        for seed in _SEEDS
    ],
    rows=score_rows,
)
PATHS = Table(
    path=_FOLDER / "paths.csv",
    units=[{"size": size, "seed": seed} for size in SIZES for seed in _SEEDS],
    rows=path_rows,
)
REST = Table(
    path=_FOLDER / "rest.csv",
    units=[
        {"load": load, "beta": beta, "seed": seed}
        for load, beta in ((0.25, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0))
        for seed in _SEEDS
    ],
    rows=rest_rows,
)
ONSETS = Table(
    path=_FOLDER / "onsets.csv",
    units=[
        {"load": load, "size": size, "seed": seed}
        for load in (0.15, 0.3, 0.8, 1.2)
        for size in SIZES[:3]
        for seed in (1, 2, 3, 4, 5)
    ],
    rows=onset_rows,
)
