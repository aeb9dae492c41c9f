"""Driven Ising spins: theories against exact dynamics, simulation and closed forms."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from spinformer.core.solve import NotConverged, Status
from spinformer.core.states import spin_states
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import (
    KINETIC_METHODS,
    analog_exponent,
    analog_exponent_theory,
    asymmetric_gain,
    asymmetric_magnetization,
    critical_beta,
    entropy_production,
    kinetic_exact,
    kinetic_mean_field,
    kinetic_path,
    kinetic_simulation,
    kinetic_stationary,
    mean_field_entropy_production,
    zero_temperature_cycle,
)


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
    mean, delayed = np.zeros(size), np.zeros((size, size))
    for path in itertools.product(states, repeat=steps + 1):
        weight = np.prod((1 + path[0] * m0) / 2)
        for t in range(steps):
            local = beta * path[t + 1] * (x[t] + j @ path[t])
            weight *= np.prod(1 / (1 + np.exp(-2 * local)))
        mean += weight * path[-1]
        delayed += weight * np.outer(path[-1], path[-2])
    result = kinetic_exact(j, drive=x, initial=m0, beta=beta)
    assert np.allclose(result.magnetization[-1], mean, atol=1e-13)
    assert np.allclose(result.delayed[-1], delayed, atol=1e-13)


def test_simulation_matches_exact_dynamics(system):
    couplings, drive, initial = system
    same = {"drive": drive, "initial": initial, "beta": 1.0}
    exact = kinetic_exact(couplings, **same)
    run = kinetic_simulation(couplings, **same, replicas=20_000, seed=3)
    for name in ("magnetization", "correlations", "delayed"):
        found, truth = getattr(run, name), getattr(exact, name)
        uncertain = found.error > 0
        pulls = (found.value - truth)[uncertain] / found.error[uncertain]
        assert np.abs(pulls).max() < 4.5
        assert 0.5 < np.mean(pulls**2) < 1.7
        assert np.allclose(found.value[~uncertain], truth[~uncertain], atol=1e-12)


@pytest.mark.parametrize(("method", "order"), [("naive", 2), ("tap", 3), ("gaussian", 3)])
def test_errors_fall_with_the_order_of_the_approximation(system, method, order):
    couplings, drive, initial = system
    errors = []
    for scale in (0.02, 0.04):
        exact = kinetic_exact(
            scale * couplings, drive=drive, initial=initial, beta=1.0
        ).magnetization
        found = kinetic_mean_field(
            scale * couplings, drive=drive, initial=initial, beta=1.0, method=method
        )
        errors.append(np.abs(found - exact).max())
    assert np.log2(errors[1] / errors[0]) == pytest.approx(order, abs=0.3)


def test_tap_step_solves_its_equation_for_strong_couplings(system):
    couplings, drive, initial = system
    for beta in (0.5, 5.0, 40.0):
        m = kinetic_mean_field(couplings, drive=drive, initial=initial, beta=beta, method="tap")
        spread = beta**2 * (couplings**2 @ (1 - m[0] ** 2))
        residual = np.tanh(beta * (drive[0] + couplings @ m[0]) - m[1] * spread) - m[1]
        # tanh' <= 1, so the root is known to rounding times its reaction term.
        assert np.abs(residual).max() < 1e-14 * (10 + spread.max())


def test_gaussian_theory_is_right_for_large_asymmetric_systems():
    rng = np.random.default_rng(5)
    size, beta, steps = 400, 1.5, 6
    couplings = rng.normal(size=(size, size)) / np.sqrt(size)
    drive = np.tile(0.5 * rng.normal(size=size), (steps, 1))
    run = kinetic_simulation(
        couplings, drive=drive, initial=np.zeros(size), beta=beta, replicas=4000
    )
    error = {}
    for method in KINETIC_METHODS:
        m = kinetic_mean_field(
            couplings, drive=drive, initial=np.zeros(size), beta=beta, method=method
        )
        squared = np.mean((m[-1] - run.magnetization.value[-1]) ** 2)
        error[method] = squared - np.mean(run.magnetization.error[-1] ** 2)
    assert error["gaussian"] < 0.05 * error["tap"]
    assert error["tap"] < error["naive"]


@pytest.mark.parametrize("beta", [0.4, 0.8, 3.0, 60.0])
def test_gaussian_average_agrees_with_adaptive_quadrature(beta):
    couplings = np.array([[0.0, 1.5, -0.7], [0.4, 0.3, 1.1], [-2.0, 0.6, 0.0]])
    drive, initial = np.array([[0.3, -0.2, 0.1]]), np.array([0.2, -0.5, 0.9])
    found = kinetic_mean_field(
        couplings, drive=drive, initial=initial, beta=beta, method="gaussian"
    )[1]
    for i in range(3):
        mean = drive[0, i] + couplings[i] @ initial
        width = np.sqrt(couplings[i] ** 2 @ (1 - initial**2))

        def density(z, mean=mean, width=width):
            return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * np.tanh(beta * (mean + width * z))

        expected = quad(density, -12, 12, points=[-mean / width], epsabs=1e-12, limit=400)[0]
        assert found[i] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("method", KINETIC_METHODS)
def test_batch_members_do_not_see_their_neighbours(method):
    rng = np.random.default_rng(2)
    j, x = rng.normal(size=(3, 5, 5)), rng.normal(size=(3, 4, 5))
    m0 = rng.uniform(-1, 1, (3, 5))
    together = kinetic_mean_field(j, drive=x, initial=m0, beta=1.1, method=method)
    for b in range(3):
        alone = kinetic_mean_field(j[b], drive=x[b], initial=m0[b], beta=1.1, method=method)
        assert np.array_equal(alone, together[b])


def test_entropy_production_of_asymmetric_couplings(system):
    couplings, drive, initial = system
    beta, x = 0.9, drive[0]
    state = kinetic_stationary(couplings, drive=x, beta=beta)
    assert state.entropy_production > 0.1
    formula = entropy_production(couplings, delayed=state.delayed, beta=beta)
    assert formula == pytest.approx(state.entropy_production, rel=1e-10)
    # The exact dynamics arrive at the stationary state, and a simulation measures it.
    long = np.tile(x, (60, 1))
    late = kinetic_exact(couplings, drive=long, initial=initial, beta=beta)
    assert np.allclose(late.magnetization[-1], state.magnetization, atol=1e-9)
    run = kinetic_simulation(
        couplings, drive=long[:20], initial=initial, beta=beta, replicas=20_000
    )
    assert entropy_production(couplings, delayed=run.delayed.value[-1], beta=beta) == pytest.approx(
        formula, rel=0.05
    )
    ratios = []
    for scale in (0.002, 0.004):
        weak = kinetic_stationary(scale * couplings, drive=x, beta=beta)
        leading = mean_field_entropy_production(
            scale * couplings, magnetization=weak.magnetization, beta=beta
        )
        ratios.append(abs(leading / weak.entropy_production - 1))
    assert ratios[0] < 0.05
    assert ratios[1] / ratios[0] == pytest.approx(2, rel=0.2)


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
    assert abs(entropy_production(couplings, delayed=found.delayed, beta=beta)) < 1e-12
    run = {"magnetization": found.magnetization, "beta": beta}
    assert mean_field_entropy_production(couplings, **run) == 0


def test_critical_beta_against_closed_forms_and_the_literature():
    assert critical_beta(0.0, field_scale=0.0) == 1.0
    assert critical_beta(0.0, field="uniform", field_scale=0.5) == pytest.approx(
        np.arctanh(0.5) / 0.5, rel=1e-10
    )
    # Aguilera, Moosavi and Shimazaki 2021: J_0 = 1, J_s = 0.1, |x| <= 0.5.
    literature = critical_beta(0.1, field="uniform", field_scale=0.5)
    assert literature == pytest.approx(1.1108, abs=5e-5)
    for std, field, scale in ((0.5, "gaussian", 0.6), (0.3, "uniform", 0.8)):
        beta = critical_beta(std, field=field, field_scale=scale)
        rng = np.random.default_rng(0)
        z = rng.standard_normal(4_000_000)
        x = scale * (
            rng.standard_normal(z.size) if field == "gaussian" else rng.uniform(-1, 1, z.size)
        )
        gain = beta * np.mean(1 - np.tanh(beta * (x + std * z)) ** 2)
        assert gain == pytest.approx(1, abs=5e-3)


def test_order_is_prevented_exactly_where_the_density_says():
    # The bound 2 J_0 p(0) = 1 is reached at a width of sqrt(2/pi) for normal fields, and at
    # J_0 = 2 H p-wise for uniform ones.
    edge = np.sqrt(2 / np.pi)
    for factor, finite in ((0.999, True), (1.001, False)):
        assert np.isfinite(critical_beta(0.0, field_scale=factor * edge)) == finite
        width = np.sqrt((factor * edge) ** 2 - 0.3**2)
        assert np.isfinite(critical_beta(0.3, field_scale=width)) == finite
        uniform = critical_beta(0.0, field="uniform", field_scale=factor)
        assert np.isfinite(uniform) == finite
    assert critical_beta(0.1, field_scale=1.0) == np.inf
    assert critical_beta(0.0, field="uniform", field_scale=np.sqrt(3)) == np.inf
    assert critical_beta(0.2, coupling_mean=2.0, field_scale=0.4) == pytest.approx(
        0.5 * critical_beta(0.1, field_scale=0.2), rel=1e-9
    )


def test_mean_field_orders_at_the_critical_beta():
    # The Gaussian theory with the mean overlap alone, on a large system.
    rng = np.random.default_rng(8)
    size, std, scale = 1200, 0.1, 0.5
    couplings = 1 / size + std * rng.normal(size=(size, size)) / np.sqrt(size)
    x = scale * (2 * (np.arange(size) + 0.5) / size - 1)  # an even grid: no mean by chance
    couplings -= couplings.mean(1, keepdims=True) - 1 / size
    beta = critical_beta(std, field="uniform", field_scale=scale)
    drive = np.tile(x, (150, 1))
    final = []
    for factor in (0.9, 1.15):
        m = kinetic_mean_field(
            couplings,
            drive=drive,
            initial=np.full(size, 0.5),
            beta=factor * beta,
            method="gaussian",
        )
        final.append(m[-1].mean())
    assert abs(final[0]) < 0.02
    assert final[1] > 0.2


def test_error_bars_of_the_simulation_are_the_scatter_over_seeds(system):
    couplings, drive, initial = system
    runs = [
        kinetic_simulation(
            couplings, drive=drive, initial=initial, beta=1.0, replicas=100, seed=seed
        )
        for seed in range(80)
    ]
    for name in ("magnetization", "correlations", "delayed"):
        estimates = [getattr(run, name) for run in runs]
        scatter = np.var([e.value for e in estimates], axis=0, ddof=1)
        claimed = np.mean([e.error**2 for e in estimates], axis=0)
        keep = claimed > 0
        assert np.mean(scatter[keep] / claimed[keep]) == pytest.approx(1.0, abs=0.12)
        assert estimates[0].samples == 100


def test_seeds_repeat_and_generators_move_on(system):
    couplings, drive, initial = system
    run = {"drive": drive, "initial": initial, "beta": 1.0, "replicas": 10}
    first = kinetic_simulation(couplings, **run, seed=4)
    assert first == kinetic_simulation(couplings, **run, seed=4)
    rng = np.random.default_rng(4)
    assert first == kinetic_simulation(couplings, **run, seed=rng)
    assert first != kinetic_simulation(couplings, **run, seed=rng)
    with pytest.raises(TypeError, match="seed"):
        kinetic_simulation(couplings, **run, seed=None)


def test_kinetic_path_has_the_stationary_law_of_symmetric_couplings():
    # Peretto (1984): the stationary law is prod_i 2 cosh(beta h_i(x)), not exp(-beta E).
    pair = gaussian_couplings(4, symmetry=1.0, seed=2) * 1.5
    path = kinetic_path(
        pair,
        states=np.random.default_rng(0).choice([-1.0, 1.0], (4000, 4)),
        beta=0.9,
        steps=200,
        seed=0,
    )
    codes = (path[20::20].reshape(-1, 4) > 0) @ (1 << np.arange(3, -1, -1))
    share = np.bincount(codes, minlength=16) / codes.size
    weight = np.cosh(0.9 * spin_states(4) @ pair.T).prod(axis=1)
    expected = weight / weight.sum()
    z = (share - expected) / np.sqrt(expected / codes.size)
    assert np.abs(z).max() < 4.5


def test_symmetric_cycles_are_at_most_two_long_and_cycles_are_cycles():
    rng = np.random.default_rng(0)
    longest = 0
    for _ in range(60):
        symmetric = gaussian_couplings(20, symmetry=1.0, seed=rng)
        start = rng.choice([-1.0, 1.0], 20)
        assert zero_temperature_cycle(symmetric, state=start).length in (1, 2)
        pair = gaussian_couplings(14, symmetry=0.0, seed=rng)
        start = rng.choice([-1.0, 1.0], 14)
        cycle = zero_temperature_cycle(pair, state=start)
        seen, state, step = {}, start, 0
        while tuple(state) not in seen:
            seen[tuple(state)] = step
            state = np.where(pair @ state > 0, 1.0, -1.0)
            step += 1
        assert cycle.transient == seen[tuple(state)]
        assert cycle.length == step - seen[tuple(state)]
        longest = max(longest, cycle.length)
        # The state handed back lies on the cycle, and the residual is what its next step turns.
        state = cycle.value
        for step in range(cycle.length):
            assert step == 0 or not np.array_equal(state, cycle.value)
            state = np.where(pair @ state > 0, 1.0, -1.0)
        assert np.array_equal(state, cycle.value)
        turned = np.mean(np.where(pair @ state > 0, 1.0, -1.0) != state)
        assert cycle.residual == turned
        assert cycle.steps == cycle.transient + cycle.length
        assert cycle.status == (Status.CONVERGED if cycle.length == 1 else Status.CYCLE)
        assert cycle.converged is (cycle.length == 1)
    assert longest > 10


def test_a_cycle_that_does_not_close_says_so():
    ring = np.roll(np.eye(12), 1, axis=0)
    start = np.array([1.0] + 11 * [-1.0])
    short = zero_temperature_cycle(ring, state=start, max_steps=11)
    assert (short.length, short.transient, short.steps) == (0, 0, 11)
    assert short.status == Status.STEP_LIMIT
    assert not short.converged
    closed = zero_temperature_cycle(ring, state=start)
    assert (closed.length, closed.transient, closed.status) == (12, 0, Status.CYCLE)
    for limit in (11, 1000):
        with pytest.raises(NotConverged, match="a state that stays"):
            zero_temperature_cycle(ring, state=start, max_steps=limit, throw=True)
    still = zero_temperature_cycle(np.eye(3), state=np.ones(3), throw=True)
    assert still.converged


def test_exponent_is_that_of_two_neighbouring_orbits():
    # A shear makes J and its transpose differ; the tangent map must be that of the map itself.
    rng = np.random.default_rng(1)
    couplings = rng.normal(size=(6, 6)) + np.triu(2 * np.ones((6, 6)), 1)
    found = analog_exponent(couplings, beta=1.1, transient=200, steps=4000, seed=5)
    state = np.random.default_rng(5).uniform(-1.0, 1.0, 6)
    other = state + 1e-8 * rng.normal(size=6)
    growth = []
    for _ in range(4200):
        state, other = np.tanh(1.1 * couplings @ state), np.tanh(1.1 * couplings @ other)
        distance = np.linalg.norm(other - state)
        growth.append(np.log(distance / 1e-8) if growth else 0.0)
        other = state + (other - state) * 1e-8 / distance
    assert found.value == pytest.approx(np.mean(growth[200:]), abs=1e-5)


def test_error_of_the_exponent_is_the_scatter_over_starts():
    couplings = gaussian_couplings(60, seed=4)
    runs = [
        analog_exponent(couplings, beta=3.0, transient=100, steps=600, seed=s) for s in range(40)
    ]
    values, errors = (np.array([getattr(run, name) for run in runs]) for name in ("value", "error"))
    assert 0.6 < values.std(ddof=1) / np.sqrt(np.mean(errors**2)) < 1.5
    frozen = analog_exponent(couplings, beta=0.0, transient=1, steps=10, seed=0)
    assert frozen.value == -np.inf
    assert np.isnan(frozen.error)


def test_theory_just_above_the_onsets():
    # Δ = (β² − 1)/2 to leading order, λ = ½ ln(β²(1 − 2β²Δ)): chaos starts with λ ≈ β² − 1 > 0?
    assert analog_exponent_theory(1.0) == pytest.approx(0.0, abs=1e-12)
    for excess in (1e-15, 1e-9, 1e-4):
        assert abs(analog_exponent_theory(1 + excess)) < 3 * excess**2 + 1e-12
    assert analog_exponent_theory(1.2) > 0
    critical = 1 / asymmetric_gain(2.0)
    assert asymmetric_magnetization(2.0, mean=critical * (1 + 1e-14)) < 1e-5
    above = asymmetric_magnetization(2.0, mean=critical * 1.001)
    assert 0 < above < 0.1
    assert asymmetric_magnetization(0.0, mean=3.0) == 0.0
    assert asymmetric_magnetization(100.0, mean=50.0) == pytest.approx(1.0, abs=1e-9)


def test_theory_averages_equal_adaptive_quadrature():
    def average(f):
        def density(z):
            return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * f(z)

        return quad(density, -12, 12, epsabs=1e-13, points=[0.0], limit=400)[0]

    for beta in (0.5, 2.0, 8.0):
        expected = beta * average(lambda z, b=beta: 1 / np.cosh(b * z) ** 2)
        assert asymmetric_gain(beta) == pytest.approx(expected, abs=1e-10)
    m = asymmetric_magnetization(2.0, mean=2.0)
    assert average(lambda z: np.tanh(2.0 * (2.0 * m + z))) == pytest.approx(m, abs=1e-10)
    assert asymmetric_magnetization(2.0, mean=0.99 / asymmetric_gain(2.0)) == 0.0
    assert analog_exponent_theory(0.5) == pytest.approx(np.log(0.5), abs=1e-12)


@pytest.mark.claim("C1d")
def test_independent_couplings_order_at_the_critical_mean_and_forget():
    rng, critical = np.random.default_rng(0), 1 / asymmetric_gain(2.0)
    for ratio in (0.8, 1.2, 1.5):
        found = []
        for _ in range(8):
            pair = gaussian_couplings(600, symmetry=0.0, seed=rng, mean=ratio * critical)
            path = kinetic_path(pair, states=np.ones((1, 600)), beta=2.0, steps=120, seed=rng)
            found.append(abs(path[40:].mean()))
        expected = asymmetric_magnetization(2.0, mean=ratio * critical)
        assert np.mean(found) == pytest.approx(expected, abs=0.05)
        assert (expected > 0.5) == (ratio > 1)
    pair = gaussian_couplings(1000, symmetry=0.0, seed=rng)
    state = kinetic_path(pair, states=np.ones((1, 1000)), beta=2.0, steps=40, seed=rng)[:, 0]
    assert abs(np.mean(state[20] * state[22])) < 4 / np.sqrt(1000)


TWO, ONES = np.eye(2), np.ones(2)


@pytest.mark.parametrize(
    ("call", "change", "message"),
    [
        (kinetic_mean_field, {"couplings": np.ones((2, 3))}, "couplings"),
        (kinetic_mean_field, {"drive": np.ones((1, 3))}, "drive"),
        (kinetic_mean_field, {"initial": 2 * ONES}, "initial"),
        (kinetic_mean_field, {"method": "exact"}, "method"),
        (kinetic_exact, {"couplings": np.ones((3, 2))}, "couplings"),
        (kinetic_simulation, {"replicas": 1}, "replicas"),
    ],
)
def test_bad_input_of_a_run_is_named(call, change, message):
    run = {"couplings": TWO, "drive": np.ones((1, 2)), "initial": ONES, "beta": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        call(**run)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kinetic_stationary(np.eye(13), drive=np.ones(13), beta=1.0), "at most 12"),
        (lambda: kinetic_stationary(TWO, drive=ONES, beta=-1.0), "beta"),
        (lambda: kinetic_stationary(TWO, drive=ONES, beta=1e4), "every transition"),
        (lambda: entropy_production(np.ones((2, 3)), beta=1.0, delayed=TWO), "couplings"),
        (lambda: kinetic_path(TWO, states=0.5 * TWO, beta=1.0, steps=1, seed=0), "states"),
        (lambda: critical_beta(-0.1), "coupling_std"),
        (lambda: critical_beta(0.1, field="cauchy"), "field"),
        (lambda: zero_temperature_cycle(TWO, state=np.array([0.5, 1])), "state"),
        (lambda: zero_temperature_cycle(1e308 * TWO, state=ONES), "couplings within"),
        (lambda: analog_exponent(np.ones((5, 4)), beta=1.0, transient=1, steps=9, seed=0), "coup"),
        (lambda: asymmetric_magnetization(float("nan"), mean=1.0), "beta"),
        (lambda: asymmetric_gain(1e4), "beta"),
        (lambda: analog_exponent_theory(1e4), "beta"),
        (lambda: gaussian_couplings(5, symmetry=2.0, seed=0), "symmetry"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
