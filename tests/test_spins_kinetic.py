"""Driven Ising spins: theories against exact dynamics, simulation and closed forms."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from compendium.c25_driven import study
from spinformer.core.states import spin_states
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import glauber_trajectory, kinetic_stationary, log_transitions


@pytest.fixture
def system():
    rng = np.random.default_rng(1)
    size = 7
    couplings = rng.normal(size=(size, size)) / np.sqrt(size)
    drive = 0.5 * rng.normal(size=(4, size))
    return couplings, drive, rng.uniform(-0.5, 0.5, size)


def test_exact_dynamics_match_a_loop_over_paths():
    rng = np.random.default_rng(0)
    size, steps, beta = 3, 2, 0.7
    j, x, m0 = rng.normal(size=(size, size)), rng.normal(size=(steps, size)), np.array([0.2, 0, -1])
    states = [np.array(s) for s in itertools.product((-1, 1), repeat=size)]
    mean = np.zeros(size)
    for path in itertools.product(states, repeat=steps + 1):
        weight = np.prod((1 + path[0] * m0) / 2)
        for t in range(steps):
            local = beta * path[t + 1] * (x[t] + j @ path[t])
            weight *= np.prod(1 / (1 + np.exp(-2 * local)))
        mean += weight * path[-1]
    result = study.exact_magnetizations(j, drive=x, initial=m0, beta=beta)
    assert np.allclose(result[-1], mean, atol=1e-13)


def test_simulation_matches_exact_dynamics(system):
    couplings, drive, initial = system
    same = {"drive": drive, "initial": initial, "beta": 1.0}
    exact = study.exact_magnetizations(couplings, **same)
    start = 2 * np.random.default_rng(3).binomial(1, (1 + initial) / 2, (20_000, 7)) - 1
    run = glauber_trajectory(couplings, states=start, steps=4, fields=drive, beta=1.0, seed=4)
    pulls = (run.mean(1) - exact) / np.sqrt((1 - exact**2) / 20_000)
    assert np.abs(pulls).max() < 4.5
    assert 0.5 < np.mean(pulls**2) < 1.7


@pytest.mark.parametrize(("method", "order"), [("naive", 2), ("tap", 3), ("gaussian", 3)])
def test_errors_fall_with_the_order_of_the_approximation(system, method, order):
    couplings, drive, initial = system
    run, errors = {"drive": drive, "initial": initial, "beta": 1.0}, []
    for scale in (0.02, 0.04):
        exact = study.exact_magnetizations(scale * couplings, **run)
        found = study.kinetic_mean_field(scale * couplings, **run, method=method)
        errors.append(np.abs(found - exact).max())
    assert np.log2(errors[1] / errors[0]) == pytest.approx(order, abs=0.3)


def test_tap_step_solves_its_equation_for_strong_couplings(system):
    couplings, drive, initial = system
    for beta in (0.5, 5.0, 40.0):
        m = study.kinetic_mean_field(
            couplings, drive=drive, initial=initial, beta=beta, method="tap"
        )
        spread = beta**2 * (couplings**2 @ (1 - m[0] ** 2))
        residual = np.tanh(beta * (drive[0] + couplings @ m[0]) - m[1] * spread) - m[1]
        # tanh' <= 1, so the root is known to rounding times its reaction term.
        assert np.abs(residual).max() < 1e-14 * (10 + spread.max())


@pytest.mark.parametrize("beta", [0.4, 0.8, 3.0, 60.0])
def test_gaussian_average_agrees_with_adaptive_quadrature(beta):
    couplings = np.array([[0.0, 1.5, -0.7], [0.4, 0.3, 1.1], [-2.0, 0.6, 0.0]])
    drive, initial = np.array([[0.3, -0.2, 0.1]]), np.array([0.2, -0.5, 0.9])
    run = {"drive": drive, "initial": initial, "beta": beta}
    found = study.kinetic_mean_field(couplings, **run, method="gaussian")[1]
    for i in range(3):
        mean = drive[0, i] + couplings[i] @ initial
        width = np.sqrt(couplings[i] ** 2 @ (1 - initial**2))

        def density(z, mean=mean, width=width):
            return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * np.tanh(beta * (mean + width * z))

        expected = quad(density, -12, 12, points=[-mean / width], epsabs=1e-12, limit=400)[0]
        assert found[i] == pytest.approx(expected, abs=1e-8)


def test_an_energy_that_is_not_linear_in_its_fields_can_be_causal():
    """The counterexample of chapter 25: the driven pair's means; the first spin feels nothing."""
    states = spin_states(2)
    first, second = states.T
    for field in (0.0, 0.8, 2.0):
        energy = -0.5 * first * second - field * second + np.log(2 * np.cosh(0.5 * first + field))
        m = np.exp(-energy) @ states / np.exp(-energy).sum()
        assert m[0] == pytest.approx(0.0, abs=1e-12)
        assert m[1] == pytest.approx((np.tanh(field + 0.5) + np.tanh(field - 0.5)) / 2)
        pair, drive = np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([0.0, field])
        driven = kinetic_stationary(pair, drive=drive, beta=1.0)
        np.testing.assert_allclose(m, driven.magnetization, atol=1e-10)


