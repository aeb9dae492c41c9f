import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import norm

from spinformer.core.special import (
    alignment_over_kappa,
    gaussian_expectation,
    log_sphere_integral,
    mean_alignment,
)

# Series, continued fraction, scaled Bessel functions and their underflow: every branch and both
# sides of its edges (κ = D/2 + 1 for the fraction).
POINTS = [
    (dim, kappa)
    for dim in (1, 2, 3, 4, 17, 128, 1000)
    for kappa in (1e-8, 0.3, dim / 2 + 0.99, dim / 2 + 1.01, 3.0 * dim, 700.0)
] + [(4000, 1.0), (4000, 1999.0), (4000, 2003.0), (4000, 5000.0), (20_000, 10_010.0)]


@pytest.mark.parametrize("dim", [2, 3, 64, 1000])
def test_where_the_library_s_bessel_functions_end(dim):
    # A_D(κ) = 1 − (D−1)/2κ + (D−1)(D−3)/8κ² and ln G_D = κ + ν ln 2/κ − ½ ln 2πκ + ln Γ(ν+1).
    kappa, nu = np.array([0.999e9, 1.001e9, 1e12, 1e200]), dim / 2 - 1
    gap = (dim - 1) / (2 * kappa) * (1 - (dim - 3) / (4 * kappa))
    assert 1 - mean_alignment(kappa, dim=dim) == pytest.approx(gap, rel=1e-6, abs=3e-16)
    front = gammaln(nu + 1) + nu * np.log(2 / kappa) - 0.5 * np.log(2 * np.pi * kappa)
    assert log_sphere_integral(kappa, dim=dim) == pytest.approx(kappa + front, rel=1e-12)


@pytest.mark.parametrize(("dim", "kappa"), POINTS)
def test_bessel_functions_of_the_sphere_agree_with_forty_digits(dim, kappa):
    with mpmath.workdps(40):
        nu, x = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
        front = mpmath.loggamma(nu + 1) + nu * mpmath.log(2 / x)
        log_integral = float(front + mpmath.log(mpmath.besseli(nu, x)))
        alignment = float(mpmath.besseli(nu + 1, x) / mpmath.besseli(nu, x))
    # A logarithm of some thousands has lost as many units of the last place.
    close = {"rel": 1e-12, "abs": 1e-15 * max(1.0, kappa, dim)}
    assert float(log_sphere_integral(kappa, dim=dim)) == pytest.approx(log_integral, **close)
    assert float(log_sphere_integral(-kappa, dim=dim)) == pytest.approx(log_integral, **close)
    assert float(mean_alignment(kappa, dim=dim)) == pytest.approx(alignment, rel=5e-12)
    assert float(mean_alignment(-kappa, dim=dim)) == pytest.approx(-alignment, rel=5e-12)
    assert float(alignment_over_kappa(kappa, dim=dim)) == pytest.approx(
        alignment / kappa, rel=5e-12
    )


@pytest.mark.parametrize("dim", [2302, 4000, 10**6, 10**9])
@pytest.mark.parametrize("ratio", [0.51, 1.0, 10.0])
def test_alignment_of_many_components_by_its_continued_fraction(dim, ratio):
    """A_D(κ) for κ of the order of D, where Bessel functions leave the range of numbers."""
    kappa, order = ratio * dim, dim / 2 - 1
    # From so far out that the start is forgotten; its own error is of the order of 1/D.
    steps = 3000
    fraction = kappa / (order + steps + math.hypot(order + steps, kappa))
    for n in range(steps, 0, -1):
        fraction = 1.0 / (2 * (order + n) / kappa + fraction)
    assert float(mean_alignment(kappa, dim=dim)) == pytest.approx(fraction, rel=3e-12)


@pytest.mark.parametrize("dim", [1, 3, 10**9, 10**12])
def test_the_largest_fields_and_dimensions_stay_in_range(dim):
    with mpmath.workdps(60):
        for kappa in (1e-300, 1e3, 1e10, 1e308):
            if dim < 10 and kappa == 1e-300:
                continue
            nu, x = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
            root = mpmath.sqrt(nu**2 + x**2)
            # Debye's expansion to its second term; for weak fields κ²/2D.
            log_bessel = root - nu * mpmath.asinh(nu / x) - mpmath.log(2 * mpmath.pi * root) / 2
            log_bessel += mpmath.log(1 + (3 - 5 * (nu / root) ** 2) / (24 * root))
            wanted = mpmath.loggamma(nu + 1) - nu * mpmath.log(x / 2) + log_bessel
            wanted = x**2 / (2 * dim) if kappa < 1e4 < dim else wanted
            found = float(log_sphere_integral(kappa, dim=dim))
            assert found == pytest.approx(float(wanted), rel=1e-6, abs=0)


