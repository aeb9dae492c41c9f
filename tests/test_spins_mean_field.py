"""Approximate free energies against enumeration, finite differences and exact expansions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import block_diag

from spinformer.core.solve import NotConverged, Status
from spinformer.core.states import spin_states
from spinformer.spins import mean_field
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.mean_field import (
    METHODS,
    _functional,
    _unit_diagonal,
    belief_propagation,
    solve_mean_field,
)
from spinformer.spins.theories import _sample_log_partition, free_energies


def gibbs_functional(couplings, *, fields, beta, magnetization, method):
    """psi(m) at any m, stationary or not."""
    evaluate = _functional(method, beta * couplings, beta * fields)
    return evaluate(np.arctanh(magnetization), None).psi


def _glass(seed, size, batch=(), field=0.5):
    rng = np.random.default_rng(seed)
    raw = np.triu(rng.normal(size=(*batch, size, size)) / np.sqrt(size), 1)
    return raw + raw.swapaxes(-1, -2), field * rng.normal(size=(*batch, size))


def _legendre(couplings, beta, m):
    """Exact min over theta of ln Z(theta) - theta.m, by Newton on the enumerated ln Z."""
    theta = np.arctanh(m)
    for _ in range(60):
        exact = solve_exact(beta * couplings, fields=theta, beta=1.0)
        theta = theta + np.linalg.solve(exact.susceptibility, m - exact.magnetization)
    exact = solve_exact(beta * couplings, fields=theta, beta=1.0)
    assert np.allclose(exact.magnetization, m, atol=1e-12)
    return float(exact.log_partition) - theta @ m


@pytest.mark.parametrize(
    ("method", "order"), [("naive", 2), ("tap", 3), ("plefka3", 4), ("adaptive", 3)]
)
def test_error_of_the_functional_has_plefka_s_order(method, order):
    # At fixed m the first neglected term of the expansion in beta sets the error.
    couplings, _ = _glass(1, 6)
    points = {order: np.array([0.3, -0.5, 0.6, 0.1, -0.2, 0.4])}
    if method == "adaptive":
        # Without magnetisation its third order, the triangles, is complete as well.
        points[4] = np.full(6, 1e-9)
    for power, m in points.items():
        system = {"fields": np.zeros(6), "magnetization": m, "method": method}
        errors = [
            abs(gibbs_functional(couplings, **system, beta=b) - _legendre(couplings, b, m))
            for b in (0.01, 0.02)
        ]
        assert np.log2(errors[1] / errors[0]) == pytest.approx(power, abs=0.25)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("beta", [0.3, 0.9, 1.6])
def test_derivative_of_log_z_is_the_magnetisation(method, beta):
    couplings, fields = _glass(4, 10)
    options = {"beta": beta, "method": method}
    base = solve_mean_field(couplings, fields=fields, **options)
    assert base.converged
    assert base.stable
    step = 4e-3
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}  # sixth-order central difference
    for i in range(0, 10, 3):
        unit = np.eye(10)[i] / beta
        slope, response = 0.0, 0.0
        for k, w in weights.items():
            start = base.magnetization
            up, down = (
                solve_mean_field(couplings, fields=fields + s * unit, start=start, **options)
                for s in (k * step, -k * step)
            )
            slope += w * (up.log_partition - down.log_partition) / step
            response += w * (up.magnetization - down.magnetization) / step
        assert slope == pytest.approx(base.magnetization[i], abs=1e-10)
        assert np.allclose(response, base.susceptibility[:, i], atol=1e-9)


def _median_error(method, beta, couplings, fields, field_of):
    truth = np.array([field_of(j, h, beta) for j, h in zip(couplings, fields, strict=True)])
    found = solve_mean_field(couplings, fields=fields, beta=beta, method=method)
    assert np.all(found.converged)
    return np.median(np.sqrt(np.mean((found.magnetization - truth) ** 2, -1)))


def _means_by_brute_force(j, h, beta):
    """Mean spins as a plain sum over all states, no code shared with `solve_exact`."""
    states = np.array(list(itertools.product((-1.0, 1.0), repeat=len(h))))
    energy = -0.5 * np.einsum("si,ij,sj->s", states, j, states) - states @ h
    weight = np.exp(-beta * (energy - energy.min()))
    return weight @ states / weight.sum()


@pytest.mark.claim("B7")
@pytest.mark.parametrize("seed", [20, 21])
def test_median_errors_on_the_sherrington_kirkpatrick_model(seed):
    """The row's numbers, on other systems, against other sums, within the row's bounds."""
    couplings, fields = _glass(seed, 10, (40,))
    error = {
        (method, beta): _median_error(method, beta, couplings, fields, _means_by_brute_force)
        for method, beta in (("naive", 0.5), ("tap", 0.5), ("plefka3", 0.5), ("adaptive", 1.0))
    }
    assert error["naive", 0.5] > 5 * error["tap", 0.5]
    assert error["tap", 0.5] < 0.015
    assert error["plefka3", 0.5] < 0.015
    assert error["adaptive", 1.0] < 0.05


def test_naive_mean_field_is_critical_at_half_the_inverse_temperature():
    couplings, _ = _glass(3, 300, field=0.0)
    edge = 1 / np.linalg.eigvalsh(couplings)[-1]
    assert edge == pytest.approx(0.5, abs=0.03)
    zero = np.zeros(300)
    for factor, stable in ((0.99, True), (1.01, False)):
        options = {"fields": zero, "beta": factor * edge, "method": "naive"}
        assert bool(solve_mean_field(couplings, **options, start=zero).stable) is stable
        # Without a start the saddle is left for a stable point, above the critical β a magnet.
        kept = solve_mean_field(couplings, **options)
        assert kept.stable
        assert np.any(np.abs(kept.magnetization) > 1e-3) == (not stable)
    # The Onsager term removes the false transition; the true one is at beta = 1.
    for method in ("tap", "adaptive"):
        assert solve_mean_field(couplings, fields=zero, beta=0.9, method=method).stable
    cold = {"fields": zero, "beta": 0.7, "start": 0.01 * np.ones(300)}
    ordered = solve_mean_field(couplings, **cold, method="naive")
    assert ordered.converged
    assert np.mean(ordered.magnetization**2) > 0.05


@settings(deadline=None, max_examples=25, derandomize=True)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 9), beta=st.floats(0, 3))
def test_naive_free_energy_is_a_bound(seed, size, beta):
    couplings, fields = _glass(seed, size)
    naive = solve_mean_field(couplings, fields=fields, beta=beta, method="naive")
    exact = solve_exact(couplings, fields=fields, beta=beta)
    assert naive.converged
    assert naive.log_partition <= exact.log_partition + 1e-10
    # The bound holds at every m, and is lower away from the stationary point.
    elsewhere = np.clip(naive.magnetization + 0.1, -0.99, 0.99)
    system = {"fields": fields, "beta": beta, "magnetization": elsewhere, "method": "naive"}
    assert gibbs_functional(couplings, **system) <= naive.log_partition + 1e-10
    if size == 1:
        for method in METHODS:
            one = solve_mean_field(couplings, fields=fields, beta=beta, method=method)
            assert one.log_partition == pytest.approx(float(exact.log_partition), abs=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 8), scale=st.floats(0, 20))
def test_unit_diagonal(seed, size, scale):
    matrix = scale * _glass(seed, size)[0]
    # A start outside the positive definite shifts is replaced.
    for start in (None, np.full(size, -5.0)):
        shift, inverse, log_det = _unit_diagonal(matrix, start=start)
        full = np.diag(1 + shift) - matrix
        assert np.allclose(np.diag(np.linalg.inv(full)), 1, atol=1e-8)
        assert np.allclose(inverse @ full, np.eye(size), atol=1e-8)
        assert log_det == pytest.approx(np.linalg.slogdet(full)[1], abs=1e-8)
        assert np.linalg.eigvalsh(full)[0] > 0


@pytest.mark.parametrize("method", METHODS)
def test_low_temperature_stays_finite_and_flagged(method):
    couplings, fields = _glass(12, 9, (4,))
    for beta in (5.0, 50.0):
        result = solve_mean_field(couplings, fields=fields, beta=beta, method=method, throw=False)
        for value in (result.magnetization, result.log_partition, result.residual):
            assert np.all(np.isfinite(value))
        solved, lost = result.residual < 1e-12, result.count(Status.DIVERGED)
        assert result.converged.sum() == solved.sum() - lost
        reach = 4.5 * np.linalg.eigvalsh(couplings)[:, -1] + np.abs(fields).sum(1)
        possible = result.log_partition <= 9 * np.log(2) + beta * reach + 1e-6
        assert np.all(possible[result.converged])
        assert not np.any(possible[result.status == Status.DIVERGED])


def _next_magnetization(method, k, theta, m):
    """tanh of the equation of state, written out again."""
    v = 1 - m**2
    field = theta + k @ m
    if method in ("tap", "plefka3"):
        field = field - m * (k**2 @ v)
    if method == "plefka3":
        loops = np.einsum("ij,jk,ki,j,k->i", k, k, k, v, v)
        field = field + 2 / 3 * (1 - 3 * m**2) * (k**3 @ (m * v)) - m * loops
    if method == "adaptive":
        root = np.sqrt(v)
        shift, _, _ = _unit_diagonal(root[:, None] * k * root)
        field = field - m * shift / v
    return np.tanh(field)


@pytest.mark.parametrize("method", METHODS)
def test_the_solver_stops_at_its_tolerance_and_not_before(method):
    couplings, fields = _glass(6, 9)
    options = {"fields": fields, "beta": 0.35, "method": method}
    before = 0
    for tolerance in (1e-3, 1e-7, 1e-11):
        found = solve_mean_field(couplings, **options, tolerance=tolerance)
        m = found.magnetization
        residual = np.abs(_next_magnetization(method, 0.35 * couplings, 0.35 * fields, m) - m).max()
        assert residual <= tolerance + 1e-13
        assert residual == pytest.approx(found.residual, rel=1e-3, abs=1e-13)
        assert found.steps >= before
        before = found.steps
        # One step fewer is not enough, and is said to be not enough.
        limits = {"tolerance": tolerance, "max_steps": int(found.steps) - 1 or 1}
        short = solve_mean_field(couplings, **options, **limits, throw=False)
        if found.steps > 1:
            assert short.status == Status.STEP_LIMIT
            assert short.residual > tolerance


def test_what_did_not_converge_is_neither_stable_nor_silent():
    couplings, fields = _glass(2, 18, (10,))
    options = {"fields": fields, "beta": 2.0, "max_steps": 5}
    plain = solve_mean_field(couplings, **options, throw=False)
    lost = ~plain.converged
    positive = np.linalg.eigvalsh(plain.susceptibility)[:, 0] > 0
    # Among the unconverged are points that would pass for maxima.
    assert (lost & positive).any()
    assert not (lost & plain.stable).any()
    assert plain.count(Status.STEP_LIMIT) == lost.sum()
    assert np.all(plain.steps[lost] == 5)
    with pytest.raises(NotConverged, match=f"tap free energy was not found for {lost.sum()} of 10"):
        solve_mean_field(couplings, **options)


def test_a_climb_that_cannot_rise_is_stalled(monkeypatch):
    falls = itertools.count()

    def evaluate(x, _):
        flat = {"gradient": np.ones(2), "curvature": np.zeros((2, 2))}
        return mean_field._Point(psi=-float(next(falls)), **flat)

    monkeypatch.setattr(mean_field, "_functional", lambda *_: evaluate)
    found = solve_mean_field(np.zeros((2, 2)), fields=np.zeros(2), beta=1.0, throw=False)
    assert found.status == Status.STALLED
    assert found.steps == 0
    assert not found.stable


def test_adaptive_tap_converges_only_where_its_inner_problem_does(monkeypatch):
    """The point is stationary, but for a functional whose constraint was missed."""
    couplings, fields = _glass(6, 9)
    options = {"fields": 0 * fields, "beta": 0.6, "method": "adaptive", "throw": False}
    assert solve_mean_field(couplings, **options).converged
    whole = mean_field._unit_diagonal
    monkeypatch.setattr(mean_field, "_unit_diagonal", lambda m, start=None: whole(m, max_steps=1))
    cut = solve_mean_field(couplings, **options)
    # At m = 0 and without fields the equations of state hold whatever the inner problem gave.
    assert cut.residual <= 1e-12
    assert not cut.converged
    assert not cut.stable


@pytest.mark.parametrize("method", METHODS)
def test_batch_members_do_not_see_their_neighbours(method):
    couplings, fields = _glass(5, 8, (2, 3))
    together = solve_mean_field(couplings, fields=fields, beta=1.2, method=method)
    for index in np.ndindex(2, 3):
        alone = solve_mean_field(couplings[index], fields=fields[index], beta=1.2, method=method)
        assert np.array_equal(alone.magnetization, together.magnetization[index])
        assert np.array_equal(alone.susceptibility, together.susceptibility[index])
        assert alone.steps == together.steps[index]


def test_beliefs_are_exact_on_a_tree_and_not_on_a_loop():
    rng = np.random.default_rng(0)
    tree = np.zeros((10, 10))
    for child in range(1, 10):
        parent = rng.integers(child)
        tree[child, parent] = tree[parent, child] = rng.normal()
    fields = rng.normal(size=10)
    exact = solve_exact(tree, fields=fields, beta=1.3)
    found = belief_propagation(tree, fields=fields, beta=1.3)
    assert np.abs(found.value - exact.magnetization).max() < 1e-9
    assert found.log_partition == pytest.approx(exact.log_partition, abs=1e-9)
    # In the cold a field that cancels a saturated neighbor is seen to the last digit.
    pair = np.array([[0.0, 1.0], [1.0, 0.0]])
    for beta in (5.0, 16.0, 40.0):
        against = np.array([2.0, 0.1 / beta - 1.0])
        cold = belief_propagation(pair, fields=against, beta=beta)
        exact = solve_exact(pair, fields=against, beta=beta).magnetization
        assert np.abs(cold.value - exact).max() < 1e-12
    loop = np.ones((3, 3)) - np.eye(3)
    around = belief_propagation(loop, fields=np.array([0.3, 0.0, 0.0]), beta=0.5).value
    exact = solve_exact(loop, fields=np.array([0.3, 0.0, 0.0]), beta=0.5).magnetization
    assert np.abs(around - exact).max() > 1e-3
    # Stationary: ln Z of the loop changes with a field as its magnetization says.
    one, other = (
        belief_propagation(loop, fields=np.array([0.3 + d, 0.0, 0.0]), beta=0.5, tolerance=1e-14)
        for d in (1e-5, -1e-5)
    )
    slope = (one.log_partition - other.log_partition) / (0.5 * 2e-5)
    assert slope == pytest.approx(around[0], abs=1e-8)
    with pytest.raises(NotConverged, match="belief"):
        belief_propagation(tree, fields=fields, beta=1.3, max_steps=2)
    # Damped, and not there yet, however near: a million times the tolerance is no solution.
    run = {"damping": 0.5, "max_steps": 50, "tolerance": 1e-14, "throw": False}
    near = belief_propagation(tree, fields=fields, beta=1.3, **run)
    assert 1e-14 < near.residual < 1e-8
    assert np.abs(near.value - found.value).max() < 1e-6
    assert not near.converged


def test_bad_input_is_named():
    pair, system = np.array([[0.0, 1.0], [1.0, 0.0]]), {"fields": np.zeros(2), "beta": 1.0}
    for start in (np.array([1.0, 0.0]), np.zeros(3)):
        with pytest.raises(ValueError, match="start"):
            solve_mean_field(pair, **system, start=start)
    with pytest.raises(ValueError, match=r"beta must keep beta \* couplings"):
        solve_mean_field(1e7 * pair, **system)
    with pytest.raises(ValueError, match="one system"):
        belief_propagation(pair[None], **system)


def _ring(size):
    one_way = np.roll(np.eye(size), 1, axis=0)
    return one_way + one_way.T


def _curie_weiss(size):
    return (np.ones((size, size)) - np.eye(size)) / size


def test_the_bound_is_above_the_exact_sum_and_close_in_the_cold():
    for seed in range(20):
        couplings, fields = _glass(seed, 8)
        if seed % 2:
            couplings = np.abs(couplings)
        for beta in (0.0, 0.5, 3.0, 40.0, 1e5):
            system = {"fields": fields, "beta": beta}
            exact = float(solve_exact(couplings, **system).log_partition)
            bound = mean_field.log_partition_bound(couplings, **system)
            assert bound >= exact - 1e-9
            # N ln 2, the entropy that it grants, what the barrier leaves, and the relaxation.
            assert bound <= 1.25 * exact + 8 * np.log(2) + 0.2
    # A ring in the cold: N ln 2 above the energy of its two ordered states, by either bound.
    system = {"fields": np.zeros(10), "beta": 50.0}
    bound = mean_field.log_partition_bound(_ring(10), **system)
    assert bound == pytest.approx(10 * np.log(2) + 500, rel=1e-12)
    # What a climb uses: of glasses the largest eigenvalue is the smaller bound, of trees the sum.
    couplings, fields = sherrington_kirkpatrick(200, seed=0)
    spectral = 200 * np.log(2) + 100 * np.linalg.eigvalsh(couplings)[-1]
    assert mean_field._upper_bound(couplings, fields) == pytest.approx(spectral)
    star = np.zeros((6, 6))
    star[0, 1:] = star[1:, 0] = 1.0
    assert mean_field._upper_bound(star, np.ones(6)) == pytest.approx(6 * np.log(2) + 6 + 5)
    batch = mean_field.log_partition_bound(np.stack([star, 0 * star]), fields=np.ones(6), beta=1.0)
    assert batch.shape == (2,)
    assert batch[1] == pytest.approx(6 * np.log(2) + 6)


# Of systems without fields: the exact ln Z in closed form, and how far a theory may be off.
WITHOUT_FIELDS = {
    "ring": (_ring(10), 1.0, 11.3329),
    "cold ring": (_ring(10), 3.0, 30.6934),
    "frozen ring": (_ring(10), 50.0, 500.6931),
    "all with all": (_curie_weiss(12), 2.0, 12.0571),
}


@pytest.mark.parametrize("name", WITHOUT_FIELDS)
def test_a_saddle_and_an_impossible_value_do_not_pass_for_ln_z(name):
    """Where fields are zero, independent spins solve every theory, in the cold at a saddle."""
    couplings, beta, exact = WITHOUT_FIELDS[name]
    size = len(couplings)
    assert enumerated(couplings, np.zeros(size), beta) == pytest.approx(exact, abs=1e-4)
    found = free_energies(couplings, np.zeros(size), beta, sweeps=50, replicas=4)
    for method, log_z, good in zip(
        found.methods, found.log_partition, found.stable & found.converged, strict=True
    ):
        # Of the two ordered states a theory knows one.
        assert not good or abs(log_z - exact) < 1.2, method
    assert found.stable[:2].all()
    naive = found.log_partition[1]
    assert found.bounds[0] == naive
    assert exact - 1.2 < naive < exact
    # Of two mirror images the one with most spins up, on every processor.
    ordered = solve_mean_field(couplings, fields=np.zeros(size), beta=beta, method="naive").value
    assert ordered.min() > 0.5
    # A field that is next to nothing changes next to nothing.
    near = free_energies(couplings, np.full(size, 1e-9), beta, sweeps=4, replicas=2)
    np.testing.assert_allclose(near.log_partition[:-1], found.log_partition[:-1], atol=1e-6)


def test_a_start_at_the_saddle_is_told_from_the_stable_point():
    couplings, cold = _ring(10), {"fields": np.zeros(10), "beta": 3.0}
    saddle = solve_mean_field(couplings, **cold, method="naive", start=np.zeros(10))
    assert saddle.converged
    assert not saddle.stable
    assert saddle.log_partition == pytest.approx(10 * np.log(2))
    # Two parts that order at different temperatures, neither held at zero by its symmetry.
    parts = np.kron(np.diag([1.0, 0.7]), np.ones((3, 3)) - np.eye(3))
    both = solve_mean_field(parts, fields=np.zeros(6), beta=1.5, method="naive")
    assert both.stable
    assert np.abs(both.magnetization).min() > 0.9
    # TAP's point without magnetization is stable, and its psi larger than ln Z can be.
    absurd = {**cold, "beta": 50.0}
    tap = solve_mean_field(couplings, **absurd, start=np.zeros(10), throw=False)
    assert tap.log_partition == pytest.approx(10 * np.log(2) + 12_500)
    assert tap.status == Status.DIVERGED
    assert not tap.stable
    with pytest.raises(NotConverged, match="diverged"):
        solve_mean_field(couplings, **absurd, start=np.zeros(10))
    assert solve_mean_field(couplings, **absurd).log_partition == pytest.approx(500.0)


def test_a_value_below_the_naive_bound_is_no_ln_z():
    # Triangles that are never content make the third order negative, the more the colder.
    frustrated = np.eye(6) - np.ones((6, 6))
    options = {"fields": np.zeros(6), "beta": 4.0, "start": np.zeros(6), "throw": False}
    third = solve_mean_field(frustrated, **options, method="plefka3")
    assert third.residual <= 1e-12
    assert third.log_partition < 6 * np.log(2)
    assert third.status == Status.DIVERGED


def test_beliefs_leave_the_saddle_and_stay_below_the_bound():
    """Above the critical coupling of a dense magnet zero messages are an unstable solution."""
    couplings, none = _curie_weiss(12), np.zeros(12)
    for beta, ordered in ((0.9, False), (2.0, True)):
        found = belief_propagation(couplings, fields=none, beta=beta)
        assert found.stable
        assert (np.abs(found.value).min() > 0.5) == ordered
        # The paramagnetic solution, and its stability by the eigenvalues of all messages.
        gain = np.tanh(beta / 12)
        paramagnet = 12 * np.log(2) + 66 * np.log(np.cosh(beta / 12))
        assert (10 * gain > 1) == ordered
        assert found.log_partition >= paramagnet - 1e-9
        assert (found.log_partition > paramagnet + 0.1) == ordered
    messages = mean_field._Messages(2.0 * couplings, none)
    assert not messages.returns(np.zeros(132), damping=0.0)
    assert not messages.returns(np.zeros(132), damping=0.99)
    weak = mean_field._Messages(0.9 * couplings, none)
    assert weak.returns(np.zeros(132), damping=0.0)
    # Messages of a glass in the cold contradict each other around its loops.
    glass, fields = sherrington_kirkpatrick(12, seed=0)
    run = {"beta": 30.0, "damping": 0.5, "max_steps": 5000, "throw": False}
    lost = belief_propagation(glass, fields=fields, **run)
    assert lost.log_partition > mean_field.log_partition_bound(glass, fields=fields, beta=30.0)
    assert not lost.converged
    assert not lost.stable


def test_of_two_mirror_images_the_majority_is_up():
    """The sign of an eigenvector is a library's choice, that of the solution is not."""
    for seed in range(12):
        glass, none = sherrington_kirkpatrick(9, seed=seed)
        found = solve_mean_field(glass, fields=0.0 * none, beta=3.0, method="naive")
        assert np.abs(found.value).max() > 0.5
        assert found.value.sum() > 0.0


