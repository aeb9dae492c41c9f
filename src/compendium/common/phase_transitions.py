"""The document's diagrams and their start; regimes found along them, counted and named."""

from collections import Counter
from functools import partial

import numpy as np

from spinformer.dmft.attractors import Attractors, Regime, Thresholds, find_attractors
from spinformer.dmft.mean_field import document_context
from spinformer.dmft.network import Context, Network

# Ranges of β of the document's two diagrams, and the values of β in each.
DIAGRAMS = {"wide": (0.0, 3.0), "zoom": (1.24, 1.28)}
COUNT = 4001

# For stretches of some thousand steps: averages have fewer digits there, exponents larger errors.
SHORT_STRETCHES = Thresholds(longest=512, digits_regular=5.0, neutral=4e-3)
# Regimes and leading exponents of orbits that are followed for a short while.
survey = partial(find_attractors, exponents=1, bins=1, thresholds=SHORT_STRETCHES)


def protocol_start(network: Network, *, steps: int) -> Context:
    """The initial context of [poclopez2024dynamical], rounded to eight decimals.

    Rounded, it is exactly the same state on every machine, and so is what starts from it.
    """
    found = document_context(network, beta=3.0, steps=steps)
    return Context(np.round(found.attention, 8), found.position)


def name(regime: Regime, period: int) -> str:
    """Regime and period in words."""
    return f"{Regime(regime).label}{f' {period}' if period else ''}"


def census(found: Attractors) -> dict[tuple[Regime, int], int]:
    """How many orbits of a batch (B,) have which regime and period, in the order of both."""
    kinds = zip(map(Regime, np.ravel(found.regime)), np.ravel(found.period).tolist(), strict=True)
    return dict(sorted(Counter(kinds).items()))
