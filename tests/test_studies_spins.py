"""Experiments of chapter 31: known answers, and no bias where noise is subtracted."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from compendium.c31_asymmetric_hopfield.study import (
    EXPONENTS,
    analog_exponents,
    cycle_lengths,
    exponent_row,
    mean_order,
    spin_memory,
)
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.kinetic import (
    analog_exponent_theory,
    asymmetric_magnetization,
    kinetic_path,
)
from spinformer.spins.mean_field import glass_state


@pytest.mark.claim("C1c")
def test_mutual_couplings_freeze_near_the_simplest_theory_when_cold():
    # A plain loop of its own, and the theory's average by adaptive quadrature.
    rng, kept = np.random.default_rng(0), {0.5: [], 2.0: []}
    for beta, found in kept.items():
        for _ in range(8):
            half = rng.normal(size=(300, 300)) / np.sqrt(300)
            pair = np.triu(half, 1) + np.triu(half, 1).T
            state, path = rng.choice([-1.0, 1.0], 300), []
            for _ in range(500):
                up = rng.random(300) < 0.5 * (1 + np.tanh(beta * pair @ state))
                state = np.where(up, 1.0, -1.0)
                path.append(state)
            late = np.array(path[250:])
            found.append(np.mean(late[:-120] * late[120:]))
    assert abs(np.mean(kept[0.5])) < 0.03
    error = np.std(kept[2.0], ddof=1) / np.sqrt(8)
    assert -0.05 < np.mean(kept[2.0]) - glass_state(2.0).value < 0.15
    assert np.mean(kept[2.0]) > 10 * error
    q = glass_state(2.0).value
    average, _ = quad(lambda z: np.tanh(2 * np.sqrt(q) * z) ** 2 * np.exp(-(z**2) / 2), -12, 12)
    assert average / np.sqrt(2 * np.pi) == pytest.approx(q, abs=1e-9)


@pytest.mark.claim("C1e")
def test_stored_exponents_extrapolate_to_the_theory_and_come_out_again():
    table = EXPONENTS.read()
    (again,) = exponent_row(125, symmetry=0.0, beta=3.0, networks=20)
    row = np.flatnonzero((table["size"] == 125) & (table["beta"] == 3.0))[0]
    # Chaos amplifies rounding, so that another processor follows other orbits.
    assert again["exponent"] == pytest.approx(table["exponent"][row], abs=5 * table["error"][row])
    chosen = (table["symmetry"] == 0) & (table["beta"] == 3.0) & (table["size"] >= 250)
    fit, covariance = np.polyfit(
        1 / table["size"][chosen],
        table["exponent"][chosen],
        1,
        w=1 / table["error"][chosen],
        cov="unscaled",
    )

    def average(f):
        return quad(lambda z: f(z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), -12, 12)[0]

    delta = brentq(
        lambda d: average(lambda z: np.tanh(3 * np.sqrt(d) * z) ** 2) - d, 0.1, 1.0, xtol=1e-10
    )
    theory = 0.5 * np.log(9 * average(lambda z: np.cosh(3 * np.sqrt(delta) * z) ** -4.0))
    assert abs(fit[1] - theory) < 3 * np.sqrt(covariance[1, 1]) < 0.009
    mutual = (table["symmetry"] == 1) & (table["beta"] == 3.0)
    assert (table["exponent"][mutual] + 3 * table["error"][mutual] < 0).all()


def test_memory_freezes_with_symmetric_couplings_only():
    run = {"beta": 3.0, "lags": np.array([2, 20]), "steps": 400, "replicas": 6}
    frozen, free = (spin_memory(100, symmetry=eta, **run, seed=0) for eta in (1.0, 0.0))
    assert (frozen.value > 0.6).all()
    assert np.abs(free.value).max() < 4 * free.error.max() + 0.05
    # One lag after another, not one network after another.
    assert frozen.value.shape == (2,)
    assert frozen.samples == 6


def test_memory_drops_the_first_half_of_every_run():
    rng = np.random.default_rng(5)
    expected = []
    for _ in range(2):
        couplings = gaussian_couplings(30, symmetry=1.0, seed=rng)
        first = rng.choice([-1.0, 1.0], (1, 30))
        path = kinetic_path(couplings, beta=2.0, states=first, steps=9, seed=rng)[:, 0]
        expected.append(np.mean([path[t] * 1.0 @ path[t + 3] / 30 for t in range(4, 7)]))
    found = spin_memory(30, symmetry=1.0, beta=2.0, lags=np.array([3]), steps=9, replicas=2, seed=5)
    assert found.value[0] == pytest.approx(np.mean(expected), abs=1e-12)
    assert found.error[0] == pytest.approx(abs(expected[0] - expected[1]) / 2)


def test_order_and_chaos_follow_the_large_n_theory_within_their_errors():
    order = mean_order(800, mean=2.0, beta=2.0, replicas=6, seed=1)
    assert order.error < 0.02
    assert order.value == pytest.approx(asymmetric_magnetization(2.0, mean=2.0), abs=0.03)
    chaos = analog_exponents(300, symmetry=0.0, beta=3.0, count=4, seed=2)
    assert chaos.value == pytest.approx(analog_exponent_theory(3.0), abs=0.04)
    assert analog_exponents(100, symmetry=1.0, beta=3.0, count=3, seed=2).value < 0.01
    lengths = cycle_lengths(14, symmetry=0.0, count=60, seed=3)
    assert lengths.max() > 10 > 2 >= cycle_lengths(14, symmetry=1.0, count=60, seed=3).max()
