"""Random networks between symmetric and asymmetric: ensembles, cycles, chaos, order."""

import numpy as np
import pytest
from scipy.integrate import quad

from spinformer.core.solve import NotConverged, Status
from spinformer.core.states import spin_states
from spinformer.spins.ising.asymmetric import (
    analog_exponent,
    analog_exponent_theory,
    zero_temperature_cycle,
)
from spinformer.spins.ising.asymmetric_order import asymmetric_gain, asymmetric_magnetization
from spinformer.spins.ising.couplings import gaussian_couplings
from spinformer.spins.ising.kinetic import kinetic_path


def signs(seed, *shape):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


def test_gaussian_couplings_have_the_stated_moments():
    for symmetry in (-1.0, 0.0, 0.4, 1.0):
        pair = gaussian_couplings(600, symmetry=symmetry, seed=0, mean=5.0)
        off = ~np.eye(600, dtype=bool)
        assert pair[off].mean() * 600 == pytest.approx(5.0, abs=0.3)
        centred = pair - pair[off].mean()
        assert (centred[off] ** 2).mean() * 600 == pytest.approx(1.0, abs=0.02)
        assert (centred * centred.T)[off].mean() * 600 == pytest.approx(symmetry, abs=0.02)
        assert not pair.diagonal().any()


def test_kinetic_path_has_the_stationary_law_of_symmetric_couplings():
    # Peretto (1984): the stationary law is prod_i 2 cosh(beta h_i(x)), not exp(-beta E).
    pair = gaussian_couplings(4, symmetry=1.0, seed=2) * 1.5
    path = kinetic_path(pair, states=signs(0, 4000, 4), beta=0.9, steps=200, seed=0)
    codes = (path[20::20].reshape(-1, 4) > 0) @ (1 << np.arange(3, -1, -1))
    share = np.bincount(codes, minlength=16) / codes.size
    weight = np.cosh(0.9 * spin_states(4) @ pair.T).prod(axis=1)
    expected = weight / weight.sum()
    z = (share - expected) / np.sqrt(expected / codes.size)
    assert np.abs(z).max() < 4.5


def test_kinetic_path_without_noise_follows_the_sign_of_the_field():
    pair = gaussian_couplings(30, symmetry=0.0, seed=3)
    start = signs(1, 5, 30)
    path = kinetic_path(pair, states=start, beta=1e9, steps=3, seed=0)
    state = start
    for step in range(1, 4):
        state = np.where(np.einsum("ij,rj->ri", pair, state) > 0, 1.0, -1.0)
        np.testing.assert_array_equal(path[step], state)


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gaussian_couplings(5, symmetry=2.0, seed=0), ValueError, "symmetry"),
        (lambda: gaussian_couplings(5, seed=None), TypeError, "seed"),
        (lambda: zero_temperature_cycle(np.eye(2), state=np.array([0.5, 1])), ValueError, "state"),
        (lambda: zero_temperature_cycle(np.ones((5, 4)), state=np.ones(5)), ValueError, "coupl"),
        (
            lambda: zero_temperature_cycle(np.ones((300, 2)), state=np.ones(300)),
            ValueError,
            "coupl",
        ),
        (
            lambda: zero_temperature_cycle(np.full((2, 2), 1e308), state=np.ones(2)),
            ValueError,
            "couplings within",
        ),
        (
            lambda: kinetic_path(
                np.ones((5, 4)), states=np.ones((1, 5)), beta=1.0, steps=1, seed=0
            ),
            ValueError,
            "couplings",
        ),
        (
            lambda: analog_exponent(np.ones((5, 4)), beta=1.0, transient=1, steps=9, seed=0),
            ValueError,
            "couplings",
        ),
        (lambda: asymmetric_magnetization(float("nan"), mean=1.0), ValueError, "beta"),
        (lambda: asymmetric_gain(1e4), ValueError, "beta"),
        (lambda: analog_exponent_theory(1e4), ValueError, "beta"),
    ],
)
def test_bad_input_names_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()
