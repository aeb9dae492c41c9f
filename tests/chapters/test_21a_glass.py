"""Layers that iterate TAP, and the state of infinitely many spins in which they settle."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from compendium.c21a_cheap_free_energies.study import state_evolution, unrolled_tap
from compendium.common.glass import glass_state, instability_beta
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact


def test_unrolled_layers_by_hand():
    pair, fields = np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([0.8, 0.0])
    before = unrolled_tap(pair, fields=fields, beta=1.0, layers=3)
    one = np.tanh(0.8)
    two = np.tanh(0.5 * one)
    assert before[2] == pytest.approx([one, two])
    third = np.tanh(0.8 + 0.5 * two - 0.25 * (1 - two**2) * one)
    assert before[3, 0] == pytest.approx(third)
    now = unrolled_tap(pair, fields=fields, beta=1.0, layers=2, memory="now")
    assert now[2, 0] == pytest.approx(np.tanh(0.8 - 0.25 * one))


def test_state_evolution_foretells_a_large_network():
    couplings, fields = sherrington_kirkpatrick(1500, seed=1, field_std=0.5)
    square, pair = state_evolution(10, beta=1.1, field_std=0.5)
    path = unrolled_tap(couplings, fields=fields, beta=1.1, layers=10)
    assert (path**2).mean(1) == pytest.approx(square, abs=0.03)
    assert (path[1:] * path[:-1]).mean(1) == pytest.approx(pair[1:], abs=0.03)


def test_layers_that_have_settled_overlap_as_one_layer_with_itself():
    # Where the state is stable the layers stop, so their overlap is q, however steep the tanh.
    for beta, std in ((1.2, 0.5), (3.0, 3.0), (4.0, 11.0)):
        glass = glass_state(beta, field_std=std)
        assert glass.stability < 0.8
        square, pair = state_evolution(90, beta=beta, field_std=std)
        assert square[-1] == pytest.approx(glass.overlap, abs=1e-9)
        assert pair[-1] == pytest.approx(glass.overlap, abs=1e-8), (beta, std)


def _normal(function):
    """E f(z) by adaptive quadrature."""
    weight = lambda z: np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)  # noqa: E731
    return quad(lambda z: weight(z) * function(z), -12, 12, epsabs=1e-12, limit=300)[0]


@pytest.mark.parametrize(("beta", "std"), [(0.8, 0.5), (1.7, 0.0), (3.0, 1.0)])
def test_the_state_solves_its_equation_by_other_quadrature(beta, std):
    def u(z, q):
        return beta * np.sqrt(q + std**2) * z

    q = brentq(lambda q: _normal(lambda z: np.tanh(u(z, q)) ** 2) - q, 1e-6, 1, xtol=1e-12)
    state = glass_state(beta, field_std=std)
    assert state.overlap == pytest.approx(q, abs=1e-9)
    fourth = _normal(lambda z: np.cosh(u(z, q)) ** -4.0)
    assert state.stability == pytest.approx(beta**2 * fourth, abs=1e-9)


def test_exact_sums_approach_the_limit_as_one_over_the_size():
    beta, std = 0.8, 0.5
    limit = glass_state(beta, field_std=std)
    squares = []
    for size, count in ((6, 4000), (12, 1000)):
        couplings, fields = sherrington_kirkpatrick(size, seed=1, count=count, field_std=std)
        exact = solve_exact(couplings, fields=fields, beta=beta)
        spread = (exact.susceptibility**2).sum((1, 2)) / size
        squares.append(float(spread.mean()))
    # Extrapolated as a + b/N the difference goes away.
    assert squares[0] < squares[1] < limit.susceptibility
    assert 2 * squares[1] - squares[0] == pytest.approx(limit.susceptibility, abs=0.12)


def test_the_line_without_a_field_near_it_and_on_it():
    assert instability_beta() == 1.0
    assert glass_state(0.9).overlap == 0.0
    assert glass_state(0.9).susceptibility == pytest.approx(1 / (1 - 0.81))
    # q = (b - 1) + O((b-1)^2) just beyond the edge, and no stable state there.
    cold = glass_state(1.02)
    assert cold.overlap == pytest.approx(0.02, rel=0.1)
    assert cold.stability > 1.0
    assert cold.susceptibility == np.inf
    line = [instability_beta(field_std=h) for h in (0.2, 0.5, 1.0)]
    assert line == sorted(line)
    for h, beta in zip((0.2, 0.5, 1.0), line, strict=True):
        assert glass_state(beta, field_std=h).stability == pytest.approx(1, abs=1e-8)
    assert instability_beta(field_std=30.0) == np.inf


@pytest.mark.parametrize(("beta", "std"), [(20.0, 5.0), (20.0, 50.0), (3.0, 900.0)])
def test_wide_fields_are_resolved_however_cold(beta, std):
    """q and the stability by quadrature over u = β(field), on whose scale sech² is smooth."""
    found = glass_state(beta, field_std=std)
    width = beta * np.hypot(np.sqrt(found.overlap), std)

    def average(power):
        return (
            2
            * quad(lambda u: np.exp(-((u / width) ** 2) / 2) / np.cosh(u) ** power, 0, 40)[0]
            / (width * np.sqrt(2 * np.pi))
        )

    assert 1 - found.overlap == pytest.approx(average(2), rel=1e-8)
    assert found.stability == pytest.approx(beta**2 * average(4), rel=1e-8)


def test_bad_input_is_named():
    for change in ({"beta": 21.0}, {"field_std": 2000.0}):
        with pytest.raises(ValueError, match=next(iter(change))):
            glass_state(**{"beta": 1.0} | change)