def test_of_several_leading_eigenvectors_none_is_preferred(monkeypatch):
    """Two equal magnets without a coupling: the start is the same in any basis of their space."""
    magnets = block_diag(_curie_weiss(6), _curie_weiss(6))
    plain = mean_field._ordered_fields(magnets, np.zeros(12))
    values, vectors = np.linalg.eigh(magnets)
    assert values[-1] - values[-2] < 1e-12
    turned = vectors.copy()
    turned[:, -2:] = vectors[:, -2:] @ np.array([[0.6, -0.8], [0.8, 0.6]])
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: (values, turned))
    np.testing.assert_allclose(mean_field._ordered_fields(magnets, np.zeros(12)), plain, atol=1e-12)


def test_beliefs_take_the_better_of_two_states():
    """From zero messages a sparse magnet follows its random fields into the worse state."""
    rng = np.random.default_rng(5)
    upper = np.triu(rng.random((10, 10)) < 0.45, 1) * rng.uniform(0.2, 1.2, (10, 10))
    magnet = upper + upper.T
    system = {"fields": 0.4 * rng.standard_normal(10), "beta": 1.0, "damping": 0.5}
    one = belief_propagation(magnet, **system)
    best = belief_propagation(magnet, **system, all_starts=True)
    assert one.stable
    assert best.stable
    assert best.log_partition > one.log_partition + 0.5
    assert best.value.sum() * one.value.sum() < 0.0


