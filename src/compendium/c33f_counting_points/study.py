"""Regimes by the number of distinct points of a bifurcation diagram, beside Lyapunov exponents.

Poc-López and Aguilera tell regimes apart by eye and by the number of points in the diagram. Here
the number of points is the number of narrow bins that an overlap visits, and two thresholds on it
make the three regimes: few points are a cycle, many a closed curve, most of all chaos. The
thresholds are learned on the published network, whose diagram the authors saw, and are judged on
others.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product
from spinformer.core.regimes import Regime
from spinformer.core.statistics import wilson_interval
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network

# Regimes by the number of their points, as the counting has it.
ORDER = (Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC)
ASKED = 0.9  # part of the values of β that must get the right label
VALUES = 101  # inverse temperatures of a network
ROLES = ("output", "value", "query", "key")


class Counts(NamedTuple):
    """Regimes by exponents, and the number of points in the diagram of one overlap, by β."""

    regime: np.ndarray
    points: np.ndarray

    def decided(self) -> "Counts":
        """The values of β whose exponents name one of the three regimes."""
        known = np.isin(self.regime, ORDER)
        return Counts(self.regime[known], self.points[known])


def with_first_overlap(network: Network, overlap: int) -> Network:
    """The same network with its features renumbered: the diagram draws the first overlap."""
    order = np.r_[overlap, np.delete(np.arange(network.features), overlap)]
    return Network(
        semantic=network.semantic[:, order],
        position=network.position[:, order],
        context=network.context,
        gamma=network.gamma,
        epsilon=network.epsilon,
        fractions=network.fractions,
    )


def count_points(
    network: Network,
    betas: np.ndarray,
    *,
    seed: int,
    kept: int,
    bins: int,
    overlap: int = 0,
    transient: int = 20_000,
) -> Counts:
    """Regimes and numbers of points of one random context at each inverse temperature (n,)."""
    context = random_contexts(network, seed, count=1).select(0)
    order = np.r_[overlap, np.delete(np.arange(network.features), overlap)]
    context = type(context)(context.attention[:, order], context.position)
    found = find_attractors(
        with_first_overlap(network, overlap),
        context,
        beta=betas,
        transient=transient,
        kept=kept,
        exponents=2,
        exponent_steps=5000,
        bins=bins,
    )
    return Counts(found.regime, (found.histogram > 0).sum(axis=-1))


def label_by_points(points: np.ndarray, thresholds: tuple[float, float]) -> np.ndarray:
    """Regimes from numbers of points: few are a cycle, more than the second threshold chaos."""
    return np.array(ORDER)[np.searchsorted(thresholds, points, side="left")]


def best_thresholds(counts: Counts) -> tuple[float, float]:
    """The two thresholds with which most labels agree with those by exponents."""
    levels = np.unique(counts.points)
    between = np.sqrt(levels[1:] * levels[:-1])
    choices = np.r_[0.5, between, 2.0 * levels[-1]]
    # How many of each regime lie at or below each choice.
    below = np.array(
        [
            np.searchsorted(np.sort(counts.points[counts.regime == kind]), choices, side="right")
            for kind in ORDER
        ]
    )
    cycles, curves, chaos = below
    # Cycles below the first threshold, curves between the two, chaos above the second.
    right = cycles[:, None] + (curves - curves[:, None]) + (chaos[-1] - chaos)
    right[np.tril_indices(len(choices), -1)] = -1
    first, second = np.unravel_index(right.argmax(), right.shape)
    return float(choices[first]), float(choices[second])


@cache
def published_thresholds(kept: int, bins: int) -> tuple[float, float]:
    """The thresholds that suit the published network between β = 1.2 and 1.4."""
    betas = np.linspace(1.2, 1.4, VALUES)
    counts = count_points(Network.poclopez2024(), betas, seed=0, kept=kept, bins=bins)
    return best_thresholds(counts.decided())


def _fraction_row(right: np.ndarray, **choices: str | int) -> dict[str, object]:
    """A line of a robustness table: the fraction that is right minus 0.9, with its interval."""
    low, high = wilson_interval(int(right.sum()), trials=len(right))
    return {
        **choices,
        "value": right.mean() - ASKED,
        "low": low - ASKED,
        "high": high - ASKED,
        "runs": len(right),
    }


def _labelled(data: int, kept: int, bins: int) -> tuple[Counts, np.ndarray]:
    """Decided regimes of a random network, and what the published thresholds call them."""
    betas = np.linspace(0.6, 3.0, VALUES)
    counts = count_points(Network.segmented(data), betas, seed=data, kept=kept, bins=bins).decided()
    return counts, label_by_points(counts.points, published_thresholds(kept, bins))


def cycle_labels(data: int, kept: int, bins: int) -> Rows:
    """Fraction of β at which a cycle is called one, and nothing else, minus 0.9."""
    counts, labels = _labelled(data, kept, bins)
    same = (counts.regime == Regime.PERIODIC) == (labels == Regime.PERIODIC)
    return [_fraction_row(same, question="cycle or not")]


def both_labels(data: int, kept: int, bins: int) -> Rows:
    """Two questions: cycle or not, and closed curve or chaos where it is no cycle."""
    counts, labels = _labelled(data, kept, bins)
    other = (counts.regime != Regime.PERIODIC) & (labels != Regime.PERIODIC)
    right = (labels == counts.regime)[other]
    return [
        *cycle_labels(data, kept, bins),
        _fraction_row(right, question="curve or chaos"),
    ]


def same_labels(data: int, kept: int, bins: int) -> Rows:
    """Fraction of β at which another overlap gives the label of the first, minus 0.9."""
    network = Network.segmented(data)
    betas = np.linspace(0.6, 3.0, VALUES)
    thresholds = published_thresholds(kept, bins)
    labels = [
        label_by_points(
            count_points(network, betas, seed=data, kept=kept, bins=bins, overlap=overlap).points,
            thresholds,
        )
        for overlap in range(network.features)
    ]
    return [
        _fraction_row(labels[overlap] == labels[0], overlap=overlap + 1)
        for overlap in range(1, network.features)
    ]


# The first random networks from seed 4000 on that show two regimes or more, and the next ones.
NETWORKS = (4009, 4018, 4024, 4025, 4036, 4037, 4041, 4052, 4071, 4115, 4138, 4144)
FRESH_NETWORKS = (
    4000,
    4016,
    4020,
    4031,
    4058,
    4068,
    4085,
    4088,
    4094,
    4098,
    4114,
    4132,
    4135,
    4147,
)
_LOOSE = {"value": 0.1, "low": 0.1, "high": 0.1, "runs": 5}

settings_c24 = stored(
    "settings_C24",
    parameter_product(data=NETWORKS, kept=(2000, 20_000), bins=(2000, 20_000)),
    seconds=3,
    within=_LOOSE,
)(both_labels)

fresh_table = stored(
    "fresh",
    parameter_product(data=FRESH_NETWORKS, kept=(5000, 40_000), bins=(5000, 40_000)),
    seconds=4,
    within=_LOOSE,
)(cycle_labels)

settings_c25 = stored(
    "settings_C25",
    parameter_product(data=NETWORKS, kept=(2000, 20_000), bins=(2000, 20_000)),
    seconds=3,
    within=_LOOSE,
)(same_labels)


@stored(
    "counts",
    parameter_product(beta_from=(1.2, 1.24, 1.28, 1.32, 1.36)),
    seconds=3,
    within={"points": 5000},
)
def counts_table(beta_from: float) -> Rows:
    """Regime and number of points of the published network, forty values of β in each stretch."""
    betas = np.linspace(beta_from, beta_from + 0.04, 41)[:-1]
    counts = count_points(Network.poclopez2024(), betas, seed=0, kept=20_000, bins=20_000)
    return [
        {"beta": beta, "regime": regime, "points": points}
        for beta, regime, points in zip(
            betas.tolist(), counts.regime.tolist(), counts.points.tolist(), strict=True
        )
    ]


def role_overlaps(network: Network, output: np.ndarray) -> np.ndarray:
    """Overlaps (..., 4, P) with the features of all roles from those of the output (..., P).

    With as many segments as features the output overlaps give the means of a token, and these give
    all other overlaps.
    """
    maps = network.semantic @ np.linalg.inv(network.semantic[0])
    return np.asarray(np.einsum("rab,...b->...ra", maps, output))


@stored(
    "roles",
    parameter_product(kept=(2000, 20_000), bins=(2000, 20_000)),
    seconds=3,
    within=_LOOSE,
)
def roles_table(kept: int, bins: int) -> Rows:
    """Fraction of β at which any overlap of the published network has the label of the first."""
    network = Network.poclopez2024()
    betas = np.linspace(1.2, 1.4, VALUES)
    context = random_contexts(network, 0, count=1).select(0)
    output, _ = trajectory(network, context, beta=betas, steps=kept, transient=20_000)
    visited = np.floor(0.5 * bins * (role_overlaps(network, output) + 1.0))
    thresholds = published_thresholds(kept, bins)
    labels = {}
    for place, role in enumerate(ROLES):
        for number in range(network.features):
            points = [len(np.unique(run)) for run in visited[..., place, number]]
            labels[role, number + 1] = label_by_points(np.array(points), thresholds)
    first = labels.pop(("output", 1))
    return [
        _fraction_row(same == first, role=role, overlap=number)
        for (role, number), same in labels.items()
    ]