def test_what_the_gaussian_theory_leaves_out_is_the_skewness():
    """One step from independent spins: third order with a mean, fourth without."""
    generator = np.random.default_rng(1)
    couplings, states = generator.standard_normal(5), spin_states(5)
    for m, order in ((generator.uniform(0.3, 0.7, 5), 3.0), (np.zeros(5), 4.0)):
        chances = np.prod((1 + states * m) / 2, axis=1)
        errors = []
        for scale in (0.05, 0.025):
            j = scale * couplings
            exact = chances @ np.tanh(0.3 + states @ j)
            nodes, weights = np.polynomial.hermite_e.hermegauss(60)
            width = np.sqrt((j**2 * (1 - m**2)).sum())
            normal = weights @ np.tanh(0.3 + j @ m + width * nodes) / weights.sum()
            errors.append(abs(exact - normal))
        assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


@pytest.mark.nightly
def test_height_of_binders_ratio_needs_fields_that_are_spread_evenly():
    """Drawn fields tip the order parameter: 0.44 for 64 spins where the even grid has 0.26."""
    size, beta, heights = 64, study.critical_beta(0.1, field="uniform", field_scale=0.5), {}
    for kind in ("even", "drawn"):
        squares = []
        for rng in np.random.default_rng(5).spawn(40):
            fields = np.linspace(-0.5, 0.5, size)
            if kind == "drawn":
                fields = rng.uniform(-0.5, 0.5, size)
            couplings = gaussian_couplings(size, mean=1.0, std=0.1, seed=rng)
            run = {"beta": beta, "steps": 900, "fields": fields, "seed": rng}
            path = glauber_trajectory(couplings, states=rng.choice([-1.0, 1.0], (8, size)), **run)
            square = path[300:].mean(-1) ** 2
            squares.append((square.mean(), (square**2).mean()))
        second, fourth = np.mean(squares, axis=0)
        heights[kind] = 1 - fourth / (3 * second**2)
    assert heights["even"] == pytest.approx(0.26, abs=0.03)
    assert heights["drawn"] == pytest.approx(0.44, abs=0.06)


def test_entropy_production_of_asymmetric_couplings(system):
    couplings, drive, initial = system
    beta, x = 0.9, drive[0]
    state = kinetic_stationary(couplings, drive=x, beta=beta)
    assert state.entropy_production > 0.1
    formula = study.entropy_production(couplings, delayed=state.delayed, beta=beta)
    assert formula == pytest.approx(state.entropy_production, rel=1e-10)
    # The exact dynamics arrive at the stationary state, and a simulation measures it.
    long = np.tile(x, (60, 1))
    late = study.exact_magnetizations(couplings, drive=long, initial=initial, beta=beta)
    assert np.allclose(late[-1], state.magnetization, atol=1e-9)
    start = np.random.default_rng(0).choice([-1, 1], (20_000, 7))
    path = glauber_trajectory(couplings, states=start, steps=20, fields=x, beta=beta, seed=1)
    path = path.astype(float)
    delayed = path[-1].T @ path[-2] / 20_000
    assert np.abs(delayed - state.delayed).max() < 4.5 / 20_000**0.5
    found = study.entropy_production(couplings, delayed=delayed, beta=beta)
    assert found == pytest.approx(formula, rel=0.05)
    # A pair is correlated by more than its means are.
    means = np.outer(state.magnetization, state.magnetization)
    assert np.abs(state.correlations - path[-1].T @ path[-1] / 20_000).max() < 0.04
    assert np.abs(state.correlations - means).max() > 0.1


@pytest.mark.parametrize(("size", "beta"), [(3, 0.7), (4, 3.0), (6, 2.5), (7, 0.9)])
def test_symmetric_couplings_give_detailed_balance(size, beta):
    """They have p ∝ exp(β x·s) Π 2 cosh β(x + Js) (Peretto 1984), however cold."""
    rng = np.random.default_rng(size)
    couplings = np.ones((size, size)) + 0.1 * rng.random((size, 1))
    couplings = 0.5 * (couplings + couplings.T)
    np.fill_diagonal(couplings, 0.0)
    drive = np.linspace(0.02, 0.1, size)
    found = kinetic_stationary(couplings, drive=drive, beta=beta)
    states = spin_states(size)
    local = beta * (drive + states @ couplings)
    logs = beta * states @ drive + np.logaddexp(local, -local).sum(axis=1)
    wanted = np.exp(logs - logs.max())
    np.testing.assert_allclose(found.probabilities, wanted / wanted.sum(), rtol=1e-11)
    assert found.entropy_production == pytest.approx(0.0, abs=1e-12)
    assert abs(study.entropy_production(couplings, delayed=found.delayed, beta=beta)) < 1e-12


