"""Random networks between symmetric and asymmetric: ensembles, cycles, chaos, order."""

import numpy as np
import pytest
from scipy.integrate import quad

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
    assert longest > 10


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


def test_simulations_follow_the_large_n_theory():
    rng = np.random.default_rng(0)
    pair = gaussian_couplings(1000, symmetry=0.0, seed=rng, mean=2.0)
    path = kinetic_path(pair, states=np.ones((4, 1000)), beta=2.0, steps=150, seed=rng)
    assert path[50:].mean() == pytest.approx(asymmetric_magnetization(2.0, mean=2.0), abs=0.015)
    exponents = [
        analog_exponent(
            gaussian_couplings(500, symmetry=0.0, seed=rng),
            beta=3.0,
            transient=100,
            steps=400,
            seed=rng,
        ).value
        for _ in range(4)
    ]
    assert np.mean(exponents) == pytest.approx(analog_exponent_theory(3.0), abs=0.025)


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
