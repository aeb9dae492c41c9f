"""Attractors followed along β."""

from __future__ import annotations

import numpy as np

from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import SHORT_STRETCHES, find_attractors
from spinformer.dmft.network import Context, Network


@record
class Continuation:
    """Attractors followed along β.

    betas: (n,), in the order visited. regime, period, exponent (the leading one): (n, B).
    context: states at the end.
    """

    betas: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: Estimate
    context: Context


def continue_attractors(
    network: Network, context: Context, betas: np.ndarray, *, transient: int = 2000
) -> Continuation:
    """Follow a batch of contexts (B, T, P) through `betas` in the order given, up or down.

    Each β starts where the last one ended, so an attractor is followed past the point where
    others appear, until it loses its stability.
    """
    rows = []
    for beta in betas:
        found = find_attractors(
            network, context, beta=float(beta), transient=transient, kept=2000, bins=1,
            exponent_steps=2000, exponents=1, thresholds=SHORT_STRETCHES,
        )  # fmt: skip
        context = found.context
        rows.append(found)
    leading = [found.exponents for found in rows]
    return Continuation(
        betas=betas,
        regime=np.stack([found.regime for found in rows]),
        period=np.stack([found.period for found in rows]),
        exponent=Estimate(
            value=np.stack([rate.value[..., 0] for rate in leading]),
            error=np.stack([rate.error[..., 0] for rate in leading]),
            samples=leading[0].samples,
        ),
        context=context,
    )
