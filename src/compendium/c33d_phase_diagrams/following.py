"""Attractors followed along β and matched by identity, with the shares of their basins.

At every β the attractors found at the one before are tried again from where they ended, and
random contexts are run beside them. What all these end on is told apart by `identity.identify`;
an attractor carries the name of the one before whose fingerprint is nearest (the pairing with the
least sum of distances), if that is no further than a given reach. What has no partner gets a new
name, and a name without a partner ends. No threshold changes along the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from compendium.c33d_phase_diagrams.identity import Fingerprints, fingerprints, identify, separation
from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, share_interval
from spinformer.dmft.attractors import Thresholds, find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context


@record
class Followed:
    """One entry for each attractor at each β; all arrays (n,), in the order visited.

    beta: where. name: which attractor, the same integer as long as it is matched. regime, period,
    exponent: as in `attractors.Attractors`. orbits: how many of the `trials` random contexts end
    on it; low, high: Wilson's interval of their share. context: one state (n, T, P) on each.
    unresolved: (number of β,) random contexts that could not be assigned.
    """

    beta: np.ndarray
    name: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    orbits: np.ndarray
    trials: int
    low: np.ndarray
    high: np.ndarray
    context: Context
    unresolved: np.ndarray


def match_attractors(before: Fingerprints, *, after: Fingerprints, reach: float) -> np.ndarray:
    """Index of the attractor of `before` (n,) that each one of `after` (m,) continues, or −1.

    The pairing with the smallest sum of distances between fingerprints (`identity.separation`);
    pairs further apart than `reach` do not count.

    >>> from compendium.c33d_phase_diagrams.identity import fingerprints
    >>> starts = Context(np.full((1, 4, 3), 0.1), 0)
    >>> one, other = (
    ...     fingerprints(Network.document(), starts, beta=beta, transient=400, kept=400)
    ...     for beta in (0.5, 0.51)
    ... )
    >>> [match_attractors(one, after=other, reach=reach).tolist() for reach in (0.01, 0.0)]
    [[0], [-1]]
    """
    reach = check_real("reach", reach, low=0.0)
    check_instance("before", before, Fingerprints)
    check_instance("after", after, Fingerprints)
    old, new = len(before.error), len(after.error)
    gap = np.array([separation(before, other=after.select(index)) for index in range(new)])
    gap = gap.reshape(new, old)
    found = np.full(new, -1)
    # What is too far costs the same everywhere: it must not decide between near ones.
    for row, column in zip(*linear_sum_assignment(np.minimum(gap, 2 * reach)), strict=True):
        if gap[row, column] <= reach:
            found[row] = column
    return found


def global_continuation(
    network: Network,
    context: Context,
    betas: np.ndarray,
    *,
    thresholds: Thresholds,
    reach: float,
    gamma: float | None = None,
    epsilon: float | None = None,
    transient: int = 20_000,
    kept: int = 4_000,
    exponent_steps: int = 4_000,
    threads: int | None = None,
) -> Followed:
    """Follow all attractors that the random contexts (B, T, P) find, through `betas` in order.

    Names, shares and matching as in `Followed` and `match_attractors`. An attractor whose name
    goes on though no random context ends on it was reached from its own last state.

    >>> starts = Context(np.linspace(-0.1, 0.1, 36).reshape(3, 4, 3), 0)
    >>> found = global_continuation(
    ...     Network.document(), starts, np.array([0.5, 0.51]), thresholds=Thresholds(longest=64),
    ...     reach=0.01, transient=2000, kept=400, exponent_steps=400,
    ... )
    >>> found.name, found.period, found.orbits
    (array([0, 0]), array([4, 4]), array([3, 3]))
    """
    betas = check_array("betas", betas, ndim=1, low=0.0)
    check_integer("number of betas", len(betas), low=1)
    check_instance("context", context, Context)
    if context.attention.ndim != 3:
        raise ValueError(f"context must hold contexts (B, T, P), got {context.attention.shape}")
    drawn = len(context.attention)
    entries: list[dict[str, Any]] = []
    states, unresolved = [], []
    last: Fingerprints | None = None
    names: list[int] = []
    fresh = 0
    for beta in betas:
        starts = context
        if last is not None:
            both = np.concatenate([context.attention, last.context.attention])
            starts = Context(both, context.position)
        parameters: dict[str, Any] = {
            "beta": float(beta),
            "gamma": gamma,
            "epsilon": epsilon,
            "threads": threads,
        }
        found = find_attractors(
            network,
            starts,
            transient=transient,
            kept=kept,
            exponents=1,
            exponent_steps=exponent_steps,
            bins=1,
            thresholds=thresholds,
            **parameters,
        )
        prints = fingerprints(network, found.context, kept=kept, **parameters)
        rate = Estimate(value=found.exponents.value[:, 0], error=found.exponents.error[:, 0])
        numbers = identify(prints, exponent=rate)
        heads = [
            min(np.flatnonzero(numbers == number), key=lambda orbit: prints.error[orbit])
            for number in range(numbers.max() + 1)
        ]
        chosen = prints.select(np.array(heads))
        # All states are handed on at one position of the clock.
        ensemble = Ensemble(network, chosen.context, **parameters)
        ensemble.advance((context.position - chosen.context.position) % network.positions)
        now = replace(chosen, context=ensemble.state())
        old = (
            np.full(len(heads), -1)
            if last is None
            else match_attractors(last, after=now, reach=reach)
        )
        renamed = []
        for index in old:
            renamed.append(names[index] if index >= 0 else fresh)
            fresh += index < 0
        names, last = renamed, now
        unresolved.append(int((numbers[:drawn] == -1).sum()))
        for number, (name, head) in enumerate(zip(names, heads, strict=True)):
            orbits = int((numbers[:drawn] == number).sum())
            low, high = share_interval(orbits, trials=drawn)
            entries.append(
                {
                    "beta": float(beta),
                    "name": name,
                    "regime": int(found.regime[head]),
                    "period": int(found.period[head]),
                    "exponent": float(rate.value[head]),
                    "orbits": orbits,
                    "low": low,
                    "high": high,
                }
            )
        states.append(now.context.attention)
    columns = {key: np.array([entry[key] for entry in entries]) for key in entries[0]}
    return Followed(
        **columns,
        trials=drawn,
        context=Context(np.concatenate(states), context.position),
        unresolved=np.array(unresolved),
    )
