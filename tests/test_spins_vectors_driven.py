"""Driven vector spins: the response and its limit, and a first-order theory against simulation."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from spinformer.core.special import mean_alignment
from spinformer.spins.vectors import vector_mean_field, vector_response, vector_simulation


@pytest.mark.parametrize("order", [0.5, 1.5, 4.0, 64.0, 500.0])
def test_bessel_ratio_against_high_precision(order):
    x = np.array([0.0, 1e-6, 0.3, 5.0, 80.0, 1e3, 1e5])
    with mpmath.workdps(40):
        expected = [
            float(mpmath.besseli(order, v) / mpmath.besseli(order - 1, v)) if v else 0.0 for v in x
        ]
    assert np.allclose(mean_alignment(x, dim=round(2 * order)), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dim", [3, 4, 9])
def test_vector_response_against_quadrature_and_its_limit(dim):
    beta, theta = 0.8, np.zeros(dim)
    theta[1] = 1.7
    radius = np.sqrt(dim / 2 - 1)

    def weight(angle, power):
        tilt = np.exp(beta * radius * 1.7 * (np.cos(angle) - 1))
        return np.sin(angle) ** (dim - 2) * tilt * np.cos(angle) ** power

    mean = quad(weight, 0, np.pi, args=(1,))[0] / quad(weight, 0, np.pi, args=(0,))[0]
    response = vector_response(theta, beta=beta)
    assert response[1] == pytest.approx(radius * mean, rel=1e-9)
    assert np.count_nonzero(response) == 1
    assert np.array_equal(vector_response(np.zeros(dim), beta=beta), np.zeros(dim))


def test_large_d_response_is_approached_as_one_over_d():
    errors = []
    for dim in (64, 128, 256):
        theta = np.full(dim, 1.3)  # |theta| grows as R, so the argument stays of order one
        exact, limit = (vector_response(theta, beta=0.9, kind=k) for k in ("exact", "large_d"))
        errors.append(np.linalg.norm(exact - limit) / np.linalg.norm(exact))
    assert np.diff(np.log2(errors)) == pytest.approx([-1, -1], abs=0.05)


def test_vector_mean_field_against_simulation():
    rng = np.random.default_rng(4)
    size, dim, beta = 5, 6, 1.0
    radius = np.sqrt(dim / 2 - 1)
    j, x = 0.1 * rng.normal(size=(size, size)), rng.normal(size=(3, size, dim))
    first = rng.normal(size=(size, dim))
    first *= radius / np.linalg.norm(first, axis=1, keepdims=True)
    found = vector_simulation(j, drive=x, initial=first, beta=beta, replicas=20_000, seed=1)
    mean, error = found.value, found.error
    theory = vector_mean_field(j, drive=x, initial=first, beta=beta)
    # One step from a known state is exact; later steps err by O(J^2), below 4e-3 here.
    assert np.all(np.abs(mean[1] - theory[1]) < 4.5 * error[1])
    assert np.abs(mean - theory).max() < 4e-3 + 4.5 * error.max()
    biased = vector_mean_field(j, drive=x, initial=first, beta=beta, kind="large_d")
    assert np.abs(mean[1] - biased[1]).max() > 10 * error[1].max()


def test_error_bars_of_the_simulation_are_the_scatter_over_seeds():
    rng = np.random.default_rng(3)
    couplings, drive = 0.5 * rng.normal(size=(2, 2)), rng.normal(size=(2, 2, 6))
    first = np.sqrt(2) * np.eye(6)[:2]
    runs = [
        vector_simulation(couplings, drive=drive, initial=first, beta=1.0, replicas=50, seed=seed)
        for seed in range(100)
    ]
    scatter = np.var([run.value for run in runs], axis=0, ddof=1)
    claimed = np.mean([run.error**2 for run in runs], axis=0)
    assert not claimed[0].any()
    assert np.mean(scatter[1:] / claimed[1:]) == pytest.approx(1.0, abs=0.15)
    assert runs[0].samples == 50


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vector_response(np.ones(2), beta=1.0), "theta"),
        (lambda: vector_response(np.ones(4), beta=1.0, kind="limit"), "kind"),
        (lambda: vector_response(np.ones(4), beta=1e91), "beta"),
        (
            lambda: vector_mean_field(
                np.ones((2, 3)), drive=np.ones((1, 2, 4)), initial=np.ones((2, 4)), beta=1.0
            ),
            "couplings",
        ),
        (
            lambda: vector_mean_field(
                np.eye(1), drive=np.full((1, 1, 4), 1e91), initial=np.ones((1, 4)), beta=1.0
            ),
            "drive",
        ),
        (
            lambda: vector_simulation(
                np.eye(1), drive=np.ones((1, 1, 4)), initial=np.ones((1, 4)), beta=1.0
            ),
            "rows of norm",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