def test_all_starts_find_what_one_misses():
    """A glass in weak fields: the start follows them into the worse of two stable states."""
    couplings, fields = sherrington_kirkpatrick(12, seed=2, field_std=0.1)
    system = {"fields": fields, "beta": 3.0}
    one, best = (
        solve_mean_field(couplings, **system, method="naive", all_starts=every)
        for every in (False, True)
    )
    assert one.stable
    assert best.stable
    assert best.log_partition > one.log_partition + 2.0
    assert best.log_partition < enumerated(couplings, fields, 3.0)
    found = free_energies(couplings, fields, 3.0, sweeps=4, replicas=2)
    assert found.log_partition[1] == best.log_partition


@pytest.mark.parametrize("method", ["naive", "tap"])
def test_a_field_turned_over_changes_no_ln_z(method):
    """Starts lie to both sides of the independent spins: none is preferred to its mirror image."""
    options = {"beta": 3.0, "method": method, "all_starts": True, "throw": False}
    for seed in range(8):
        couplings, fields = sherrington_kirkpatrick(10, seed=seed, field_std=0.2)
        one, other = (solve_mean_field(couplings, fields=x, **options) for x in (fields, -fields))
        assert one.log_partition == pytest.approx(other.log_partition, abs=1e-8)


def test_the_table_holds_theories_to_the_tight_bound():
    """TAP in a cold glass, 40.7 for 25.1, below what the largest eigenvalue allows."""
    rng = np.random.default_rng(0)
    couplings = sherrington_kirkpatrick(10, seed=10)[0]
    fields = 0.3 * rng.standard_normal(10)
    exact = enumerated(couplings, fields, 5.0)
    loose = solve_mean_field(couplings, fields=fields, beta=5.0, throw=False)
    table = free_energies(couplings, fields, 5.0, sweeps=20, replicas=4)
    row = dict(zip(table.methods, range(7), strict=True))["tap"]
    assert loose.converged
    assert loose.log_partition > exact + 10.0
    good = table.converged[row] & table.stable[row]
    assert not good or abs(table.log_partition[row] - exact) < 5.0
    assert exact < table.bounds[1] < loose.log_partition
    tight = solve_mean_field(couplings, fields=fields, beta=5.0, all_starts=True, throw=False)
    assert not tight.converged or tight.log_partition <= table.bounds[1]


