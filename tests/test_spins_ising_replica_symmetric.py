"""The replica-symmetric solution: against exact sums, quadrature, closed forms and expansions."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from spinformer.core.solve import Status
from spinformer.spins.ising import replica_symmetric
from spinformer.spins.ising.couplings import sherrington_kirkpatrick
from spinformer.spins.ising.exact import solve_exact
from spinformer.spins.ising.replica_symmetric import glass_state, instability_beta


def normal(function):
    """E f(z) by adaptive quadrature."""
    weight = lambda z: np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)  # noqa: E731
    return quad(lambda z: weight(z) * function(z), -12, 12, epsabs=1e-12, limit=300)[0]


@pytest.mark.parametrize(("beta", "mean", "std"), [(0.8, 0.0, 0.5), (1.7, 0.4, 0.0), (3.0, 0.2, 1)])
def test_the_state_solves_its_equation_by_other_quadrature(beta, mean, std):
    def u(z, q):
        return beta * (mean + np.sqrt(q + std**2) * z)

    q = brentq(lambda q: normal(lambda z: np.tanh(u(z, q)) ** 2) - q, 0, 1, xtol=1e-12)
    state = glass_state(beta, field_mean=mean, field_std=std)
    assert state.value == pytest.approx(q, abs=1e-9)
    fourth = normal(lambda z: np.cosh(u(z, q)) ** -4.0)
    assert state.stability == pytest.approx(beta**2 * fourth, abs=1e-9)
    density = 0.25 * (beta * (1 - q)) ** 2 + normal(lambda z: np.log(2 * np.cosh(u(z, q))))
    assert state.log_partition == pytest.approx(density, abs=1e-9)


def test_ln_z_is_stationary_in_q_and_its_slope_in_beta_is_the_energy():
    # d(ln Z/N)/dbeta = beta (1 - q^2)/2 + std^2 beta (1 - q): the fields count as couplings do.
    step = 1e-4
    up, down = (glass_state(1.3 + s, field_std=0.6).log_partition for s in (step, -step))
    q = glass_state(1.3, field_std=0.6).value
    expected = 0.5 * 1.3 * (1 - q**2) + 0.36 * 1.3 * (1 - q)
    assert (up - down) / (2 * step) == pytest.approx(expected, rel=1e-6)


def test_exact_sums_approach_the_limit_as_one_over_the_size():
    beta, std = 0.8, 0.5
    limit = glass_state(beta, field_std=std)
    gaps, squares = [], []
    for size, count in ((6, 4000), (12, 1000)):
        couplings, fields = sherrington_kirkpatrick(size, seed=1, count=count, field_std=std)
        exact = solve_exact(couplings, fields=fields, beta=beta)
        gaps.append(float(exact.log_partition.mean()) / size - limit.log_partition)
        spread = (exact.susceptibility**2).sum((1, 2)) / size
        squares.append(float(spread.mean()))
    # Extrapolated as a + b/N the difference goes away; the standard error is 0.005.
    assert 2 * gaps[1] - gaps[0] == pytest.approx(0, abs=0.015)
    assert abs(gaps[1]) < abs(gaps[0])
    assert squares[0] < squares[1] < limit.susceptibility
    assert 2 * squares[1] - squares[0] == pytest.approx(limit.susceptibility, abs=0.12)


def test_the_line_without_a_field_near_it_and_on_it():
    assert instability_beta() == 1.0
    assert glass_state(0.9).value == 0.0
    assert glass_state(0.9).susceptibility == pytest.approx(1 / (1 - 0.81))
    # q = (b - 1) + O((b-1)^2) just beyond the edge, and no stable state there.
    cold = glass_state(1.02)
    assert cold.value == pytest.approx(0.02, rel=0.1)
    assert cold.stability > 1.0
    assert cold.susceptibility == np.inf
    # de Almeida and Thouless: (1 - T)^3 = (3/4) h^2 for small uniform fields.
    for field in (0.01, 0.02):
        t = 1 / instability_beta(field_mean=field)
        assert (1 - t) ** 3 / (0.75 * field**2) == pytest.approx(1, abs=0.15)
    line = [instability_beta(field_std=h) for h in (0.2, 0.5, 1.0)]
    assert line == sorted(line)
    for h, beta in zip((0.2, 0.5, 1.0), line, strict=True):
        assert glass_state(beta, field_std=h).stability == pytest.approx(1, abs=1e-8)
    assert instability_beta(field_std=30.0) == np.inf


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="beta"):
        glass_state(21.0)
    with pytest.raises(ValueError, match="field_std"):
        instability_beta(field_std=-1.0)


@pytest.mark.parametrize(("beta", "std"), [(20.0, 5.0), (20.0, 50.0), (3.0, 900.0)])
def test_wide_fields_are_resolved_however_cold(beta, std):
    """q and the stability by quadrature over u = β(field), on whose scale sech² is smooth."""
    found = glass_state(beta, field_std=std)
    width = beta * np.hypot(np.sqrt(found.value), std)

    def average(power):
        return (
            2
            * quad(lambda u: np.exp(-((u / width) ** 2) / 2) / np.cosh(u) ** power, 0, 40)[0]
            / (width * np.sqrt(2 * np.pi))
        )

    assert found.converged
    assert 1 - found.value == pytest.approx(average(2), rel=1e-8)
    assert found.stability == pytest.approx(beta**2 * average(4), rel=1e-8)
    with pytest.raises(ValueError, match="field_std"):
        glass_state(beta, field_std=2000.0)


def test_a_root_that_is_none_is_not_called_one(monkeypatch):
    monkeypatch.setattr(replica_symmetric, "brentq", lambda *_, **__: 0.3)
    wrong = glass_state(1.7, field_std=0.5)
    assert wrong.status == Status.STALLED
    assert wrong.residual > 0.01
