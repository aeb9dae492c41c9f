"""The start of the document's diagrams, and regimes counted and named."""

from collections import Counter

import numpy as np

from spinformer.dmft.attractors import Attractors, Regime
from spinformer.dmft.mean_field import document_context
from spinformer.dmft.network import Context, Network


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