def test_an_empty_batch_has_an_empty_solution():
    found = solve_mean_field(np.zeros((0, 3, 3)), fields=np.zeros((0, 3)), beta=1.0)
    assert found.magnetization.shape == (0, 3)
    assert found.susceptibility.shape == (0, 3, 3)
    assert found.converged.shape == found.stable.shape == (0,)
    assert found.converged.dtype == found.stable.dtype == bool


def enumerated(couplings, fields, beta):
    states = spin_states(len(fields))
    energy = -0.5 * np.einsum("si,ij,sj->s", states, couplings, states) - states @ fields
    return float(np.log(np.exp(-beta * energy).sum()))


def test_every_method_stands_in_the_table():
    couplings, fields = sherrington_kirkpatrick(9, field_std=0.3, seed=0)
    found = free_energies(couplings, fields, 0.6, sweeps=300)
    exact = enumerated(couplings, fields, 0.6)
    row = dict(zip(found.methods, found.log_partition, strict=True))
    assert row["exact"] == pytest.approx(exact, abs=1e-10)
    assert row["naive"] < exact
    tap = solve_mean_field(couplings, fields=fields, beta=0.6, method="tap")
    assert row["tap"] == tap.log_partition
    assert abs(found.off[-1]) < 5 * found.error[-1] < 0.1
    assert np.isnan(found.error[1:-1]).all()
    means = dict(zip(found.methods, found.magnetization, strict=True))
    spins = solve_exact(couplings, fields=fields, beta=0.6).magnetization
    np.testing.assert_array_equal(means["exact"], spins)
    np.testing.assert_array_equal(means["tap"], tap.magnetization)
    np.testing.assert_allclose(means["monte carlo"], spins, atol=0.05)
    assert found.converged.all()
    lines = str(found).splitlines()
    assert float(lines[1].split()[2]) == pytest.approx(-exact / 0.6, abs=1e-4)
    assert len(lines) == 8
    assert all(line.endswith(" yes") for line in lines[1:])
    cold = free_energies(couplings, 0 * fields, 0.0, sweeps=4)
    assert cold.log_partition == pytest.approx(9 * np.log(2))
    # On both bounds at once, which is within them.
    assert cold.bounds == pytest.approx((9 * np.log(2), 9 * np.log(2)))
    assert cold.converged.all()


