"""Layers that iterate TAP, and the state of infinitely many spins in which they settle."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from compendium.c21a_cheap_free_energies.study import state_evolution, unrolled_tap
from compendium.common.glass import glass_state, instability_beta
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact


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


CASES = [(0.8, 0.5), (1.7, 0.0), (3.0, 1.0), (20.0, 5.0), (20.0, 50.0), (3.0, 900.0)]


@pytest.mark.parametrize(("beta", "std"), CASES)
def test_the_state_by_other_quadrature(beta, std):
    """q and the stability over u = β(field), on whose scale sech² is smooth however cold."""
    found = glass_state(beta, field_std=std)
    width = beta * np.hypot(np.sqrt(found.overlap), std)

    def average(power):
        def weighed(u):
            return norm.pdf(u, scale=width) / np.cosh(u) ** power

        return 2 * quad(weighed, 0, 40, epsabs=1e-13, limit=200)[0]

    assert 1 - found.overlap == pytest.approx(average(2), rel=1e-8)
    assert found.stability == pytest.approx(beta**2 * average(4), rel=1e-8)


def test_bad_input_is_named():
    for change in ({"beta": 21.0}, {"field_std": 2000.0}):
        with pytest.raises(ValueError, match=next(iter(change))):
            glass_state(**{"beta": 1.0} | change)
