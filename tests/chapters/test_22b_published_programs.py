"""Published numbers, functions of one spin, open cells: against closed forms and formulas."""

import numpy as np
import pytest
import torch
from open_cells import run_open_cells

from compendium.c22b_published_programs import study
from spinformer.spins.large_d import pair_couplings
from spinformer.spins.solvers import solve_fixed_point, solve_saddle_point


def _system(data, derivative="automatic"):
    table = study.published("afem")
    place = np.nonzero((table["data"] == data) & (table["derivative"] == derivative))[0][0]
    size = {name: int(table[name][place]) for name in ("spins", "dim")}
    system = study.draw_system(data, **size, strength=float(table["strength"][place]))
    return system, float(table["beta"][place])


@pytest.mark.claim("B16")
def test_where_the_published_program_finds_the_saddle_point():
    table = study.published("afem")
    columns = {"beta": table["beta"], "strength": table["strength"], "spins": table["spins"]}
    inside = table["data"][study.within_region(columns)]
    for data in np.unique(inside)[::6].tolist():
        system, beta = _system(data)
        own = study.thermodynamics(system, beta=beta)
        found = study.returned("afem", data=data, derivative="automatic")
        np.testing.assert_allclose(found[:-1], own[:-1], atol=1e-11, rtol=0)
        np.testing.assert_allclose(found.slope, own.slope, atol=1e-9, rtol=1e-9)
    # No number for 32 spins at β = 1/2, where the determinant of φ'' is below the guard of 1e-8.
    guarded = (table["beta"] == 0.5) & (table["spins"] == 32)
    assert np.isnan(table["free_energy"][guarded]).all()
    for data in np.unique(table["data"][guarded]).tolist():
        curvature = _curvature(*_system(data))
        assert 0 < torch.linalg.det(curvature) < 1e-8


def _curvature(system, beta):
    fields = system.fields * system.fields.shape[1] ** 0.5
    t = solve_saddle_point(system.couplings, fields=fields, beta=beta).saddle.value

    def phi(t):
        v = torch.diag(t) - system.couplings
        passed = (system.fields * torch.linalg.solve(v, system.fields)).sum()
        return beta * t.sum() - 0.5 * torch.logdet(v) + beta / 4 * passed

    return torch.func.hessian(phi)(t)


@pytest.mark.claim("B16b")
def test_the_default_derivative_is_that_of_row_sums():
    """The published numbers to nine digits from the formula of the open cells."""
    cells = run_open_cells("22b_published_programs")
    for data in (0, 8, 26, 45):
        system, beta = _system(data)
        fields = system.fields.clone().requires_grad_()
        solved = solve_saddle_point(
            system.couplings, fields=system.fields * fields.shape[1] ** 0.5, beta=beta
        )
        t = solved.saddle.value
        matrix = cells["row_sums"](t, system.fields, system.couplings, beta)
        slope = torch.func.grad(cells["phi"])
        moving = t - torch.linalg.solve(matrix, slope(t, fields, system.couplings, beta))
        mean = torch.func.grad(cells["phi"], argnums=1)(moving, fields, system.couplings, beta)
        (wrong,) = torch.autograd.grad((system.weights * mean).sum(), fields)
        found = study.returned("afem", data=data, derivative="analytic")
        np.testing.assert_allclose(wrong.flatten()[:4], found.slope, rtol=1e-8, atol=1e-9)
        # Its row sums are those of the Hessian, its entries are not.
        exact = _curvature(system, beta)
        np.testing.assert_allclose(matrix.sum(1), exact.sum(1), rtol=1e-9)
        assert (matrix - exact).abs().max() > 1e-4


def test_own_derivative_by_finite_differences():
    system = study.draw_system(5, spins=4, dim=3, strength=0.3)
    own = study.thermodynamics(system, beta=0.9)
    for entry, (site, channel) in enumerate(((0, 0), (0, 1), (0, 2), (1, 0))):
        probes = []
        for shift in (1e-5, -1e-5):
            moved = system.fields.clone()
            moved[site, channel] += shift
            probes.append(study.thermodynamics(system._replace(fields=moved), beta=0.9).probe)
        assert own.slope[entry] == pytest.approx((probes[0] - probes[1]) / 2e-5, abs=1e-7)


def test_full_newton_steps_of_free_spins():
    """A free spin stays positive at the first step if β(1 − ¾h²) < 1; else it never returns."""
    for length, edge in ((0.0, 1.0), (0.5, 1 / (1 - 0.75 * 0.25))):
        fields = torch.full((1, 1), length).double()
        free = study.System(torch.zeros(1, 1).double(), fields, fields)
        assert study.newton_finds(free, beta=edge - 0.01)
        assert not study.newton_finds(free, beta=edge + 0.01)


@pytest.mark.claim("B15b")
def test_published_means_are_those_of_gaussian_variables():
    """Reactions of three sites in closed form, and the stored numbers against the exact ones."""
    errors = study.gaussian_errors()
    assert errors["mean"] < 1e-8
    assert errors["reaction"] < 1e-12
    blocks, _ = study.draw_blocks(2000, spins=4, dim=2, strength=0.5)
    np.testing.assert_array_equal(blocks, blocks.permute(1, 0, 3, 2))
    assert not blocks[range(4), range(4)].any()


