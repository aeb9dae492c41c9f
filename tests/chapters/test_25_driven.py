"""Chapter 25: no bias where noise is subtracted, and the row of the driven spins by other means."""

import numpy as np
import pytest
import torch
from open_cells import run_open_cells

from compendium.c25_driven import settings, vectors
from compendium.c25_driven.study import (
    binder,
    binder_crossing,
    entropy_by_three_routes,
    exact_magnetizations,
    kinetic_mean_field,
    order_moments,
    squared_errors,
)
from spinformer.core.statistics import Estimate
from spinformer.spins.ising import gaussian_couplings, pair_couplings, solve_exact
from spinformer.spins.kinetic import kinetic_stationary
from spinformer.spins.large_d import langevin_gain


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


def test_the_second_order_of_vector_spins_by_finite_differences():
    """The average of φ over a weak normal field, by differences of φ instead of its derivatives."""
    rng = np.random.default_rng(0)
    field = rng.standard_normal((1, 3))
    root = rng.standard_normal((3, 3))
    spread = 1e-5 * root @ root.T
    size = np.linalg.norm(field, axis=-1)
    shift = vectors.reaction(field, spread[None], vectors.spin_response(size, beta=0.9, dim=3))
    # Two points on each principal axis have the covariance of the field.
    around = np.sqrt(3e-5) * np.concatenate([root.T, -root.T])
    average = vectors.spin_mean(field + around, beta=0.9).mean(0)
    change = average - vectors.spin_mean(field, beta=0.9)[0]
    moved = vectors.spin_mean(field - shift, beta=0.9) - vectors.spin_mean(field, beta=0.9)
    np.testing.assert_allclose(moved[0], change, rtol=1e-3, atol=1e-8)
    # Equal fluctuations in all directions: Onsager's term, whatever the dimension.
    even = 0.2 * np.eye(3)[None]
    shift = vectors.reaction(field, even, vectors.spin_response(size, beta=0.9, dim=3))
    np.testing.assert_allclose(shift, 0.9 * 0.2 * vectors.spin_mean(field, beta=0.9), rtol=1e-9)


def test_vector_spins_of_one_component_are_ising_spins():
    couplings = gaussian_couplings(3, seed=4)
    rng = np.random.default_rng(4)
    drive = 0.5 * rng.standard_normal((4, 3, 1))
    start = rng.standard_normal((3, 1))
    run = {"drive": drive[..., 0], "beta": 0.7, "initial": np.tanh(0.7 * start[:, 0])}
    vector = {"drive": drive, "beta": 0.7, "start": start}
    exact = vectors.exact_vector_means(couplings, **vector, count=2)
    np.testing.assert_allclose(exact[..., 0], exact_magnetizations(couplings, **run), atol=1e-12)
    for theory, method in (("second order", "tap"), ("isotropic", "tap"), ("naive", "naive")):
        path = vectors.vector_mean_field(couplings, **vector, theory=theory)
        known = kinetic_mean_field(couplings, **run, method=method)
        np.testing.assert_allclose(path[..., 0], known, atol=1e-9)


def test_orders_of_the_theories_of_vector_spins():
    """On systems that the chapter does not show, and finer nodes for the strongest couplings."""
    strengths = np.array([0.03, 0.06])
    for size, dim, count in ((2, 3, 13), (3, 2, 16)):
        run = {"size": size, "dim": dim, "beta": 0.6, "steps": 3, "seed": 8}
        errors = vectors.weak_coupling_errors(strengths=strengths, count=count, **run)
        for theory, order in (("naive", 2), ("isotropic", 2), ("second order", 3), ("Gaussian", 3)):
            slope = np.log2(errors[theory][1] / errors[theory][0])
            assert slope == pytest.approx(order, abs=0.35), (dim, theory)
        strong = {"strengths": np.array([0.8]), **run}
        coarse, fine = (
            vectors.weak_coupling_errors(count=number, **strong)["naive"]
            for number in (count, count + 3)
        )
        np.testing.assert_allclose(coarse, fine, rtol=1e-4)


def test_planar_spins_follow_their_exact_means():
    couplings = np.array([[0.0, 0.9], [-0.6, 0.0]])
    drive = np.broadcast_to([[0.4, 0.2], [-0.3, 0.5]], (3, 2, 2))
    run = {"drive": drive, "beta": 1.2}
    exact = vectors.exact_vector_means(couplings, **run, start=np.zeros((2, 2)), count=24)[-1]
    rng = np.random.default_rng(0)
    found = vectors.simulate_planar_spins(couplings, **run, replicas=40_000, seed=rng)
    np.testing.assert_allclose(found, exact, atol=4 / 200)


def test_the_published_correction_of_vector_spins():
    """Up to rounding with the length of the spin that feels it; by large D with the neighbour's."""
    returned = vectors.published_corrections()
    for place in range(len(returned["data"])):
        dim = int(returned["dim"][place])
        system = vectors.published_system(int(returned["data"][place]), dim=dim)
        names = [f"{spin}_{entry}" for spin in ("first", "second", "third") for entry in (1, 2)]
        numbers = [returned[name][place] for name in names]
        own = vectors.published_correction(system, beta=1.0, own=True)
        np.testing.assert_allclose(own[:, :2].ravel(), numbers, atol=1e-11)
    # Many components: the field is lengthened by the trace, as in `driven_step`.
    system = vectors.published_system(0, dim=4000)
    found = vectors.published_correction(system, beta=1.0, own=False)
    square = (system.after**2).sum(-1)
    field = 2 * system.radius**2 / (system.radius**2 - square)[:, None] * system.after
    trace = system.couplings**2 @ (system.radius**2 - (system.before**2).sum(-1))
    tiny = 1e-6
    lengths = torch.from_numpy((field**2).sum(-1) / system.radius**2)
    beta = torch.tensor(0.5, dtype=torch.float64)
    gains = [
        langevin_gain(lengths + shift * torch.from_numpy(trace) / system.radius**2, beta)
        for shift in (0.0, tiny)
    ]
    change = ((gains[1] - gains[0]) / tiny).numpy()[:, None] * field
    response = vectors.many_component_response(
        np.linalg.norm(field, axis=-1), beta=1.0, radius=system.radius
    )
    moved = response.slope[:, None] * found
    np.testing.assert_allclose(moved, change, rtol=1e-2)
