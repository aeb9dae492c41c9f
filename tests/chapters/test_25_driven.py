"""Chapter 25: no bias where noise is subtracted, and the row of the driven spins by other means."""

import numpy as np
import pytest
from open_cells import run_open_cells

from compendium.c25_driven import settings
from compendium.c25_driven.study import (
    binder,
    binder_crossing,
    entropy_by_three_routes,
    kinetic_mean_field,
    order_moments,
    squared_errors,
)
from spinformer.core.statistics import Estimate
from spinformer.spins.ising import gaussian_couplings, pair_couplings, solve_exact
from spinformer.spins.kinetic import kinetic_stationary


@pytest.mark.claim("B13")
def test_driven_spins_as_the_claim_has_them():
    """Sizes and crossing by other runs; `test_spins_kinetic` holds the pair and the entropy."""
    # Exponents of the size: one theory becomes exact, and only for independent couplings.
    sizes = np.array([12, 30, 75])
    run = {"beta": 1.5, "steps": 6, "systems": 24, "replicas": 3000, "seed": 7}
    found = [squared_errors(n, symmetry=0.0, **run) for n in sizes.tolist()]
    independent = [float(errors["gaussian"].value) for errors in found]
    assert abs(np.polyfit(np.log(sizes), np.log(independent), 1)[0] + 1) < 0.3
    assert independent[-1] < 0.2 * found[-1]["tap"].value < 0.2 * found[-1]["naive"].value
    assert squared_errors(75, symmetry=1.0, **run)["gaussian"].value > 0.01
    # The crossing from networks that are not in the table, coarser.
    betas = np.array([1.04, 1.11, 1.18])
    small = order_moments(40, betas=betas, systems=6, steps=240, seed=3)
    large = order_moments(160, betas=betas, systems=6, steps=240, seed=3)
    at, _ = binder_crossing(betas, small=small, large=large)
    assert abs(at.value - 1.1108) < 0.03 + 2 * at.error
    assert at.error < 0.06


def test_errors_of_the_mean_field_dynamics_carry_no_noise():
    # Nearly free spins: every theory is exact, and what is left is noise about zero.
    weak = {"symmetry": 0.0, "beta": 0.02, "steps": 2, "systems": 40, "replicas": 100}
    found = squared_errors(30, **weak, seed=0)
    # Two halves of 50 have noise 1/50 a spin each; 1,200 products of them average out.
    for error in found.values():
        assert abs(error.value) < 4 * 0.02 / np.sqrt(1200)
        assert error.error == pytest.approx(0.02 / np.sqrt(1200), rel=0.5)


def test_order_and_its_crossing_in_a_network_that_is_solved():
    # No disorder, no fields: M obeys Curie and Weiss, and orders at beta = 1.
    plain = {"coupling_std": 0.0, "field_scale": 0.0}
    betas = np.array([0.9, 1.0, 1.1])
    small = order_moments(30, betas=betas, systems=4, steps=240, seed=30, **plain)
    large = order_moments(120, betas=betas, systems=4, steps=240, seed=120, **plain)
    at, height = binder_crossing(betas, small=small, large=large)
    assert at.value == pytest.approx(1.0, abs=0.03 + 3 * at.error)
    assert height.value == pytest.approx(0.2705, abs=0.1 + 3 * height.error)
    # Far above the critical temperature M is normal with variance 1/N /(1 - beta^2), twice two
    # steps being independent.
    hot = order_moments(50, betas=np.array([0.3]), systems=20, seed=1, **plain)
    absolute, second, _ = hot.mean((1, 2))
    assert second == pytest.approx(1 / 50 / (1 - 0.09), rel=0.05)
    assert absolute == pytest.approx(np.sqrt(2 / np.pi * second), rel=0.03)
    assert abs(binder(hot)[0]) < 0.04


def test_entropy_by_three_routes():
    couplings = gaussian_couplings(5, seed=1)
    fields = np.array([0.2, -0.4, 0.1, 0.5, -0.3])
    found = entropy_by_three_routes(couplings, fields=fields, beta=0.5, replicas=20_000, seed=0)
    assert found["simulated"] == pytest.approx(found["definition"], rel=0.05)
    # The leading order is off in proportion to the couplings.
    weak = [
        entropy_by_three_routes(scale * couplings, fields=fields, beta=0.5, replicas=8, seed=0)
        for scale in (0.01, 0.02)
    ]
    off = [abs(one["leading"] / one["definition"] - 1) for one in weak]
    assert off[0] < 0.05
    assert off[1] / off[0] == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("square", [0.0004, -1e-6, 0.01])
def test_the_line_of_a_squared_error(monkeypatch, square):
    """0.05 less its root, with an interval that holds the value where the square is below zero."""
    estimate = Estimate(value=square, error=2e-6, samples=6)
    monkeypatch.setattr(settings, "squared_errors", lambda *_, **__: {"gaussian": estimate})
    (line,) = settings.error_rows(0, symmetry=0.0, beta=1.0, size=8)
    assert line["value"] == pytest.approx(0.05 - max(square, 0.0) ** 0.5)
    assert line["low"] <= line["value"] <= line["high"]
    assert line["low"] == pytest.approx(0.05 - max(square + 4e-6, 0.0) ** 0.5)


def test_the_open_cells_give_what_the_package_gives():
    told = run_open_cells("25_driven")
    masked = np.array([[0.0, 0.0], [0.5, 0.0]])
    only_second = np.array([0.0, 0.8])
    resting = solve_exact(pair_couplings(masked), fields=only_second, beta=1.0).magnetization
    driven = kinetic_stationary(masked, drive=only_second, beta=1.0).magnetization
    np.testing.assert_allclose(told["equilibrium_means"], resting, atol=1e-12)
    np.testing.assert_allclose(told["driven_means"], driven, atol=1e-12)
    run = {"drive": only_second[None], "beta": 1.0, "initial": np.zeros(2)}
    for method, name in (("naive", "naive"), ("tap", "second_order"), ("gaussian", "gaussian")):
        update = kinetic_mean_field(masked, **run, method=method)[-1, 1]
        assert told[f"{name}_mean"] == pytest.approx(update, abs=1e-6)