def test_what_a_function_returns_is_checked_as_what_enters():
    for wrong in (
        lambda z: np.where(z > 0, z, np.nan),
        lambda z: np.full_like(z, np.inf),
        lambda z: 1j * z,
        lambda z: z[:3],
        lambda z: 1.0,
        lambda z: None,
    ):
        with pytest.raises((TypeError, ValueError), match="what function returns must"):
            gaussian_expectation(wrong)

    # What grows so fast that nodes up to nine are not enough, by closed averages, or too fast.
    for rate in (4.0, 9.0, 18.0):
        found = gaussian_expectation(lambda z, a=rate: np.exp(a * z))
        assert found == pytest.approx(np.exp(rate**2 / 2), rel=1e-12)
    assert gaussian_expectation(lambda z: np.exp(0.45 * z**2)) == pytest.approx(
        np.sqrt(10), rel=1e-12
    )
    for rate in (0.5, 0.6, 1.0):
        with pytest.raises(ValueError, match="must grow more slowly than exp"):
            gaussian_expectation(lambda z, a=rate: np.exp(a * z**2))

    def changed(z):
        z *= 2.0
        return z**2

    # A function that changes its nodes changes its own.
    assert gaussian_expectation(changed) == pytest.approx(4.0, abs=1e-9)
    assert gaussian_expectation(changed) == pytest.approx(4.0, abs=1e-9)


def test_without_a_field_nothing_is_aligned():
    for dim in (1, 2, 3, 50):
        assert mean_alignment(0.0, dim=dim) == 0.0
        assert alignment_over_kappa(0.0, dim=dim) == pytest.approx(1.0 / dim, rel=1e-14)
        assert log_sphere_integral(0.0, dim=dim) == 0.0


def flat_share(slope, height):
    """E sech²(slope z − height) by quadrature over u = slope z, smooth however steep the tanh."""
    total, _ = quad(
        lambda u: np.exp(-((u / slope) ** 2) / 2) / np.cosh(u - height) ** 2 / slope,
        height - 40,
        height + 40,
        points=[height],
        epsabs=1e-14,
        limit=300,
    )
    return total / np.sqrt(2 * np.pi)


def test_normal_average_of_functions_with_closed_averages():
    for power, expected in ((0, 1.0), (1, 0.0), (2, 1.0), (6, 15.0), (10, 945.0)):
        assert gaussian_expectation(lambda z, p=power: z**p) == pytest.approx(expected, abs=1e-9)
    assert gaussian_expectation(lambda z: np.exp(0.7 * z)) == pytest.approx(
        np.exp(0.245), rel=1e-13
    )
    # tanh has its poles at π/(2 slope) off the axis, which sets the error that is stated.
    for slope, tolerance in ((40.0, 1e-12), (100.0, 1e-7)):
        found = gaussian_expectation(lambda z, a=slope: np.tanh(a * z) ** 2)
        assert found == pytest.approx(1.0 - flat_share(slope, 0.0), abs=tolerance)


@pytest.mark.parametrize("slope", [0.2, 1.7, 45.0, 700.0, 3e4])
def test_averages_over_a_normal_are_exact_when_the_steepness_is_told(slope):
    for height in (0.0, 0.8):
        wanted = flat_share(slope, height)
        told = gaussian_expectation(
            lambda z, h=height: np.tanh(slope * z - h) ** 2, steepness=slope
        )
        assert 1.0 - told == pytest.approx(wanted, rel=2e-9)


def test_gaussian_expectations_of_steep_functions_that_grow():
    """A step at one times a growing function: the part of a wider Gaussian above one."""
    steep = 2e4
    found = gaussian_expectation(
        lambda z: np.exp(0.45 * z**2) * 0.5 * (1.0 + np.tanh(steep * (z - 1.0))), steepness=steep
    )
    assert found == pytest.approx(norm.sf(np.sqrt(0.1)) / np.sqrt(0.1), rel=1e-4)
