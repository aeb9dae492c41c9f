"""Regimes of orbits that are followed for a short while, their labels, and how many there are."""

from collections import Counter
from functools import partial

import numpy as np

from spinformer.core.checks import check_instance, check_integer
from spinformer.dmft.attractors import Attractors, Regime, Thresholds, find_attractors

# For stretches of some thousand steps: averages have fewer digits there, exponents larger errors.
SHORT_STRETCHES = Thresholds(longest=512, digits_regular=5.0, neutral=4e-3)
# Regimes and leading exponents of orbits that are followed for a short while.
classify_regimes = partial(find_attractors, exponents=1, bins=1, thresholds=SHORT_STRETCHES)


def regime_label(regime: int, period: int) -> str:
    """Label of a regime and its period in words.

    Parameters
    ----------
    regime : int
        Value of `Regime`.
    period : int
        Period in steps, 0 for none.

    Returns
    -------
    str
        The label.

    Raises
    ------
    ValueError
        If `regime` is not a value of `Regime`, or `period` is negative.

    Examples
    --------
    >>> regime_label(Regime.PERIODIC, 4), regime_label(Regime.CHAOTIC, 0)
    ('periodic 4', 'chaotic')
    """
    label = Regime(check_integer("regime", regime, low=0, high=max(Regime))).label
    period = check_integer("period", period, low=0)
    return f"{label} {period}" if period else label


def count_regimes(attractors: Attractors) -> dict[tuple[Regime, int], int]:
    """Count the orbits of a batch by regime and period.

    Parameters
    ----------
    attractors : Attractors
        Attractors of a batch of orbits.

    Returns
    -------
    dict of (Regime, int) to int
        Number of orbits of each regime and period, in the order of both.

    Raises
    ------
    TypeError
        If `attractors` is no `Attractors`.

    Examples
    --------
    >>> from spinformer.dmft.network import Context, Network
    >>> starts = Context(np.full((5, 4, 3), 0.1), 0)
    >>> found = classify_regimes(
    ...     Network.poclopez2024(), starts, beta=0.5, transient=2000, kept=2000, exponent_steps=1000
    ... )
    >>> count_regimes(found)
    {(<Regime.PERIODIC: 0>, 4): 5}
    """
    check_instance("attractors", attractors, Attractors)
    regimes = [Regime(regime) for regime in np.ravel(attractors.regime)]
    periods = np.ravel(attractors.period).tolist()
    return dict(sorted(Counter(zip(regimes, periods, strict=True)).items()))
