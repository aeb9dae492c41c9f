"""Escapes from chaos, and the lifetime that times until then give, some cut off by a horizon."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from scipy.special import chdtri

from spinformer.core.records import record

# A hole in the chaotic set lets many pass near it: one quiet stretch is no escape.
_IN_A_ROW = 3


@record
class Lifetime:
    """A lifetime with the interval that holds it; both infinite above where nothing ended."""

    value: float
    low: float
    high: float
    ended: int


def lifetime_estimate(times: ArrayLike, *, ended: ArrayLike) -> Lifetime:
    """Lifetime and its 95 % interval from times (n,), of which those not `ended` are censored.

    The likelihood of k ends in a total time T is maximal at τ = T/k; 2T/τ is χ² distributed with
    2k degrees of freedom if the k-th end stops the experiment, which gives the upper end; the
    lower end uses 2k + 2, which covers a fixed horizon, too (Epstein and Sobel 1953).
    """
    total, count = float(np.sum(times)), int(np.sum(ended))
    low = 2 * total / float(chdtri(2 * count + 2, 0.025))
    high = 2 * total / float(chdtri(2 * count, 0.975)) if count else np.inf
    return Lifetime(value=total / count if count else np.inf, low=low, high=high, ended=count)


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
