"""Cells of the phase diagrams: regime, exponent, number of attractors, hysteresis."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compendium.c33d_phase_diagrams.identity import Fingerprints, fingerprints, identify
from compendium.common.phase_transitions import protocol_start
from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import SHORT_STRETCHES, Regime, find_attractors
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context

# Steps dropped and kept in every cell, and of the exponents (of the document's context, and of
# each random one).
TRANSIENT, KEPT = 20_000, 4_000
EXPONENT_STEPS, RANDOM_EXPONENT_STEPS = 4_000, 2_000
RANDOM = 8
# Steps dropped and kept at every β of a continuation.
FOLLOW_TRANSIENT, FOLLOW_KEPT = 2_000, 2_000


@record
class Plane:
    """A plane of parameters: β across, and `name` ("gamma" or "epsilon") upwards.

    betas, values: both ends and how many, (low, high, count). coarse: random contexts and
    hysteresis are measured in each so-manieth row and column only.
    """

    name: str
    betas: tuple[float, float, int]
    values: tuple[float, float, int]
    coarse: int = 1

    @property
    def across(self) -> np.ndarray:
        """The values of β."""
        return np.linspace(*self.betas)

    @property
    def upwards(self) -> np.ndarray:
        """The values of γ or ε."""
        return np.linspace(*self.values)


PLANES = {
    "gamma": Plane(name="gamma", betas=(1.1, 1.7, 200), values=(0.0, 250.0, 200)),
    "epsilon": Plane(name="epsilon", betas=(1.1, 1.7, 200), values=(0.0, 0.3, 200), coarse=4),
}


@cache
def start_of_planes() -> tuple[Network, Context, Context]:
    """The document's network, its initial context, and the random ones, the same in every cell.

    >>> network, start, others = start_of_planes()
    >>> start.attention.shape, others.attention.shape
    ((4, 3), (8, 4, 3))
    """
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
    exponent: Estimate
    attractors: np.ndarray
    regimes: np.ndarray


def cells(
    beta: np.ndarray,
    *,
    gamma: np.ndarray | float | None = None,
    epsilon: np.ndarray | float | None = None,
    transient: int = TRANSIENT,
    random: int = RANDOM,
) -> Cells:
    """Measure cells at β (n,) and γ, ε that broadcast to it; None: the document's.

    random: how many of the 8 random contexts are used; 0 leaves `attractors` and `regimes` zero.

    >>> found = cells(np.array([0.5]), transient=2000, random=2)
    >>> Regime(int(found.regime[0])).label, found.attractors, found.regimes
    ('periodic', array([1]), array([1]))
    """
    beta = check_array("beta", beta, ndim=1, low=0.0)
    random = check_integer("random", random, low=0, high=RANDOM)
    network, start, others = start_of_planes()
    gamma = np.broadcast_to(network.gamma if gamma is None else gamma, beta.shape)
    epsilon = np.broadcast_to(network.epsilon if epsilon is None else epsilon, beta.shape)
    shared: dict[str, Any] = {"transient": transient, "kept": KEPT, "exponents": 1, "bins": 1}
    found = find_attractors(
        network,
        start,
        beta=beta,
        gamma=gamma,
        epsilon=epsilon,
        exponent_steps=EXPONENT_STEPS,
        thresholds=SHORT_STRETCHES,
        **shared,
    )
    attractors = np.zeros(len(beta), dtype=int)
    regimes = np.zeros(len(beta), dtype=int)
    if random:
        # One batch: the contexts of a cell lie side by side.
        many: dict[str, Any] = {
            "beta": np.repeat(beta, random),
            "gamma": np.repeat(gamma, random),
            "epsilon": np.repeat(epsilon, random),
        }
        starts = Context(np.tile(others.attention[:random], (len(beta), 1, 1)), others.position)
        crowd = find_attractors(
            network,
            starts,
            exponent_steps=RANDOM_EXPONENT_STEPS,
            thresholds=SHORT_STRETCHES,
            **many,
            **shared,
        )
        prints = fingerprints(network, crowd.context, kept=KEPT, **many)
        rates = crowd.exponents
        for cell in range(len(beta)):
            mine = np.arange(cell * random, (cell + 1) * random)
            numbers = identify(
                prints.select(mine),
                exponent=Estimate(value=rates.value[mine, 0], error=rates.error[mine, 0]),
            )
            attractors[cell] = max(1, numbers.max() + 1)
            for bit, regime in enumerate((Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)):
                regimes[cell] += (crowd.regime[mine] == regime).any() << bit
    return Cells(
        regime=found.regime,
        period=found.period,
        exponent=Estimate(value=found.exponents.value[:, 0], error=found.exponents.error[:, 0]),
        attractors=attractors,
        regimes=regimes,
    )


def cells_of(
    name: str,
    *,
    betas: np.ndarray,
    values: np.ndarray,
    transient: int = TRANSIENT,
    random: int = RANDOM,
) -> Cells:
    """`cells` at β (n,) and `values` (n,) of γ or ε, whichever `name` says.

    >>> found = cells_of(
    ...     "gamma", betas=np.array([0.5]), values=np.array([10.0]), transient=2000, random=0
    ... )
    >>> found.period
    array([4])
    """
    gamma, epsilon = (values, None) if name == "gamma" else (None, values)
    return cells(betas, gamma=gamma, epsilon=epsilon, transient=transient, random=random)


def hysteresis(
    betas: np.ndarray,
    *,
    gamma: np.ndarray,
    epsilon: np.ndarray,
    transient: int = FOLLOW_TRANSIENT,
    kept: int = FOLLOW_KEPT,
) -> np.ndarray:
    """Where the way up in β and the way down end on different attractors: booleans (rows, n).

    betas: (n,) ascending; gamma, epsilon: (rows,). Every β starts where the one before ended, the
    first from the document's context; the two ways are compared by fingerprints and exponents
    (`identify`), after `transient` steps at every β.

    >>> hysteresis(
    ...     np.array([0.5, 0.6]), gamma=np.array([127.0]), epsilon=np.array([0.02]), kept=400
    ... )
    array([[False, False]])
    """
    betas = check_array("betas", betas, ndim=1, low=0.0)
    network, start, _ = start_of_planes()
    parameters: dict[str, Any] = {"gamma": gamma, "epsilon": epsilon}
    ways: list[list[tuple[Fingerprints, Estimate]]] = []
    for way in (betas, betas[::-1]):
        context, seen = start, []
        for beta in way:
            found = find_attractors(
                network,
                context,
                beta=float(beta),
                transient=transient,
                kept=2,
                exponents=1,
                exponent_steps=kept,
                bins=1,
                thresholds=SHORT_STRETCHES,
                **parameters,
            )
            prints = fingerprints(network, found.context, beta=float(beta), kept=kept, **parameters)
            context = prints.context
            rates = found.exponents
            seen.append((prints, Estimate(value=rates.value[:, 0], error=rates.error[:, 0])))
        ways.append(seen)
    differ = np.zeros((len(gamma), len(betas)), dtype=bool)
    for column, (up, down) in enumerate(zip(ways[0], ways[1][::-1], strict=True)):
        for row in range(len(gamma)):
            pair = [
                (prints.select(row), rate.value[row], rate.error[row])
                for prints, rate in (up, down)
            ]
            numbers = identify(
                Fingerprints(
                    moments=np.stack([one.moments for one, _, _ in pair]),
                    error=np.array([one.error for one, _, _ in pair]),
                    context=pair[0][0].context,
                ),
                exponent=Estimate(
                    value=np.array([rate for _, rate, _ in pair]),
                    error=np.array([error for _, _, error in pair]),
                ),
            )
            differ[row, column] = numbers[0] != numbers[1]
    return differ


def plane_rows(name: str, *, first: int, count: int) -> list[dict[str, Any]]:
    """Rows `first` to `first + count` of a plane, as `tables.read_plane` reads them.

    >>> sorted(PLANES)
    ['epsilon', 'gamma']
    """
    plane = PLANES[name]
    values, betas = plane.upwards[first : first + count], plane.across
    found = cells_of(
        name,
        betas=np.tile(betas, len(values)),
        values=np.repeat(values, len(betas)),
        random=RANDOM if plane.coarse == 1 else 0,
    )
    shape = (len(values), len(betas))
    crowd, some = found, betas
    chosen = [row for row in range(len(values)) if (first + row) % plane.coarse == 0]
    if plane.coarse > 1:
        some = betas[:: plane.coarse]
        crowd = cells_of(
            name,
            betas=np.tile(some, len(chosen)),
            values=np.repeat(values[chosen], len(some)),
        )
    own = start_of_planes()[0]
    rows: dict[str, Any] = {
        key: np.full(len(chosen), getattr(own, key)) for key in ("gamma", "epsilon")
    }
    rows[name] = values[chosen]
    differ = hysteresis(some, **rows)
    small = (len(chosen), len(some))

    def letters(codes: np.ndarray) -> str:
        # Letters: a row of digits would be read as one large number.
        return "".join(chr(ord("a") + int(code)) for code in codes)

    texts = {
        layer: dict(zip(chosen, map(letters, np.reshape(codes, small)), strict=True))
        for layer, codes in (
            ("attractors", crowd.attractors),
            ("regimes", crowd.regimes),
            ("hysteresis", differ),
        )
    }
    regime = found.regime.reshape(shape)
    thousandths = np.rint(1000.0 * found.exponent.value).astype(int).reshape(shape)
    return [
        {
            "row": first + row,
            "value": float(values[row]),
            "regime": letters(regime[row]),
            **{layer: text.get(row, "") for layer, text in texts.items()},
            "exponent": " ".join(str(rate) for rate in thousandths[row]),
        }
        for row in range(len(values))
    ]