def test_more_spins_than_can_be_summed_are_held_against_monte_carlo():
    # Spins without couplings: every theory is exact.
    fields = np.linspace(-1.0, 1.0, 24)
    found = free_energies(np.zeros((24, 24)), fields, 1.0, sweeps=200)
    assert "exact" not in found.methods
    assert found.off[-1] == 0.0
    exact = np.log(2 * np.cosh(fields)).sum()
    assert found.log_partition[:-1] == pytest.approx(exact, abs=1e-9)
    assert abs(found.log_partition[-1] - exact) < 5 * found.error[-1]


def test_the_error_of_a_sampled_sum_is_its_scatter():
    couplings, fields = sherrington_kirkpatrick(6, field_std=0.3, seed=1)
    exact = enumerated(couplings, fields, 1.5)
    run = {"fields": fields, "beta": 1.5, "sweeps": 150, "replicas": 16}
    found = [_sample_log_partition(couplings, **run, seed=seed) for seed in range(40)]
    scores = np.array([(row.log_partition - exact) / row.error for row in found])
    assert abs(scores.mean()) < 0.6
    assert 0.7 < scores.std() < 1.2


def test_the_error_of_a_sampled_sum_knows_its_quadrature():
    """Far in the cold ⟨E⟩ changes within a part of the first interval, which all replicas miss."""
    fields = np.array([1.0])
    run = {"beta": 3000.0, "sweeps": 400, "replicas": 8, "seed": 0}
    row = _sample_log_partition(np.zeros((1, 1)), fields=fields, **run)
    off = abs(row.log_partition - enumerated(np.zeros((1, 1)), fields, 300.0) - 2700.0)
    assert off > 0.1
    assert off < 3 * row.error


