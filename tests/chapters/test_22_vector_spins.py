"""Exact vector spins against enumeration and closed forms, and adaptive TAP against exact spins."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from open_cells import run_open_cells
from scipy import stats
from scipy.special import gamma, iv

from compendium.c22_vector_spins import settings as advantages, study
from compendium.c22_vector_spins.glass import MANY, stability_number, susceptibility
from compendium.c22_vector_spins.settings import log_ratio
from compendium.c22_vector_spins.study import METHODS, reaction, solve_adaptive_tap
from spinformer.core.solve import NotConverged, Status
from spinformer.core.special import log_sphere_integral, mean_alignment
from spinformer.spins.exact_vectors import three_spins, two_spins
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.replica_symmetry import almeida_thouless_beta
from spinformer.spins.solvers import solve_saddle_point

DOUBLE = torch.float64


def _system(sites=5, dim=3, strength=0.25, seed=0):
    generator = torch.Generator().manual_seed(seed)
    couplings = strength * torch.randn(sites, sites, generator=generator, dtype=DOUBLE)
    return couplings, torch.randn(sites, dim, generator=generator, dtype=DOUBLE) / dim**0.5


@pytest.mark.parametrize("method", METHODS)
def test_one_component_is_the_ising_theory(method):
    """The same equations, solved by climbing a functional of Ising spins."""
    couplings, fields = _system(dim=1)
    pair = (couplings + couplings.T).fill_diagonal_(0.0).numpy()
    found = solve_adaptive_tap(couplings, fields=fields, beta=1.2, method=method)
    ising = solve_mean_field(pair, fields=fields[:, 0].numpy(), beta=1.2, method=method)
    np.testing.assert_allclose(found.value[:, 0].numpy(), ising.magnetization, atol=1e-10)


def test_many_components_are_the_saddle_point():
    """m approaches that of the large-D theory as 1/D."""
    couplings, _ = _system()
    gaps = []
    for dim in (32, 128, 512):
        fields = torch.zeros(5, dim, dtype=DOUBLE)
        fields[:, :3] = _system()[1]
        found = solve_adaptive_tap(couplings, fields=fields, beta=0.9)
        m = (
            solve_saddle_point(couplings, fields=fields * dim**0.5, beta=0.9).magnetization
            / dim**0.5
        )
        gaps.append(float((found.value - m).norm()))
    np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 4.0, rtol=0.1)
    assert gaps[-1] < 3e-3


def test_the_open_cells_give_the_saddle_points():
    cells = run_open_cells("22_vector_spins")
    for case, (couplings, fields) in cells["two_systems"].items():
        multipliers, means = cells["saddle_points"][case]
        root = fields.shape[1] ** 0.5
        solved = solve_saddle_point(
            torch.tensor(couplings), fields=root * torch.tensor(fields), beta=1.0
        )
        np.testing.assert_allclose(multipliers, solved.saddle.value, atol=1e-9)
        np.testing.assert_allclose(means, solved.magnetization / root, atol=1e-9)


def free_mean(fields, *, beta):
    """Of u, exactly: along the field, as long as Bessel functions say."""
    length = np.linalg.norm(fields, axis=-1, keepdims=True)
    dim = fields.shape[-1]
    return mean_alignment(beta * dim * length, dim=dim) * fields / length


def test_one_spin_and_what_the_reaction_is():
    field = torch.tensor([[0.3, -0.8, 0.5]], dtype=DOUBLE)
    found = solve_adaptive_tap(torch.ones(1, 1, dtype=DOUBLE), fields=field, beta=1.4)
    np.testing.assert_allclose(found.value, free_mean(field.numpy(), beta=1.4), atol=1e-12)
    # With others: the response of the theory is the variance, and weak couplings give Onsager's V;
    # each spin answers its field less what it is held back.
    couplings, fields = _system()
    beta = torch.tensor(0.8, dtype=DOUBLE)
    for scale in (1.0, 0.02):
        mean = solve_adaptive_tap(scale * couplings, fields=fields, beta=beta).value
        pair = scale * (couplings + couplings.T).fill_diagonal_(0.0)
        held = reaction(mean, pair, beta, "adaptive")
        width = 1 - mean.square().sum(-1)
        inverse = torch.linalg.inv(torch.diag(0.8 * held + 1 / width) - 0.8 * pair)
        torch.testing.assert_close(inverse.diagonal(), width, rtol=1e-9, atol=0)
        theta = fields + pair @ mean - held[:, None] * mean
        np.testing.assert_allclose(mean, free_mean(theta.numpy(), beta=0.8), atol=1e-10)
    torch.testing.assert_close(held, 0.8 * pair.square() @ width, rtol=0.02, atol=1e-9)


@pytest.mark.claim("B7e")
@pytest.mark.parametrize("dim", [2, 8])
def test_exact_systems(dim):
    """Random triples, and a pair in fields that are not parallel: adaptive TAP is closest."""
    rng = np.random.default_rng(1)
    along = np.zeros((3, dim))
    apart = np.zeros((2, dim))
    along[:, 0] = (0.8, -0.3, 0.5)
    apart[0, 0] = 0.7
    apart[1, :2] = (-0.2, 0.4)
    systems = [(0.3 * rng.standard_normal((3, 3)), along, three_spins) for _ in range(2)]
    systems.append((np.array([[0.0, 0.6], [0.1, 0.0]]), apart, two_spins))
    wrong = []
    for couplings, h, exact in systems:
        truth = exact(couplings, fields=h * dim**0.5, beta=0.9).magnetization / dim**0.5
        j = torch.tensor(couplings)
        field = torch.tensor(h)
        found = [solve_adaptive_tap(j, fields=field, beta=0.9, method=m).value for m in METHODS]
        found.append(
            solve_saddle_point(j, fields=field * dim**0.5, beta=0.9).magnetization / dim**0.5
        )
        wrong.append([np.abs(mean.numpy() - truth).max() for mean in found])
    naive, tap, adaptive, saddle = np.sqrt(np.mean(np.square(wrong), axis=0))
    assert adaptive < min(0.8 * min(naive, tap, saddle), 0.05 / dim)


@pytest.mark.parametrize(("method", "dim"), [("tap", 2), ("adaptive", 1), ("adaptive", 3)])
def test_first_and_second_derivatives(method, dim):
    """The implicit ones against differences with the equations solved anew."""
    couplings, fields = _system(sites=2, dim=dim, strength=0.4)
    inputs = (couplings, fields, torch.tensor(1.1, dtype=DOUBLE))

    def solve(couplings, fields, beta):
        return solve_adaptive_tap(couplings, fields=fields, beta=beta, method=method).value

    given = [x.clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(solve, given, eps=1e-5, atol=1e-8, rtol=1e-6)
    assert torch.autograd.gradgradcheck(
        solve, given, eps=1e-5, atol=1e-7, rtol=1e-5, fast_mode=True
    )


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_batches_flags_and_bad_input(dtype, limit):
    couplings, fields = _system(sites=3, dim=2)
    couplings = couplings.to(dtype)
    fields = fields.to(dtype)
    given = {"fields": fields, "beta": 0.7, "method": "tap"}
    cold = torch.stack([couplings, 30 * couplings])
    found = solve_adaptive_tap(cold, **given, throw=False)
    alone = solve_adaptive_tap(couplings, **given)
    torch.testing.assert_close(found.value[0], alone.value, rtol=0, atol=1e3 * limit)
    assert found.status.tolist() == [Status.CONVERGED, Status.STEP_LIMIT]
    assert float(found.residual[0]) <= limit < 1e-3 < float(found.residual[1])
    with pytest.raises(NotConverged, match="adaptive TAP"):
        solve_adaptive_tap(cold, **given)
    with pytest.raises(ValueError, match="method"):
        solve_adaptive_tap(couplings, **given | {"method": "best"})


def _random(sites, dim, seed, strength=0.5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(sites, dim)), strength * rng.normal(size=(sites, sites))


@pytest.mark.parametrize(("sites", "dim"), [(2, 1), (2, 2), (3, 2)])
def test_spins_on_a_line_and_in_a_plane_by_summing_angles(sites, dim):
    fields, couplings = _random(sites, dim, 11, strength=0.3)
    if sites == 3:
        fields = np.outer([0.7, -0.4, 1.1], fields[0])
    beta = 0.9
    count = 2 if dim == 1 else 96
    angle = 2 * np.pi * np.arange(count) / count
    grid = np.stack(np.meshgrid(*[angle] * sites, indexing="ij"), -1).reshape(-1, sites)
    spins = np.sqrt(dim) * np.stack([np.cos(grid), np.sin(grid)], -1)[..., :dim]
    bonds = np.einsum("sid,sjd->sij", spins, spins)
    energy = -(bonds * couplings).sum(axis=(1, 2)) - (spins * fields).sum(axis=(1, 2))
    weight = np.exp(-beta * energy)
    exact = (two_spins if sites == 2 else three_spins)(couplings, fields=fields, beta=beta)
    assert abs(exact.log_partition - np.log(weight.mean())) < 1e-12
    weight /= weight.sum()
    np.testing.assert_allclose(exact.magnetization, np.tensordot(weight, spins, axes=1), atol=1e-12)
    np.testing.assert_allclose(
        exact.correlation, np.tensordot(weight, bonds, axes=1) / dim, atol=1e-12
    )


@settings(deadline=None, max_examples=8, derandomize=True)
@given(
    dim=st.integers(2, 40),
    beta=st.floats(0.05, 3.0),
    seed=st.integers(0, 10_000),
    three=st.booleans(),
)
def test_derivatives_of_the_free_energy(dim, beta, seed, three):
    """⟨σ_i⟩ = β⁻¹ ∂ln Z/∂H_i, and D⟨u_i·u_j⟩ = β⁻¹ ∂ln Z/∂J_ij, by central differences."""
    sites = 3 if three else 2
    dim = min(dim, 5) if three else dim
    fields, couplings = _random(sites, dim, seed, strength=0.2 if three else 1.0)
    if three:
        fields = np.outer(fields[:, 0], fields[0]) / np.linalg.norm(fields[0])
    solve = three_spins if three else two_spins
    exact = solve(couplings, fields=fields, beta=beta)
    # Three spins stay collinear only under a change of length.
    push = fields if three else np.random.default_rng(seed).normal(size=fields.shape)
    turn = np.random.default_rng(seed + 1).normal(size=couplings.shape)
    by_field = (exact.magnetization * push).sum(), 1e-4 / beta / np.sqrt(dim), 0.0, push
    by_coupling = dim * (exact.correlation * turn).sum(), 1e-4 / beta / dim, turn, 0.0
    for want, step, dj, dh in (by_field, by_coupling):
        up = solve(couplings + step * dj, fields=fields + step * dh, beta=beta).log_partition
        down = solve(couplings - step * dj, fields=fields - step * dh, beta=beta).log_partition
        assert abs((up - down) / (2 * step * beta) - want) < 1e-6 * dim


@settings(deadline=None, max_examples=15, derandomize=True)
@given(dim=st.integers(1, 200), beta=st.floats(0.01, 10.0), seed=st.integers(0, 10_000))
def test_exchange_of_two_spins(dim, beta, seed):
    """The quadrature treats the two spins differently; the physics does not."""
    fields, couplings = _random(2, dim, seed)
    one = two_spins(couplings, fields=fields, beta=beta)
    two = two_spins(couplings[::-1, ::-1], fields=fields[::-1], beta=beta)
    assert abs(one.log_partition - two.log_partition) < 1e-11 * max(1, abs(one.log_partition))
    np.testing.assert_allclose(one.magnetization, two.magnetization[::-1], atol=2e-11)
    np.testing.assert_allclose(one.correlation, two.correlation[::-1, ::-1], atol=2e-11)


@pytest.mark.parametrize("dim", [3, 8])
def test_three_spins_by_the_sum_over_harmonics(dim):
    """Z = sum_l d_l prod_e lambda_l(K_e): for three bonds alike, and no fields."""
    bond = 0.9
    degree = np.arange(60)
    nu = dim / 2 - 1
    size = gamma(nu + 1) * (2 / bond) ** nu * iv(nu + degree, bond)
    times = (2 * degree + dim - 2) * gamma(degree + dim - 2) / gamma(degree + 1) / gamma(dim - 1)
    couplings = bond / dim * np.triu(np.ones((3, 3)), 1)
    grid = three_spins(couplings, fields=np.zeros((3, dim)), beta=1.0)
    assert abs(np.log(times @ size**3) - grid.log_partition) < 1e-11


def test_reductions_between_systems():
    dim = 6
    beta = 1.3
    fields, couplings = _random(2, dim, 2)
    pair = two_spins(couplings, fields=0 * fields, beta=beta)
    bond = beta * dim * (couplings[0, 1] + couplings[1, 0])
    constant = beta * dim * np.trace(couplings)
    assert abs(pair.log_partition - constant - log_sphere_integral(bond, dim=dim)) < 1e-12
    free = two_spins(np.zeros((2, 2)), fields=fields, beta=beta)
    kappa = beta * dim**0.5 * np.linalg.norm(fields, axis=1)
    assert abs(free.log_partition - log_sphere_integral(kappa, dim=dim).sum()) < 1e-12
    means = dim**0.5 * free_mean(fields / dim**0.5, beta=beta)
    np.testing.assert_allclose(free.magnetization, means, atol=1e-13)
    # A third spin without bonds adds its own factor.
    line = np.outer([0.5, 1.0, -0.7], fields[0])
    open_couplings = np.zeros((3, 3))
    open_couplings[:2, :2] = couplings / 4
    triple = three_spins(open_couplings, fields=line, beta=beta)
    pair = two_spins(couplings / 4, fields=line[:2], beta=beta)
    single = log_sphere_integral(beta * dim**0.5 * np.linalg.norm(line[2]), dim=dim)
    assert abs(triple.log_partition - pair.log_partition - single) < 1e-11
    np.testing.assert_allclose(triple.correlation[:2, :2], pair.correlation, atol=1e-12)


@pytest.mark.parametrize(
    ("solve", "couplings", "fields", "words"),
    [
        (two_spins, np.eye(2), np.ones((3, 2)), "fields"),
        (three_spins, np.eye(3), np.eye(3), "parallel"),
        (three_spins, 5e3 * np.ones((3, 3)), np.ones((3, 4)), "panels"),
    ],
)
def test_bad_input(solve, couplings, fields, words):
    with pytest.raises(ValueError, match=words):
        solve(couplings, fields=fields, beta=1.0)


def test_the_ratio_of_two_errors_and_its_jackknife():
    rng = np.random.default_rng(0)
    rival, own = rng.exponential(size=(2, 9))
    value, error = log_ratio(rival, own)
    assert value == pytest.approx(0.5 * np.log(rival.mean() / own.mean()))
    left = [0.5 * np.log(np.delete(rival, k).mean() / np.delete(own, k).mean()) for k in range(9)]
    assert error == pytest.approx(np.sqrt(8 / 9 * np.sum((left - np.mean(left)) ** 2)))
    # Against the scatter of the value itself over many draws.
    drawn = [log_ratio(*rng.exponential(size=(2, 40))) for _ in range(400)]
    assert np.std([one for one, _ in drawn]) == pytest.approx(
        np.mean([one for _, one in drawn]), rel=0.15
    )


def test_rivals_are_compared_by_root_mean_squares_with_their_error(monkeypatch):
    rng = np.random.default_rng(0)
    base = rng.uniform(0.5, 1.5, 12)
    errors = {"naive": 9.0 * base, "tap": 4.0 * base, "saddle": 25.0 * base}
    errors |= {"corrected": 2.25 * base, "adaptive": base}
    monkeypatch.setattr(study, "triple_errors", lambda dim, **choices: errors)
    rows = study.rivals.rows(strength=0.3, field=0.5, beta=1.0)
    assert {row["components"] for row in rows} == {1, 2, 4, 8, 16}
    # Squared errors that are in one ratio in every triple leave no doubt about it.
    for row in rows:
        wanted = np.log(1.5 if row["rival"] == "corrected saddle" else 2.0)
        assert [row[name] for name in ("value", "low", "high")] == pytest.approx([wanted] * 3)
        assert row["runs"] == 12

    # Others have the error of a ratio of means.
    samples = {name: rng.uniform(0.9, 1.1, 12) * mean for name, mean in (("a", 4.0), ("b", 1.0))}
    high = {"naive": 9.0 + base, "saddle": 9.0 + base, "corrected": 9.0 + base}
    errors = high | {"tap": samples["a"], "adaptive": samples["b"]}
    row = study.rivals.rows(strength=0.3, field=0.5, beta=1.0)[0]
    relative = samples["a"] / samples["a"].mean() - samples["b"] / samples["b"].mean()
    half = 0.5 * relative.std(ddof=1) / 12**0.5 * stats.t.ppf(0.975, 11)
    ratio = samples["a"].mean() / samples["b"].mean()
    assert row["value"] == pytest.approx(0.5 * np.log(ratio))
    assert row["high"] - row["value"] == pytest.approx(half, rel=0.05)
    assert row["value"] - row["low"] == pytest.approx(half, rel=0.05)


def test_the_advantage_of_adaptive_tap_is_that_over_the_best_rival(monkeypatch):
    base = np.random.default_rng(1).uniform(0.5, 1.5, 12)
    factors = {"naive": 9.0, "tap": 4.0, "saddle": 25.0, "corrected": 0.1, "adaptive": 1.0}
    asked = []

    def errors(dim, **chosen):
        asked.append((dim, chosen["strength"], chosen["field"], chosen["beta"], chosen["seed"]))
        return {name: factor * base for name, factor in factors.items()}

    monkeypatch.setattr(advantages, "triple_errors", errors)
    (row,) = advantages.advantage_rows(7, components=3, strength=0.2, field=0.9)
    assert [row[name] for name in ("value", "low", "high")] == pytest.approx([np.log(2.0)] * 3)
    assert row["runs"] == 12
    assert asked == [(3, 0.2, 0.9, 1.0, 7)]
    monkeypatch.setattr(advantages, "log_ratio", lambda rival, own: (0.5, 0.1))
    (row,) = advantages.advantage_rows(7, components=3, strength=0.2, field=0.9)
    half = 0.1 * stats.t.ppf(0.975, 11)
    assert (row["value"] - row["low"], row["high"] - row["value"]) == pytest.approx((half, half))


@pytest.mark.claim("B3b")
def test_the_spin_glass_of_vector_spins_against_other_theories():
    """Ising spins, zero temperature, and the susceptibility of solved systems in fields."""
    for field in (0.2, 1.0):
        beta = almeida_thouless_beta(field_std=field)
        found = stability_number(beta, strength=1.0, field=field, components=1)
        assert found == pytest.approx(1.0, abs=1e-4)
    # v_perp is the inverse of the local field, and h^2 = s^2/(D - 2) is on the line.
    found = stability_number(1e4, strength=1.5, field=1.5 / np.sqrt(6), components=8)
    assert found == pytest.approx(1.0, abs=5e-3)
    # Many components: chi = v^2/(1 - lambda), lambda = s^2 v^2, of a system that is solved, whose
    # spins respond by half the inverse of V; lambda is the fraction of the field due to others.
    size = 300
    strength = 1.4
    rng = np.random.default_rng(2)
    pair = strength * gaussian_couplings(size, symmetry=1.0, seed=rng)
    fields = torch.tensor(rng.standard_normal((size, 600)))
    solved = solve_saddle_point(torch.tensor(pair / 2), fields=fields, beta=1.0)
    inner = (torch.diag(solved.saddle.value) - torch.tensor(pair / 2)).inverse() / 2
    chi = float(inner.square().sum()) / size
    lam = stability_number(1.0, strength=strength, field=1.0, components=5000)
    q = float((solved.magnetization.square().sum(-1) / 600).mean())
    assert lam == pytest.approx(strength**2 * q / (strength**2 * q + 1), abs=0.01)
    assert chi == pytest.approx(lam / strength**2 / (1 - lam), rel=0.03)


def test_the_susceptibility_of_a_free_pair_and_of_many_paths():
    """Pairs of Ising spins exactly; and 1/(1 - beta^2) of systems before the glass."""
    differences = []
    for seed in range(8):
        (bond,) = gaussian_couplings(2, symmetry=1.0, seed=seed)[0, 1:]
        found = susceptibility(2, components=1, kind="normal", beta=0.9, seed=seed)
        differences.append(found - 1 - np.tanh(0.9 * bond) ** 2)
    assert np.mean(differences) == pytest.approx(0.0, abs=0.02)
    found = [susceptibility(400, components=MANY, kind="signs", beta=0.6, seed=k) for k in (1, 2)]
    assert np.mean(found) == pytest.approx(1 / (1 - 0.36), rel=0.04)
