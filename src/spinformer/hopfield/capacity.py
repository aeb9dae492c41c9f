"""How much a discrete associative memory holds: what theory says.

Patterns are N = `count` rows of d = `dim` independent fair coins ±1; α = N/d is the load. The
experiments that these curves are held against are in `compendium.c11_discrete_memories.study`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erf, erfc, erfcinv, factorial2, gammaln

from spinformer.core.checks import check_instance, check_integer, check_real
from spinformer.hopfield.discrete import MAX_DEGREE, Separation, polynomial

# Sizes up to which powers of degree 20, and their squares, are ordinary numbers.
_MAX_DIM = 10**6
_MAX_COUNT = 10**150


def _load(y: float) -> float:
    """α at which the mean-field equation y(√(2α) + 2e^{−y²}/√π) = erf y has the root y."""
    return 0.5 * max(erf(y) / y - 2.0 * np.exp(-(y**2)) / np.sqrt(np.pi), 0.0) ** 2


@lru_cache(maxsize=1)
def ags_capacity() -> tuple[float, float]:
    """(α_c, m_c): the load at which retrieval disappears and the overlap just below it.

    Replica-symmetric mean field of the classical network at zero temperature, w_ii = 0
    [amit1985storing]: α(y) has one maximum, found to 1e-12 in y.

    >>> "{:.3f} {:.3f}".format(*ags_capacity())
    '0.138 0.967'
    """
    top = minimize_scalar(lambda y: -_load(y), bounds=(0.5, 3.0), options={"xatol": 1e-12})
    return float(_load(top.x)), float(erf(top.x))


def ags_overlap(load: float) -> float:
    """Overlap m of the retrieval state at α = `load` ≥ 0, zero above α_c [amit1985storing].

    >>> ags_overlap(0.0), ags_overlap(0.2)
    (1.0, 0.0)
    """
    load = check_real("load", load, low=0.0)
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


def bit_error(dim: int, *, count: int, degree: int) -> float:
    """P(a spin of a stored pattern is turned by one update), F = x^degree, `count` patterns.

    ½ erfc √(d^{a−1} / (2(2a−3)!! N)) [krotov2016dense]: the other patterns act as Gaussian
    noise, to leading order in 1/d.

    >>> f"{bit_error(100, count=14, degree=2):.4f}"
    '0.0038'
    """
    dim = check_integer("dim", dim, low=1, high=_MAX_DIM)
    count = check_integer("count", count, low=1, high=_MAX_COUNT)
    degree = check_integer("degree", degree, low=2, high=MAX_DEGREE)
    ratio = float(dim) ** (degree - 1) / (factorial2(2 * degree - 3) * count)
    return float(0.5 * erfc(np.sqrt(ratio / 2.0)))


def bit_error_at_finite_size(dim: int, *, count: int, separation: Separation) -> float:
    """The same probability with the signal and the noise variance exact at finite d, any F.

    Signal F(d) − F(d−2) and, for each of the N − 1 other patterns, the variance of
    F(h+1) − F(h−1) with h the sum of d − 1 fair signs; the sum is still taken as Gaussian.

    >>> f"{bit_error_at_finite_size(100, count=15, separation=polynomial(2)):.4f}"
    '0.0039'
    """
    dim = check_integer("dim", dim, low=1, high=_MAX_DIM)
    count = check_integer("count", count, low=1, high=_MAX_COUNT)
    check_instance("separation", separation, Separation)
    if count == 1:
        return 0.0
    return float(0.5 * erfc(np.sqrt(_signal_to_noise(dim, separation) / (2.0 * (count - 1)))))


def capacity_at_error(dim: int, *, degree: int, error: float) -> float:
    """N at which one update turns a fraction `error` in (0, ½) of a stored pattern's spins.

    The inverse of `bit_error_at_finite_size`.

    >>> f"{capacity_at_error(100, degree=2, error=0.0039):.0f}"
    '15'
    """
    dim = check_integer("dim", dim, low=2, high=_MAX_DIM)
    degree = check_integer("degree", degree, low=2, high=MAX_DEGREE)
    error = check_real("error", error, low=0.0, high=0.5, open_low=True)
    if error == 0.5:
        raise ValueError("error must be below 0.5, where the capacity is infinite")
    quantile = 2.0 * float(erfcinv(2.0 * error)) ** 2
    return 1.0 + _signal_to_noise(dim, polynomial(degree)) / quantile


def _signal_to_noise(dim: int, separation: Separation) -> float:
    """(signal)² over the noise variance of one other pattern, exact at finite d."""
    steps = np.arange(dim)
    h = 2.0 * steps - (dim - 1)
    # Binomial; scipy.stats would double the time this room takes to import.
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

    >>> f"{birthday_law(10, count=2**5):.4f}"
    '0.0079'
    """
    dim = check_integer("dim", dim, low=1)
    # There are 2^d states; no smaller limit, for the count need not fit into a machine's word.
    count = check_integer("count", count, low=1, high=2 ** max(dim, 63))
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

    >>> f"{exponential_rate(0.0):.4f}"
    '0.3466'
    """
    corruption = check_real("corruption", corruption, low=0.0, high=0.5)
    x = 1.0 - 2.0 * corruption
    terms = [(1 + s * x) * np.log(1 + s * x) if 1 + s * x > 0 else 0.0 for s in (1, -1)]
    return float(0.25 * sum(terms))
