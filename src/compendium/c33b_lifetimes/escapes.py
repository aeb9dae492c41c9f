"""How long chaos lasts: escape times of copies of one start, and the lifetime that they give.

Far from the hole through which chaos ends an orbit has forgotten its start, so the times are
exponential, P(t > s) = exp(−s/τ), and one number, the lifetime τ in steps, says all
(Tél and Lai 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from compendium.common.lifetimes import Lifetime, lifetime_estimate
from spinformer.core.records import record
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import growth_rates
from spinformer.dmft.network import Context, Network

# A hole in the chaotic set lets many pass near it: one quiet stretch is no escape.
_IN_A_ROW = 3


@record
class Escapes:
    """Escape times (B,) in steps, the horizon for copies that never escaped; the states at the end.

    returned: whether chaos came back later, which exponential times exclude. growth: (n, B) mean
    growth rate of a tangent vector in each stretch of `stretch` steps.
    """

    times: np.ndarray
    escaped: np.ndarray
    returned: np.ndarray
    growth: np.ndarray
    stretch: int
    context: Context

    def lifetime(self) -> Lifetime:
        """Lifetime of the chaos, with its interval, from escaped and censored times."""
        return lifetime_estimate(self.times, ended=self.escaped)


def escapes_of(growth: np.ndarray, *, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First stretch of an escape, whether there was one, and whether chaos returned, each (B,).

    A copy escapes at the first of three stretches in a row whose growth (n, B) is below `rate`.
    """
    quiet = growth < rate
    runs = sliding_window_view(quiet, _IN_A_ROW, axis=0).all(axis=-1)
    escaped = runs.any(axis=0)
    first = np.where(escaped, runs.argmax(axis=0), len(quiet))
    later = np.arange(len(quiet))[:, None] >= first
    return first, np.asarray(escaped), np.asarray((later & ~quiet).any(axis=0))


def escape_times(
    network: Network,
    context: Context,
    *,
    beta: float,
    rate: float,
    horizon: int,
    stretch: int = 5000,
    transient: int = 5000,
) -> Escapes:
    """Follow copies, contexts (B, T, P), for `horizon` steps and see which leave their chaos.

    `transient` steps, in which copies of one start part, are dropped first. rate: growth between that
    on the chaotic set and that of the attractors beside it. A time is known to one `stretch`.
    """
    ensemble = Ensemble(network, context, beta=beta)
    ensemble.advance(transient)
    rates, last = growth_rates(
        network, ensemble.state(), beta=beta, stretches=horizon // stretch, stretch=stretch
    )
    first, escaped, returned = escapes_of(rates.T, rate=rate)
    return Escapes(
        times=first * stretch,
        escaped=escaped,
        returned=returned,
        growth=rates.T,
        stretch=stretch,
        context=last,
    )
