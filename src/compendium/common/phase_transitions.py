"""What chapter 33 computes beyond the theory: the protocol's start, a census, families followed.

Conventions of `spinformer.dmft`: β an inverse temperature, contexts newest first.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_integer, check_real
from spinformer.core.records import record
from spinformer.dmft.attractors import (
    Attractors,
    Continuation,
    Regime,
    Thresholds,
    continue_attractors,
)
from spinformer.dmft.mean_field import document_context
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context


def protocol_start(network: Network, *, steps: int, digits: int = 8) -> Context:
    """The initial context of [poclopez2024dynamical], rounded to `digits` decimals.

    Rounded, it is exactly the same state on every machine, and so is what starts from it.

    >>> start = protocol_start(Network.document(), steps=100)
    >>> bool((start.attention == start.attention.round(8)).all())
    True
    """
    digits = check_integer("digits", digits, low=1)
    found = document_context(network, beta=3.0, steps=steps)
    return Context(np.round(found.attention, digits), found.position)


def name(regime: Regime, period: int) -> str:
    """Regime and period in words.

    >>> name(Regime.PERIODIC, 28), name(Regime.CHAOTIC, 0)
    ('periodic 28', 'chaotic')
    """
    return f"{Regime(regime).label}{f' {period}' if period else ''}"


def census(found: Attractors) -> dict[tuple[Regime, int], int]:
    """How many orbits of a batch (B,) have which regime and period, in the order of both.

    >>> from spinformer.dmft import find_attractors
    >>> starts = Context(np.linspace(-0.1, 0.1, 36).reshape(3, 4, 3), 0)
    >>> found = find_attractors(
    ...     Network.document(), starts, beta=0.5, transient=2000, kept=100, exponents=0, bins=1
    ... )
    >>> for (regime, period), orbits in census(found).items():
    ...     print(regime.label, period, orbits)
    periodic 4 3
    """
    pairs = list(zip(np.ravel(found.regime), np.ravel(found.period), strict=True))
    return {
        (Regime(int(regime)), int(period)): pairs.count((regime, period))
        for regime, period in sorted(set(pairs))
    }


@record
class Families:
    """Attractors of different periods at β = `middle`, followed up and down from there.

    periods: what each family has at `middle`. up, down: from `middle` outwards. back_down,
    back_up: from the ends of these back to `middle`.

    >>> from spinformer.dmft import find_attractors
    >>> starts = Context(np.linspace(-0.1, 0.1, 36).reshape(3, 4, 3), 0)
    >>> machine, legs = Network.document(), {"low": 0.4, "middle": 0.5, "high": 0.6, "count": 2}
    >>> found = find_attractors(
    ...     machine, starts, beta=0.5, transient=2000, kept=100, exponents=0, bins=1
    ... )
    >>> families = follow_families(machine, found, thresholds=Thresholds(), **legs)
    >>> families.periods, families.exponent(0).shape
    ([4], (3,))
    """

    periods: list[int]
    up: Continuation
    down: Continuation
    back_down: Continuation
    back_up: Continuation

    @property
    def betas(self) -> np.ndarray:
        """All values of β visited outwards, ascending."""
        return np.concatenate([self.down.betas[::-1], self.up.betas[1:]])

    def period(self, family: int) -> np.ndarray:
        """Period of one family at `betas`, 0 where there is none."""
        return np.concatenate([self.down.period[::-1, family], self.up.period[1:, family]])

    def exponent(self, family: int) -> np.ndarray:
        """Leading exponent of one family at `betas`."""
        up, down = self.up.exponent.value, self.down.exponent.value
        return np.concatenate([down[::-1, family], up[1:, family]])


def follow_families(
    network: Network,
    found: Attractors,
    *,
    low: float,
    middle: float,
    high: float,
    count: int,
    thresholds: Thresholds,
) -> Families:
    """Follow one attractor of each period in `found`, a batch (B,) at β = `middle`.

    Each leg has `count` values of β, from `middle` to `low` or `high`; each starts where the one
    before ended (`continue_attractors`). Raises ValueError unless low ≤ middle ≤ high.

    >>> from spinformer.dmft import find_attractors
    >>> starts = Context(np.linspace(-0.1, 0.1, 36).reshape(3, 4, 3), 0)
    >>> network = Network.document()
    >>> found = find_attractors(
    ...     network, starts, beta=0.5, transient=2000, kept=100, exponents=0, bins=1
    ... )
    >>> families = follow_families(
    ...     network, found, low=0.4, middle=0.5, high=0.6, count=2, thresholds=Thresholds()
    ... )
    >>> families.betas, families.period(0)
    (array([0.4, 0.5, 0.6]), array([4, 4, 4]))
    """
    low = check_real("low", low, low=0.0)
    middle = check_real("middle", middle, low=low)
    high = check_real("high", high, low=middle)
    count = check_integer("count", count, low=2)
    periods = sorted(set(found.period.tolist()))
    start = found.context.select([int(np.flatnonzero(found.period == p)[0]) for p in periods])
    above, below = np.linspace(middle, high, count), np.linspace(middle, low, count)
    up = continue_attractors(network, start, above, thresholds=thresholds)
    down = continue_attractors(network, start, below, thresholds=thresholds)
    return Families(
        periods=periods,
        up=up,
        down=down,
        back_down=continue_attractors(network, up.context, above[::-1], thresholds=thresholds),
        back_up=continue_attractors(network, down.context, below[::-1], thresholds=thresholds),
    )
