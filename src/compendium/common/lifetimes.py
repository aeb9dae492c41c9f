"""The lifetime that times until an escape give, some of them cut off by a horizon."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from spinformer.core.records import record


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
