"""Special functions: integrals over spheres in D dimensions, and Gaussian expectations."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ive, logsumexp

from spinformer.core.checks import check_array, check_function, check_integer, check_real

# The k of tanh(kz) that an average is always made for, and up to which nodes are made at all.
_STEEP = 50.0
_STEEPEST = 4e4

# The last nodes of an average, and those for functions that grow fast: the weights end at 1e-314.
_REACH = 9.0
_FAR_REACH = 38.0

# Scaled Bessel functions below this have lost digits or are about to.
_UNDERFLOW = 1e-250
# Beyond, the library's Bessel functions give NaN.
_LARGEST_BESSEL = 1e9
# Terms of a power series: more take memory, and there the asymptotic expansion is exact.
_MOST_TERMS = 1e6


def gaussian_expectation(
    function: Callable[[np.ndarray], np.ndarray], *, steepness: float = 1.0
) -> float:
    r"""Gaussian expectation of a function of one variable.

    Parameters
    ----------
    function : callable
        Maps an array of 3,000 or more nodes to an array of the same shape. What it returns must be
        finite for |z| ≤ 9, and up to 38 where it grows so fast that more nodes count.
    steepness : float, default 1.0
        Steepness k, at most 4e4, if the function is as steep as tanh(kz), for example a function
        of it.

    Returns
    -------
    float
        The expectation over a standard normal z.

    Raises
    ------
    TypeError
        If `function` cannot be called or the steepness is not a number.
    ValueError
        If the steepness is not allowed, or the function returns another shape, is not finite, or
        grows too fast.

    Notes
    -----

    .. math::

        \mathbb{E} f(z) = \int \frac{dz}{\sqrt{2\pi}}\, e^{-z^2/2} f(z).

    The error falls as exp(−2π s/h), with the spacing h of the nodes and the distance s of the
    function's singularities from the real axis. With the right steepness it is at the level of
    rounding.

    Examples
    --------
    >>> f"{gaussian_expectation(lambda z: z**4):.12f}"
    '3.000000000000'
    >>> k = 2000.0
    >>> f"{gaussian_expectation(lambda z: k - k * np.tanh(k * z) ** 2, steepness=k):.5f}"
    '0.79788'
    """
    check_function("function", function)
    steepness = check_real("steepness", steepness, low=0.0, high=_STEEPEST)
    points, weights = gaussian_quadrature(max(steepness, _STEEP))
    values = check_array("what function returns", function(points.copy()), shape=points.shape)
    if _ends_are_small(weights * values):
        return float(weights @ values)
    points, weights = _gaussian_quadrature(_quarters(max(steepness, _STEEP)), _FAR_REACH)
    with np.errstate(all="ignore"):
        values = np.asarray(function(points.copy()), dtype=float)
        terms = weights * values
    if not _ends_are_small(terms):
        raise ValueError(
            "what function returns must grow more slowly than exp(z**2 / 2), and be finite up to "
            f"|z| = {_FAR_REACH:g}, for an average"
        )
    return float(weights @ values)


def _ends_are_small(terms: np.ndarray) -> bool:
    """Whether what lies beyond the last terms of a sum is rounding, as they are."""
    sizes = np.abs(terms)
    largest = float(sizes.max())
    return math.isfinite(largest) and max(sizes[0], sizes[-1]) <= 1e-12 * largest


def gaussian_quadrature(steepness: float) -> tuple[np.ndarray, np.ndarray]:
    """Quadrature nodes and weights for Gaussian expectations (trapezoidal rule).

    Parameters
    ----------
    steepness : float
        Steepness k of the steepest function tanh(kz) that is to be averaged, from 0 to 4e4.

    Returns
    -------
    points : ndarray, shape (n,)
        The nodes.
    weights : ndarray, shape (n,)
        The weights, which sum to 1.

    Raises
    ------
    TypeError
        If the steepness is not a number.
    ValueError
        If the steepness is not allowed.

    Notes
    -----
    The poles of tanh(kz) are at a distance π/2k from the real axis and cost an error exp(−π²/kh)
    at the spacing h, which is rounding for h = 0.3/k. There are about 60 nodes for each unit of
    the steepness.

    Examples
    --------
    >>> points, weights = gaussian_quadrature(3.0)
    >>> len(points) < 250, f"{weights @ np.tanh(3.0 * points + 1.0):.10f}"
    (True, '0.2505587108')
    """
    steepness = check_real("steepness", steepness, low=0.0, high=_STEEPEST)
    # In steps, so that what is solved for may change the steepness, and the points stay.
    return _gaussian_quadrature(_quarters(steepness), _REACH)


def _quarters(steepness: float) -> int:
    return math.ceil(4.0 * math.log2(max(steepness, 1.5)))


@lru_cache(maxsize=16)
def _gaussian_quadrature(quarters: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    spacing = 0.3 / 2.0 ** (quarters / 4.0)
    half = math.ceil(reach / spacing)
    points = spacing * np.arange(-half, half + 1)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    for array in (points, weights):
        array.setflags(write=False)
    return points, weights


def log_sphere_integral(kappa: ArrayLike, *, dim: int) -> np.ndarray:
    r"""Log generating function of a uniform unit vector in D dimensions.

    Parameters
    ----------
    kappa : array_like, any shape
        Length κ of the field.
    dim : int
        Dimension D of the space, at least 1.

    Returns
    -------
    ndarray, shape of `kappa`
        ln G_D(κ), the logarithm of the mean of exp(κ x₁) over the unit sphere.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If `kappa` is not finite or `dim` is smaller than 1.

    Notes
    -----
    With ν = D/2 − 1 and the modified Bessel function I,

    .. math::

        G_D(\kappa) = \Gamma(\nu + 1)\, (2/\kappa)^\nu\, I_\nu(\kappa).

    The function is even in κ with G_D(0) = 1, and D = 1 gives cosh κ. Where the scaled Bessel
    function underflows (large D, small κ), the power series is summed in log-space.

    Examples
    --------
    >>> f"{float(log_sphere_integral(2.0, dim=3)):.6f}", f"{np.log(np.sinh(2.0) / 2.0):.6f}"
    ('0.595220', '0.595220')
    """
    dim = check_integer("dim", dim, low=1)
    size = np.abs(check_array("kappa", kappa))
    # I_{−1/2} is cosh: no Bessel routine needed.
    if dim == 1:
        return size + np.log1p(np.exp(-2 * np.minimum(size, 400.0))) - np.log(2.0)
    nu = dim / 2 - 1
    positive = np.where(size > 0, size, 1.0)
    scaled = _scaled_bessel(nu, positive)
    with np.errstate(divide="ignore"):
        direct = gammaln(nu + 1) - nu * np.log(positive / 2) + positive + np.log(scaled)
    result = np.where(size > 0, direct, 0.0)
    # Not `scaled <= …`: for orders of some 1e11 the library gives NaN.
    rest = (size > 0) & ~(scaled > _UNDERFLOW)
    if rest.any():
        result[rest] = _log_series(size[rest], nu)
    return result


def mean_alignment(kappa: ArrayLike, *, dim: int) -> np.ndarray:
    r"""Langevin function in D dimensions: mean alignment of a unit vector with a field.

    Parameters
    ----------
    kappa : array_like, any shape
        Length κ of the field.
    dim : int
        Dimension D of the space, at least 1.

    Returns
    -------
    ndarray, shape of `kappa`
        Mean of x₁ on the unit sphere under exp(κ x₁).

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If `kappa` is not finite or `dim` is smaller than 1.

    Notes
    -----

    .. math::

        A_D(\kappa) = \frac{I_{D/2}(\kappa)}{I_{D/2 - 1}(\kappa)}.

    It is the derivative of `log_sphere_integral`, tanh κ for D = 1 and coth κ − 1/κ for D = 3.

    Examples
    --------
    >>> f"{float(mean_alignment(0.5, dim=1)):.6f}", f"{np.tanh(0.5):.6f}"
    ('0.462117', '0.462117')
    """
    dim = check_integer("dim", dim, low=1)
    kappa = check_array("kappa", kappa)
    return kappa * alignment_over_kappa(np.abs(kappa), dim=dim)


def alignment_over_kappa(kappa: ArrayLike, *, dim: int) -> np.ndarray:
    """Mean alignment of a unit vector with a field, divided by the length of the field.

    Parameters
    ----------
    kappa : array_like, any shape
        Length κ of the field, not negative.
    dim : int
        Dimension D of the space, at least 1.

    Returns
    -------
    ndarray, shape of `kappa`
        A_D(κ)/κ (see `mean_alignment`), which is continuous at κ = 0, where it is 1/D.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If `kappa` is negative or not finite, or `dim` is smaller than 1.

    Examples
    --------
    >>> float(alignment_over_kappa(0.0, dim=4))
    0.25
    """
    dim = check_integer("dim", dim, low=1)
    kappa = check_array("kappa", kappa, low=0.0)
    nu = dim / 2 - 1
    if dim == 1:
        positive = np.where(kappa > 0, kappa, 1.0)
        return np.where(kappa > 0, np.tanh(positive) / positive, 1.0)
    # For κ below the order the continued fraction converges in a few steps and cannot underflow;
    # above it the ratio of scaled Bessel functions is safe.
    small = kappa <= nu + 2
    x = kappa[small]
    square = x * x
    fraction = np.zeros_like(x)
    for order in np.arange(60, 0, -1) + nu:
        fraction = 1.0 / (2 * order + square * fraction)
    y = kappa[~small]
    below = _scaled_bessel(nu, y)
    safe = below > _UNDERFLOW
    above = _scaled_bessel(nu + 1, y) / (np.where(safe, below, 1.0) * y)
    if not safe.all():
        above[~safe] = _debye_alignment(nu, y[~safe])
    ratio = np.empty_like(kappa)
    ratio[small] = fraction
    ratio[~small] = above
    return ratio


def _scaled_bessel(order: float, x: np.ndarray) -> np.ndarray:
    """exp(−x) I_order(x) for x > 0; Debye's expansion where the library gives up."""
    large = x > _LARGEST_BESSEL
    if not large.any():
        return ive(order, x)
    y = np.where(large, x, 1.0)
    root = np.hypot(order, y)
    # Written so that no sum or product of the largest numbers leaves their range.
    exponent = order * (order / root) / (1 + y / root) - order * np.arcsinh(order / y)
    debye = np.exp(exponent) / (np.sqrt(2 * np.pi) * np.sqrt(root))
    debye *= 1 + _debye_term(order, root)
    return np.where(large, debye, ive(order, np.where(large, 1.0, x)))


