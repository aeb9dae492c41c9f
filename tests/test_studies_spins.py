"""Experiments of chapters 21, 25 and 31: known answers, and no bias where noise is subtracted."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from compendium.c21_ising.study import approximation_errors, field_differences, several_solutions
from compendium.c25_driven.study import (
    binder_crossing,
    entropy_by_four_routes,
    largest_errors,
    order_moments,
    squared_errors,
)
from compendium.c31_asymmetric_hopfield.study import (
    EXPONENTS,
    analog_exponents,
    cycle_lengths,
    exponent_row,
    mean_order,
    spin_memory,
)
from spinformer.spins.ising.asymmetric import analog_exponent_theory
from spinformer.spins.ising.asymmetric_order import asymmetric_magnetization
from spinformer.spins.ising.couplings import gaussian_couplings, sherrington_kirkpatrick
from spinformer.spins.ising.exact import solve_exact
from spinformer.spins.ising.kinetic import kinetic_path
from spinformer.spins.ising.replica_symmetric import glass_state


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


def test_errors_of_the_mean_field_dynamics_carry_no_noise():
    # Nearly free spins: every theory is exact, and what is left is noise about zero.
    weak = {"symmetry": 0.0, "beta": 0.02, "steps": 2, "systems": 40, "replicas": 100}
    found = squared_errors(30, **weak)
    for error in found.values():
        # Two halves of 50 have noise 1/50 a spin each; 1,200 products of them average out.
        assert abs(error.value) < 4 * 0.02 / np.sqrt(1200)
        assert error.error == pytest.approx(0.02 / np.sqrt(1200), rel=0.5)
    cold = squared_errors(60, symmetry=0.0, beta=1.5, steps=6, systems=4, replicas=400)
    assert cold["gaussian"].value < 0.2 * cold["tap"].value < 0.2 * cold["naive"].value


def test_order_and_its_crossing_in_a_network_that_is_solved():
    # No disorder, no fields: M obeys Curie and Weiss, and orders at beta = 1.
    betas = np.array([0.9, 1.0, 1.1])
    runs = {
        n: order_moments(
            n, betas=betas, systems=4, steps=240, coupling_std=0.0, field_scale=0.0, seed=n
        )
        for n in (30, 120)
    }
    at, height = binder_crossing(runs[30], large=runs[120])
    assert at.value == pytest.approx(1.0, abs=0.03 + 3 * at.error)
    assert height.value == pytest.approx(0.2705, abs=0.1 + 3 * height.error)
    # Far above the critical temperature M is normal with variance 1/N /(1 - beta^2), twice two
    # steps being independent.
    hot = order_moments(
        50, betas=np.array([0.3]), systems=20, coupling_std=0.0, field_scale=0.0, seed=1
    )
    assert hot.second.mean() == pytest.approx(1 / 50 / (1 - 0.09), rel=0.05)
    assert hot.absolute.mean() == pytest.approx(np.sqrt(2 / np.pi * hot.second.mean()), rel=0.03)
    assert abs(hot.binder()[0]) < 0.04
    with pytest.raises(ValueError, match="same betas"):
        binder_crossing(runs[30], large=hot)


def test_entropy_by_four_routes_and_largest_errors():
    couplings = gaussian_couplings(5, seed=1)
    fields = np.array([0.2, -0.4, 0.1, 0.5, -0.3])
    found = entropy_by_four_routes(couplings, fields=fields, beta=0.5, replicas=20_000, seed=0)
    assert found.delayed == pytest.approx(found.definition, rel=1e-10)
    assert found.simulated == pytest.approx(found.definition, rel=0.05)
    assert found.leading == pytest.approx(found.definition, rel=0.3)
    run = {"drive": np.tile(fields, (4, 1)), "beta": 0.5, "initial": np.zeros(5)}
    errors = largest_errors(couplings, **run)
    assert max(errors["tap"], errors["gaussian"]) < errors["naive"] < 0.2


def test_errors_and_solutions_of_ising_approximations():
    couplings, fields = sherrington_kirkpatrick(8, seed=0, count=5, field_std=0.5)
    one = {"fields": fields[0], "beta": 0.7}
    slope = field_differences(couplings[0], **one)
    assert slope == pytest.approx(solve_exact(couplings[0], **one).magnetization, abs=1e-7)
    batch = {"fields": fields, "beta": 0.5}
    truth = solve_exact(couplings, **batch)
    errors = approximation_errors(couplings, **batch, method="naive", truth=truth)
    m = errors.solution.magnetization
    for n in range(5):
        expected = np.linalg.norm(m[n] - truth.magnetization[n]) / np.sqrt(8)
        assert errors.moments[n] == pytest.approx(expected)
        gap = errors.solution.log_partition[n] - truth.log_partition[n]
        assert errors.log_partition[n] == pytest.approx(gap / 8)
    starts = np.random.default_rng(0).uniform(-0.9, 0.9, (6, 5, 8))
    for beta, expected in ((0.2, 0), (4.0, 5)):
        several = several_solutions(
            couplings, fields=0 * fields, beta=beta, method="naive", starts=starts
        )
        assert several.sum() == expected


@pytest.mark.parametrize(("stray", "arrived"), [(0.9, False), (-0.9, False), (0.9, True)])
def test_ends_that_were_not_solved_are_no_solutions(monkeypatch, stray, arrived):
    ends = iter([(0.1, True), (0.1, True), (stray, arrived)])

    def solve(*_, **__):
        m, converged = next(ends)
        return SimpleNamespace(magnetization=np.full((1, 2), m), converged=np.array([converged]))

    monkeypatch.setattr("compendium.c21_ising.study.solve_mean_field", solve)
    several = several_solutions(
        np.zeros((1, 2, 2)),
        fields=np.zeros((1, 2)),
        beta=1.0,
        method="tap",
        starts=np.zeros((3, 1, 2)),
    )
    assert several.tolist() == [arrived]