def test_critical_beta_against_closed_forms_and_the_literature():
    assert study.critical_beta(0.0, field_scale=0.0) == 1.0
    even = study.critical_beta(0.0, field="uniform", field_scale=0.5)
    assert even == pytest.approx(np.arctanh(0.5) / 0.5, rel=1e-10)
    # Aguilera, Moosavi and Shimazaki 2021: J_0 = 1, J_s = 0.1, |x| <= 0.5.
    literature = study.critical_beta(0.1, field="uniform", field_scale=0.5)
    assert literature == pytest.approx(1.1108, abs=5e-5)
    for std, field, scale in ((0.5, "gaussian", 0.6), (0.3, "uniform", 0.8)):
        beta = study.critical_beta(std, field=field, field_scale=scale)
        rng = np.random.default_rng(0)
        z, x = rng.standard_normal((2, 1_000_000))
        x = scale * (x if field == "gaussian" else rng.uniform(-1, 1, z.size))
        gain = beta * np.mean(1 - np.tanh(beta * (x + std * z)) ** 2)
        assert gain == pytest.approx(1, abs=5e-3)


def test_order_is_prevented_exactly_where_the_density_says():
    # The bound 2 J_0 p(0) = 1 is reached at a width of sqrt(2/pi) for normal fields, and at
    # J_0 = 2 H p-wise for uniform ones.
    edge = np.sqrt(2 / np.pi)
    for factor, finite in ((0.999, True), (1.001, False)):
        assert np.isfinite(study.critical_beta(0.0, field_scale=factor * edge)) == finite
        width = np.sqrt((factor * edge) ** 2 - 0.3**2)
        assert np.isfinite(study.critical_beta(0.3, field_scale=width)) == finite
        uniform = study.critical_beta(0.0, field="uniform", field_scale=factor)
        assert np.isfinite(uniform) == finite
    assert study.critical_beta(0.1, field_scale=1.0) == np.inf
    assert study.critical_beta(0.0, field="uniform", field_scale=np.sqrt(3)) == np.inf


@pytest.mark.parametrize("hard", [1e3, 1e11, 1e16])
def test_a_small_field_beside_a_hard_coupling_is_kept_or_refused(hard):
    """Spin 0 follows spin 1; the third, on its own, is up with probability 1/(1 + e⁻²)."""
    couplings = np.zeros((3, 3))
    couplings[0, 1] = hard
    fields = np.array([0.0, 0.0, 1.0])
    if hard > 1e12:
        with pytest.raises(ValueError, match="lost in rounding"):
            log_transitions(couplings, fields=fields, beta=1.0)
        with pytest.raises(ValueError, match="lost in rounding"):
            glauber_trajectory(
                couplings, beta=1.0, states=np.ones((1, 3)), steps=1, seed=0, fields=fields
            )
        return
    transition = np.exp(log_transitions(couplings, fields=fields, beta=1.0))
    up = transition[spin_states(3)[:, 2] > 0].sum(0)
    np.testing.assert_allclose(up, 1 / (1 + np.exp(-2.0)), rtol=1e-4)


def test_bad_input_is_named():
    run = {"couplings": np.eye(2), "beta": 1.0, "steps": 1, "seed": 0}
    for message, change in (
        ("fields", {"states": 2 * np.eye(2) - 1, "fields": np.ones((3, 2))}),
        ("states", {"states": 0.5 * np.eye(2)}),
    ):
        with pytest.raises(ValueError, match=message):
            glauber_trajectory(**run, **change)
    # Twelve are not too many.
    free = log_transitions(np.zeros((12, 12)), fields=np.zeros(12), beta=1.0)
    assert free.shape == (4096, 4096)
    assert free[0, 0] == pytest.approx(-12 * np.log(2))
    for message, size, beta in (("at most 12", 13, 1.0), ("every transition", 2, 1e4)):
        with pytest.raises(ValueError, match=message):
            kinetic_stationary(np.eye(size), drive=np.ones(size), beta=beta)
    with pytest.raises(ValueError, match="symmetry"):
        gaussian_couplings(5, symmetry=2.0, seed=0)