def test_ladders_that_do_not_mix_and_theories_that_do_not_settle_are_flagged():
    # Two states of all spins, far apart and much colder than any rung beside.
    block = 40.0 * (np.ones((6, 6)) - np.eye(6))
    run = {"sweeps": 50, "replicas": 2, "seed": 0}
    assert not _sample_log_partition(block, fields=np.zeros(6), beta=5.0, **run).converged
    # An odd ring of antiferromagnets, in which one pair is never content.
    odd = -_ring(9)
    found = free_energies(odd, np.zeros(9), 2.0, sweeps=20, replicas=2)
    lines = dict(zip(found.methods, str(found).splitlines()[1:], strict=True))
    assert lines["tap"].endswith("  above the bound")
    assert not found.converged[found.methods.index("tap")]
    assert lines["exact"].endswith("  yes")
    # The numbers and words of a line are those of the columns; a sum has no stability.
    for name, log_z, off, stable in zip(
        found.methods, found.log_partition, found.off, found.stable, strict=True
    ):
        known = [log_z, -log_z / 2.0, off]
        assert lines[name][12:48].split() == [f"{value:.4f}" for value in known]
        word = "" if name in ("exact", "monte carlo") else ("no", "yes")[int(stable)]
        assert lines[name][58:65].strip() == word
    assert set(found.stable[1:-1]) == {True, False}


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="one system"):
        free_energies(np.zeros((3, 3)), np.zeros((2, 3)), 1.0)
    with pytest.raises(ValueError, match="replicas must be"):
        free_energies(np.zeros((3, 3)), np.zeros(3), 1.0, replicas=1)