@pytest.mark.claim("B15")
def test_a_function_of_one_spin_is_enough_for_a_symmetric_pair():
    """Two spins in fields of one length: the neighbour's mean is as long as the own one."""
    couplings = torch.tensor([[0.0, 0.35], [0.35, 0.0]]).double()
    fields = torch.tensor([[0.9, 0.0], [0.54, 0.72]]).double()
    whole = solve_fixed_point(couplings, fields=fields, beta=1.0).value
    # V = β B² (1 − m²), as a function of the spin itself.
    found = study.solve_with_function(
        couplings, fields=fields, beta=1.0, coefficients=np.array([0.49, -0.49])
    )
    np.testing.assert_allclose(found, whole, atol=1e-9)
    # The published form z = ΣBz − f(z) + x with f of the text.
    square = whole.square().sum(-1, keepdim=True)
    function = (1 / (1 - square) - 1 + 0.49 * (1 - square)) * whole
    again = pair_couplings(couplings) @ whole - function + fields
    np.testing.assert_allclose(again, whole, atol=1e-9)
    # Even sites can do without the neighbours, uneven ones cannot.
    even, uneven = (
        study.reproduced_reaction(3, spins=32, strength=0.4, spread=spread) for spread in (0.0, 1.0)
    )
    assert even > 0.6 > uneven + 0.1


def test_uneven_couplings_have_the_strength():
    couplings = study.uneven_couplings(
        12, strength=0.7, spread=0.5, rng=np.random.default_rng(0)
    ).numpy()
    assert np.square(2 * couplings).sum() / 12 == pytest.approx(0.49)
    np.testing.assert_array_equal(couplings, couplings.T)


def test_the_open_cells_give_the_magnetization():
    cells = run_open_cells("22b_published_programs")
    fields = cells["fields"].detach()
    solved = solve_saddle_point(cells["pair"], fields=2**0.5 * fields, beta=1.0)
    np.testing.assert_allclose(
        cells["magnetizations"].detach(), solved.magnetization / 2**0.5, atol=1e-12
    )
    for site in range(2):
        for channel in range(2):
            step = torch.zeros(2, 2).double()
            step[site, channel] = 1e-5
            up, down = (
                solve_saddle_point(
                    cells["pair"], fields=2**0.5 * (fields + way * step), beta=1.0
                ).magnetization[0, 0]
                for way in (1, -1)
            )
            exact = float(up - down) / 2e-5 / 2**0.5
            assert cells["slopes"]["exact"][site, channel] == pytest.approx(exact, abs=1e-8)
    assert cells["off"] > 1e-3


def test_errors_are_relative_where_they_are_of_slopes_and_one_without_an_answer():
    own = study.Thermodynamics(1.0, 2.0, 3.0, 4.0, 5.0, slope=np.array([3.0, 4.0, 0.0, 0.0]))
    found = own._replace(energy=2.5, probe=4.75, slope=np.array([3.0, 4.0, 0.0, 1.0]))
    assert study.value_error(found, own) == pytest.approx(0.5, rel=1e-12)
    assert study.slope_error(found, own) == pytest.approx(0.2, rel=1e-12)
    lost = own._replace(multipliers=np.nan, slope=np.full(4, np.nan))
    assert (study.value_error(lost, own), study.slope_error(lost, own)) == (1.0, 1.0)


def test_couplings_that_a_program_makes_of_its_input():
    """Equal scores: one collective pattern with known eigenvalues, the same for either form."""
    size, dim = 5, 4
    scores = np.full((size, size), 0.3)
    expected = {"tanh": np.tanh(0.6) / 20**0.5, "softmax": 0.7 / size}
    for kind, entry in expected.items():
        found = study.input_couplings(scores, kind=kind, dim=dim, strength=0.7)
        values = np.linalg.eigvalsh(found)
        assert values[-1] == pytest.approx((size - 1) * entry, rel=1e-12)
        np.testing.assert_allclose(values[:-1], -entry, rtol=1e-12)
    # One large score: a row of the softmax is spent, a hyperbolic tangent knows no other pair.
    scores = np.zeros((3, 3))
    scores[0, 1] = 50.0
    softmax = study.input_couplings(scores, kind="softmax", dim=1, strength=1.0)
    tanh = study.input_couplings(scores, kind="tanh", dim=1, strength=1.0)
    np.testing.assert_allclose(softmax[0], [0.0, (1 + 1 / 3) / 2, (0 + 1 / 3) / 2], atol=1e-12)
    np.testing.assert_allclose(tanh[0], [0.0, 0.5 / 3**0.5, 0.0], atol=1e-12)
    several = [
        study.input_spectrum(seed, spins=48, dim=32, kind="softmax", strength=0.6)
        for seed in range(3)
    ]
    assert min(one.overlap for one in several) > 0.95
    assert max(abs(one.largest - 0.6) for one in several) < 0.06
