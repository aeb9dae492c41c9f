"""Statistics: error bars, confidence intervals, autocorrelation times and power-law fits."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record


@record
class Estimate:
    """Number, or array of numbers, with its standard error.

    It prints with the uncertain digits in brackets, so that 0.295(13) means 0.295 ± 0.013.

    Attributes
    ----------
    value : float or ndarray, any shape
        The estimate.
    error : float or ndarray, shape of the value
        Its standard error.
    samples : float or ndarray, broadcastable to the value, default nan
        Number of independent samples that the estimate is worth. NaN where the error is no scatter
        over samples.

    Examples
    --------
    >>> print(Estimate(value=0.2953, error=0.0131, samples=300))
    0.295(13)
    """

    value: Any
    error: Any
    samples: Any = float("nan")

    def __str__(self) -> str:
        """The number with the uncertain digits in brackets: 0.295(13) is 0.295 ± 0.013."""
        if np.ndim(self.value):
            return repr(self)
        if not np.isfinite(self.error) or self.error <= 0:
            return f"{self.value:.6g}"
        if not 1e-15 < self.error < 1e15:
            return f"{self.value:.6g} ± {self.error:.2g}"
        digits = max(0, 1 - int(np.floor(np.log10(float(f"{self.error:.1e}")))))
        scaled = round(float(self.error) * 10**digits)
        return f"{self.value:.{digits}f}({scaled})" if digits else f"{self.value:.0f}({scaled})"


def mean_estimate(samples: ArrayLike, *, axis: int = 0) -> Estimate:
    r"""Sample mean and its standard error.

    Parameters
    ----------
    samples : array_like, any shape
        Independent samples, at least two along `axis`.
    axis : int, default 0
        Axis of the samples.

    Returns
    -------
    Estimate
        Mean and standard error, of the shape of `samples` without `axis`.

    Raises
    ------
    TypeError
        If the samples are not numeric or the axis is not an integer.
    ValueError
        If there is no such axis, there are fewer than two samples, or one is not finite.

    Notes
    -----

    .. math::

        \bar x = \frac1n \sum_i x_i, \qquad \sigma_{\bar x}^2 = \frac{1}{n (n - 1)} \sum_i (x_i -
        \bar x)^2.

    Examples
    --------
    >>> print(mean_estimate([1.0, 2.0, 3.0, 4.0]))
    2.50(65)
    """
    values = check_array("samples", samples)
    axis = check_integer("axis", axis, low=-max(values.ndim, 1), high=max(values.ndim, 1) - 1)
    if values.ndim == 0 or values.shape[axis] < 2:
        raise ValueError(f"samples must hold at least 2 along axis {axis}, got {values.shape}")
    count = values.shape[axis]
    # Squares of what is divided by a power of two neither overflow nor vanish; no digit changes.
    unit = _unit(values)
    scaled = values / unit
    return Estimate(
        value=unit * scaled.mean(axis=axis),
        error=unit * (scaled.std(axis=axis, ddof=1) / np.sqrt(count)),
        samples=count,
    )


def _unit(values: np.ndarray) -> float:
    """The power of two just below the largest |value|; 1 for zeros."""
    largest = float(np.abs(values).max(initial=0.0))
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0


def student_interval(samples: ArrayLike) -> tuple[float, float]:
    """Student's 95 % confidence interval of a mean.

    For a paired comparison (two models trained from the same seed on the same split, for example)
    `samples` are the differences.

    Parameters
    ----------
    samples : array_like, shape (n,)
        Independent samples, n at least 2.

    Returns
    -------
    low : float
        Lower end of the interval.
    high : float
        Upper end of the interval.

    Raises
    ------
    TypeError
        If the samples are not numeric.
    ValueError
        If they are not one axis of at least two finite numbers.

    Examples
    --------
    >>> low, high = student_interval([1.0, 2.0, 3.0, 4.0])
    >>> f"{low:.3f} to {high:.3f}"
    '0.446 to 4.554'
    """
    values = check_array("samples", samples, ndim=1)
    mean = mean_estimate(values)
    half = float(stdtrit(len(values) - 1, 0.975)) * float(mean.error)
    return float(mean.value) - half, float(mean.value) + half


def integrated_autocorrelation_time(series: ArrayLike) -> float:
    r"""Integrated autocorrelation time of a time series, in steps of the series.

    Parameters
    ----------
    series : array_like, shape (n,) or (chains, n)
        The series, n at least 4. Chains share one mean.

    Returns
    -------
    float
        The integrated autocorrelation time. It is 1 for independent samples, for a constant
        series, and for one that varies by less than 1e-14 of its largest value, which is rounding.

    Raises
    ------
    TypeError
        If the series is not numeric.
    ValueError
        If its shape is not allowed or an entry is not finite.

    Notes
    -----
    With the autocorrelation function ρ,

    .. math::

        \tau = 1 + 2 \sum_{t=1}^{W} \rho(t),

    so that the variance of the mean of n samples is the variance times τ/n. The sum stops at the
    first lag W ≥ 3 τ(W) (Sokal's automatic window; Madras and Sokal 1988). Where the sum has
    fallen below half of its maximum before, as that of a trend, whose far ends are anticorrelated,
    the maximum is returned.

    Examples
    --------
    >>> integrated_autocorrelation_time([1.0, 1.0, 1.0, 1.0])
    1.0
    """
    values = check_array("series", series)
    if values.ndim not in (1, 2) or not values.size or values.shape[-1] < 4:
        raise ValueError(f"series must have shape (n,) or (chains, n), n >= 4, got {values.shape}")
    # In a unit of its own: no scale of a series decides whether it counts as constant.
    values = values / _unit(values)
    centred = np.atleast_2d(values) - values.mean()
    length = centred.shape[1]
    padded = 1 << (2 * length - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, padded)) ** 2
    covariance = np.fft.irfft(spectrum, padded)[:, :length].mean(0) / np.arange(length, 0, -1)
    if covariance[0] <= 1e-28:
        return 1.0
    times = 2 * np.cumsum(covariance / covariance[0]) - 1
    enough = np.arange(length) >= 3.0 * np.maximum(times, 1.0)
    stop = int(np.argmax(enough)) if enough.any() else length - 1
    # Products of far ends of one slow change are negative and would take back what it has summed.
    longest = float(times[: stop + 1].max())
    return max(float(times[stop]), 1.0) if times[stop] >= 0.5 * longest else longest


def wilson_interval(successes: int, *, trials: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval of a proportion.

    Parameters
    ----------
    successes : int
        Number of successes, from 0 to `trials`.
    trials : int
        Number of trials, at least 1.

    Returns
    -------
    low : float
        Lower end of the interval.
    high : float
        Upper end of the interval.

    Raises
    ------
    TypeError
        If an argument is not an integer.
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> low, high = wilson_interval(0, trials=10)
    >>> f"{low:.3f} to {high:.3f}"
    '0.000 to 0.278'
    """
    trials = check_integer("trials", trials, low=1)
    successes = check_integer("successes", successes, low=0, high=trials)
    from scipy.stats import binomtest  # slow to import, and few ask

    found = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


@record
class PowerLaw:
    """Result of a power-law fit, value = scale · size^slope.

    Attributes
    ----------
    slope : Estimate
        Exponent of the power law, with its standard error.
    scale : float
        Prefactor.
    chi2 : float
        Chi-squared per degree of freedom.
    """

    slope: Estimate
    scale: float
    chi2: float


def fit_power_law(sizes: ArrayLike, *, values: ArrayLike, errors: ArrayLike) -> PowerLaw:
    r"""Power-law fit by weighted least squares of logarithms.

    Parameters
    ----------
    sizes : array_like, shape (n,)
        Positive sizes, n at least 3, which differ by at least 1e-6 of themselves.
    values : array_like, shape (n,)
        Positive values.
    errors : array_like, shape (n,)
        Their standard errors, between 1e-15 and 1e15 of the values.

    Returns
    -------
    PowerLaw
        Exponent with its error, prefactor, and chi-squared per degree of freedom.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a shape does not fit, there are fewer than three sizes, or a number is out of range.

    Notes
    -----

    .. math::

        \ln v_i = \ln(\text{scale}) + \text{slope} \cdot \ln(\text{size}_i), \qquad \text{weight}_i
        = (v_i / \sigma_i)^2.

    Examples
    --------
    >>> sizes = np.array([10.0, 100.0, 1000.0])
    >>> print(fit_power_law(sizes, values=3.0 * sizes**-0.5, errors=0.01 * sizes**-0.5).slope)
    -0.5000(10)
    """
    sizes = check_array("sizes", sizes, ndim=1)
    values = check_array("values", values, shape=sizes.shape)
    errors = check_array("errors", errors, shape=sizes.shape)
    check_integer("number of sizes", len(sizes), low=3)
    if not ((sizes > 0).all() and (values > 0).all() and (errors > 0).all()):
        raise ValueError("sizes, values and errors must be positive for a power law")
    if np.ptp(np.log(sizes)) < 1e-6:
        raise ValueError(f"sizes must differ for a power law, got {sizes}")
    with np.errstate(over="ignore", under="ignore"):
        relative = errors / values
    if not (relative.min() >= 1e-15 and relative.max() <= 1e15):
        raise ValueError(
            "errors must be between 1e-15 and 1e15 of the values, got "
            f"{relative.min():.3g} to {relative.max():.3g} of them"
        )
    (slope, intercept), covariance = np.polyfit(
        np.log(sizes), np.log(values), 1, w=values / errors, cov="unscaled"
    )
    residual = (np.log(values) - slope * np.log(sizes) - intercept) * values / errors
    with np.errstate(over="ignore"):
        scale = float(np.exp(intercept))
    return PowerLaw(
        slope=Estimate(
            value=float(slope), error=float(np.sqrt(covariance[0, 0])), samples=len(sizes)
        ),
        scale=scale,
        chi2=float(residual @ residual / (len(sizes) - 2)),
    )