def _log_series(kappa: np.ndarray, nu: float) -> np.ndarray:
    """Power series of ln G_D, Γ(ν+1) Σ_k (κ²/4)^k / (k! Γ(ν+1+k)).

    Where it would take more than a million terms, the logarithm of Debye's expansion.
    """
    root = np.hypot(nu, kappa)
    peaks = 0.5 * kappa * (kappa / (root + nu))
    result = np.empty_like(kappa)
    few = peaks < _MOST_TERMS
    if few.any():
        peak = float(peaks[few].max())
        k = np.arange(int(peak + 12 * np.sqrt(peak + 1)) + 40)
        # ln Γ(ν+1+k) − ln Γ(ν+1) as a sum: the difference would lose the digits that large ν take.
        rising = np.concatenate([[0.0], np.cumsum(np.log(nu + k[1:]))])
        terms = 2 * k[:, None] * np.log(kappa[few] / 2) - (gammaln(k + 1) + rising)[:, None]
        result[few] = logsumexp(terms, axis=0)
    x = kappa[~few]
    root = root[~few]
    bent = root - nu * np.arcsinh(nu / x) - 0.5 * np.log(2 * np.pi * root)
    result[~few] = bent + np.log1p(_debye_term(nu, root)) + gammaln(nu + 1) - nu * np.log(x / 2)
    return result


def _debye_alignment(nu: float, x: np.ndarray) -> np.ndarray:
    """A_D(κ)/κ, the derivative of the logarithm of Debye's expansion, for orders of 1,000 or more.

    ln I_ν = √(ν² + κ²) − ν arsinh(ν/κ) − ½ ln 2π√(ν² + κ²) + ln(1 + u₁ + u₂).
    """
    root = np.hypot(nu, x)
    s = 1 / root
    q = (nu / root) ** 2
    # Derivatives of s and q by κ, divided by κ, are −s³ and −2qs².
    first = 3 - 5 * q
    second = 81 - 462 * q + 385 * q**2
    slope = s**3 * (10 * q - first) / 24
    slope = slope - s**4 * (2 * q * (770 * q - 462) + 2 * second) / 1152
    return 1 / (root + nu) - s**2 / 2 + slope / (1 + first * s / 24 + second * s**2 / 1152)


def _debye_term(order: float, root: np.ndarray) -> np.ndarray:
    """First correction of Debye's expansion of I_ν(x), with √(ν² + x²) the `root`."""
    return (3 - 5 * (order / root) ** 2) / 24 / root
