"""How much a discrete associative memory holds: what theory says.

Patterns are N = `count` rows of d = `dim` independent fair coins ±1; α = N/d is the load. The
experiments that these curves are held against are in `study`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erf, erfcinv, gammaln

from spinformer.hopfield.discrete import Separation, polynomial


def _load(y: float) -> float:
    """α at which the mean-field equation y(√(2α) + 2e^{−y²}/√π) = erf y has the root y."""
    return 0.5 * max(erf(y) / y - 2.0 * np.exp(-(y**2)) / np.sqrt(np.pi), 0.0) ** 2


@lru_cache(maxsize=1)
def ags_capacity() -> tuple[float, float]:
    """(α_c, m_c): the load at which retrieval disappears and the overlap just below it.

    Replica-symmetric mean field of the classical network at zero temperature, w_ii = 0
    [amit1985storing]: α(y) has one maximum, found to 1e-12 in y.
    """
    top = minimize_scalar(lambda y: -_load(y), bounds=(0.5, 3.0), options={"xatol": 1e-12})
    return float(_load(top.x)), float(erf(top.x))


def ags_overlap(load: float) -> float:
    """Overlap m of the retrieval state at α = `load` ≥ 0, zero above α_c [amit1985storing]."""
    if load < 1e-3:  # y > 20 there, where erf y is 1 to the last digit
        return 1.0
    capacity, _ = ags_capacity()
    if load > capacity:
        return 0.0
    top = float(minimize_scalar(lambda y: -_load(y), bounds=(0.5, 3.0)).x)
    # α falls with y on the retrieval branch, y ≥ its maximum; y² ~ 1/(2α) bounds it above.
    end = 1.0 / np.sqrt(2.0 * load) + top + 1.0
    if _load(top) <= load:
        return float(erf(top))
    return float(erf(brentq(lambda y: _load(y) - load, top, end, xtol=1e-13)))


def capacity_at_error(dim: int, *, degree: int, error: float) -> float:
    """N at which one update turns a fraction `error` in (0, ½) of a stored pattern's spins.

    The overlaps with the other patterns act as Gaussian noise; their variance is exact at finite d.
    """
    quantile = 2.0 * float(erfcinv(2.0 * error)) ** 2
    return 1.0 + signal_to_noise(dim, polynomial(degree)) / quantile


def signal_to_noise(dim: int, separation: Separation) -> float:
    """(signal)² over the noise variance of one other pattern, exact at finite d."""
    steps = np.arange(dim)
    h = 2.0 * steps - (dim - 1)
    weight = np.exp(
        gammaln(dim) - gammaln(steps + 1) - gammaln(dim - steps) - (dim - 1) * math.log(2)
    )
    noise = (separation(h + 1) - separation(h - 1)) ** 2 @ weight
    top, below = separation(np.array([dim, dim - 2.0]))
    return float((top - below) ** 2 / noise)


def birthday_law(dim: int, *, count: int) -> float:
    """P(all N patterns are fixed points), F = exp: exp(−N(N−1)d / 2^{d+1}).

    A pattern is lost if another differs from it in a single spin: the pair then shares one
    minimum, and one of the two is not it. N(N−1)/2 pairs do so with probability d/2^d each
    [bal2020energy, Sec. 3].
    """
    if count == 1:
        return 1.0
    # In logarithms, which hold any integer.
    pairs = math.log(count) + math.log(count - 1) + math.log(dim) - (dim + 1) * math.log(2.0)
    return math.exp(-math.exp(min(pairs, 700.0)))


def exponential_rate(corruption: float) -> float:
    """The largest a such that N = e^{ad} patterns are provably retrieved, F = exp, d → ∞.

    From states with a fraction `corruption` in [0, ½) of the spins flipped: I(1 − 2ρ)/2 with
    I(x) = ½[(1+x) ln(1+x) + (1−x) ln(1−x)] [demircigil2017model, Theorem 3]; ρ = 0 gives
    ½ ln 2, the 2^{d/2} of [bal2020energy, Sec. 3].
    """
    x = 1.0 - 2.0 * corruption
    terms = [(1 + s * x) * np.log(1 + s * x) if 1 + s * x > 0 else 0.0 for s in (1, -1)]
    return float(0.25 * sum(terms))
