"""The large-D free energy against Bessel functions, quadrature, Monte Carlo and autograd."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from spinformer.core.solve import NotConverged, Status
from spinformer.spins.exact_vectors import three_spins
from spinformer.spins.large_d import inverse_logdet
from spinformer.spins.monte_carlo import sample_vector_spins
from spinformer.spins.solvers import solve_saddle_point


def _system(*batch, sites=5, dimension=4, strength=0.4, seed=0):
    """Random couplings (not symmetric, with a diagonal), fields and inverse temperatures."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {"generator": generator, "dtype": torch.float64}
    couplings = strength * torch.randn(*batch, sites, sites, **drawn)
    fields = torch.randn(*batch, sites, dimension, **drawn)
    return couplings, fields, 0.2 + 2 * torch.rand(batch, **drawn)


@pytest.mark.parametrize("dimension", [3, 11])
def test_mean_spin_is_minus_the_derivative_of_the_free_energy(dimension):
    couplings, fields, beta = (x.requires_grad_() for x in _system(3, dimension=dimension))
    result = solve_saddle_point(couplings, fields=fields, beta=beta)
    by_fields, by_couplings = torch.autograd.grad(result.free_energy.sum(), (fields, couplings))
    assert (by_fields + result.magnetization).abs().max() < 1e-12
    assert (by_couplings + dimension * result.correlations).abs().max() < 1e-12 * dimension
    diagonal = result.correlations.diagonal(dim1=-2, dim2=-1)
    assert (diagonal - 1).abs().max() < 1e-11


def test_three_spins_in_fields_by_quadrature():
    couplings = np.array([[0.0, 0.3, -0.2], [0.3, 0.0, 0.25], [-0.2, 0.25, 0.0]])
    errors = []
    for dimension in (8, 16):
        fields = np.zeros((3, dimension))
        fields[:, 0] = np.sqrt(dimension) * np.array([0.5, -0.3, 0.8])
        truth = three_spins(couplings, fields=fields, beta=0.8)
        j, h = torch.tensor(couplings), torch.tensor(fields)
        result = solve_saddle_point(j, fields=h, beta=0.8, corrected=True)
        energy = abs(-0.8 * float(result.free_energy) - truth.log_partition) / dimension
        mean = np.abs(result.magnetization.numpy() - truth.magnetization).max() / dimension**0.5
        errors.append([energy, mean, np.abs(result.correlations.numpy() - truth.correlation).max()])
    # Second order for ln Z and the corrected mean spin, first order for the correlations.
    ratios = np.divide(*errors)
    assert (ratios[:2] > 3.3).all()
    assert (np.array(errors[1][:2]) < (2e-4, 1e-3)).all()
    assert 1.6 < ratios[2] < 2.6


def test_monte_carlo_agrees_within_error_bars():
    generator = np.random.default_rng(5)
    sites, dimension, beta = 8, 12, 0.9
    couplings = 0.35 * generator.standard_normal((sites, sites)) / np.sqrt(sites)
    fields = generator.standard_normal((sites, dimension))
    found = sample_vector_spins(
        couplings, fields=fields, beta=beta, sweeps=6000, burn_in=200, seed=1
    )
    assert found.reliable
    j, h = torch.tensor(couplings), torch.tensor(fields)
    plain, better = (solve_saddle_point(j, fields=h, beta=beta, corrected=c) for c in (False, True))
    leading, score = (
        (theory.magnetization.numpy() - found.magnetization.value) / found.magnetization.error
        for theory in (plain, better)
    )
    # 96 scores: their mean square is 1 up to sampling; O(1/D^2) is far below the error bars.
    assert np.sqrt((score**2).mean()) < 1.4
    assert np.sqrt((leading**2).mean()) > 2
    off = ~np.eye(sites, dtype=bool)
    gap = np.abs(plain.correlations.numpy() - found.correlations.value)[off]
    assert (gap < 5 * found.correlations.error[off] + 0.3 / dimension).all()


def test_derivatives_once_and_twice():
    def every(couplings, fields, beta):
        result, plain = (
            solve_saddle_point(couplings, fields=fields, beta=beta, corrected=c)
            for c in (True, False)
        )
        better = (result.free_energy, result.magnetization)
        return *better, plain.magnetization, plain.correlations, plain.saddle.value

    # D above and below N take different paths.
    for dimension in (2, 5):
        system = [x.requires_grad_() for x in _system(2, sites=3, dimension=dimension)]
        assert torch.autograd.gradcheck(every, system, fast_mode=True)
        assert torch.autograd.gradgradcheck(every, system, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["glass", "softmax", "ferromagnet", "antiferromagnet"])
def test_converges_without_nan_over_the_whole_range(kind, dtype):
    generator = torch.Generator().manual_seed(7)
    for sites in (2, 32, 256):
        noise = torch.randn(sites, sites, generator=generator, dtype=torch.float64)
        base = {
            "glass": noise / sites**0.5,
            "softmax": torch.softmax(3 * noise, -1),
            "ferromagnet": torch.full((sites, sites), 1 / sites, dtype=torch.float64),
            "antiferromagnet": torch.full((sites, sites), -1 / sites, dtype=torch.float64),
        }[kind]
        base = base - torch.diag(base.diagonal())
        settings_ = [(g, b, f) for g in (1.0, 4.0) for b in (0.1, 1.0, 10.0) for f in (0.0, 1.0)]
        if sites == 256:  # the hardest corner only: strong, cold, with and without field
            settings_ = settings_[-2:]
        couplings = torch.stack([g * base for g, _, _ in settings_]).to(dtype)
        scale = torch.tensor([f for _, _, f in settings_], dtype=dtype)[:, None, None]
        shape = (len(settings_), sites, 8)
        fields = scale * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        beta = torch.tensor([b for _, b, _ in settings_], dtype=dtype)
        result = solve_saddle_point(couplings, fields=fields, beta=beta, corrected=True)
        assert bool(result.saddle.converged.all())
        assert float(result.saddle.residual.max()) < (1e-8 if dtype == torch.float64 else 2e-2)
        for value in (result.free_energy, result.magnetization, result.correlations):
            assert bool(torch.isfinite(value).all())


def test_a_sample_does_not_depend_on_its_neighbours():
    couplings, fields, beta = _system(6, sites=12, strength=0.3, seed=2)
    # Neighbours from trivial to hard: no couplings, and a cold strong system without field.
    couplings[1], beta[2] = 0.0, 30.0
    couplings[2] *= 5
    fields[2] = 0.0
    # Fields of their own, or one for all.
    for some in (fields, fields[0]):
        together = solve_saddle_point(couplings, fields=some, beta=beta, corrected=True)
        for k, field in enumerate(some.expand(6, 12, 4)):
            alone = solve_saddle_point(couplings[k], fields=field, beta=beta[k], corrected=True)
            assert int(alone.saddle.steps) == int(together.saddle.steps[k])
            for name in ("free_energy", "magnetization", "correlations"):
                got, want = getattr(together, name)[k], getattr(alone, name)
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.claim("B3")
def test_free_spins_in_closed_form():
    fields = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    strength = fields.square().sum(-1) / 7
    expected = (1 + (1 + 4 * 1.3**2 * strength).sqrt()) / (4 * 1.3)
    none = torch.zeros(4, 4, dtype=torch.float64)
    saddle = solve_saddle_point(none, fields=fields, beta=1.3).saddle
    torch.testing.assert_close(saddle.value, expected, rtol=1e-12, atol=0)
    nothing = solve_saddle_point(none, fields=0 * fields, beta=1.3, corrected=True)
    assert abs(float(nothing.free_energy)) < 1e-12


@settings(deadline=None, max_examples=25, derandomize=True)
@given(seed=st.integers(0, 10**6), sites=st.integers(1, 7), dimension=st.integers(1, 9))
def test_invariances(seed, sites, dimension):
    couplings, fields, beta = _system(sites=sites, dimension=dimension, seed=seed)
    reference = solve_saddle_point(couplings, fields=fields, beta=beta, corrected=True)
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)
    rotation = torch.linalg.qr(random).Q
    order = torch.randperm(sites, generator=generator)
    moved = {"couplings": couplings[order][:, order].mT, "fields": fields[order] @ rotation}
    turned = solve_saddle_point(**moved, beta=beta, corrected=True)
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(turned.free_energy, reference.free_energy, **close)
    expected = reference.magnetization[order] @ rotation
    torch.testing.assert_close(turned.magnetization, expected, **close)
    # A diagonal coupling is a constant energy, and beta only sets the unit of energy.
    eye = torch.eye(sites, dtype=torch.float64)
    lifted = solve_saddle_point(couplings + eye, fields=fields, beta=beta)
    plain = solve_saddle_point(couplings, fields=fields, beta=beta)
    shift = plain.free_energy - sites * dimension
    torch.testing.assert_close(lifted.free_energy, shift, **close)
    scaled = solve_saddle_point(beta * couplings, fields=beta * fields, beta=1.0)
    torch.testing.assert_close(scaled.free_energy / beta, plain.free_energy, **close)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-12])
def test_the_residual_is_what_the_lengths_lack(tolerance):
    """C_ii - 1 recomputed by a plain inverse, and the rule that stops is the tolerance."""
    couplings, fields, beta = _system(20, sites=8, strength=0.8, seed=4)
    found = solve_saddle_point(couplings, fields=fields, beta=beta, tolerance=tolerance).saddle
    v = torch.diag_embed(found.value) - (couplings + couplings.mT) / 2
    inverse = torch.linalg.inv(v)
    means = inverse @ fields / 2 / 4**0.5
    lengths = inverse.diagonal(dim1=-2, dim2=-1) / (2 * beta[:, None]) + means.square().sum(-1)
    off = (lengths - 1).abs().amax(-1)
    torch.testing.assert_close(off, found.residual, rtol=1e-6, atol=2e-13)
    assert (off <= tolerance + 2e-13).all()
    if tolerance > 1e-12:
        # Newton squares the residual at each step: some system stops within it, not far below.
        assert off.max() > 1e-4 * tolerance
    # A step less than it took is not enough, and says so.
    given = {"tolerance": tolerance, "max_steps": int(found.steps.max()) - 1, "throw": False}
    fewer = solve_saddle_point(couplings, fields=fields, beta=beta, **given).saddle
    late = found.steps == found.steps.max()
    assert torch.equal(fewer.converged, ~late)
    assert (fewer.residual[late] > tolerance).all()


def test_every_try_that_is_accepted_lowers_the_exponent():
    """By Armijo's rule ln Z falls, and F rises, with every factorisation, also of cold pairs."""
    draw = torch.Generator().manual_seed(0)

    def spread_out(low, high, *shape):
        return 10 ** (low + (high - low) * torch.rand(shape, generator=draw, dtype=torch.float64))

    noise = torch.randn(200, 2, 2, generator=draw, dtype=torch.float64)
    couplings = torch.softmax(10 * noise, -1) * spread_out(0, 2, 200, 1, 1)
    fields = torch.randn(200, 2, 4, generator=draw, dtype=torch.float64)
    system = {"fields": fields * spread_out(-3, 1, 200, 2, 1), "beta": spread_out(1, 2, 200)}
    cut = [solve_saddle_point(couplings, **system, max_steps=n, throw=False) for n in range(2, 16)]
    energies = torch.stack([found.free_energy for found in cut])
    assert (energies.diff(dim=0) > -1e-12 * energies[-1].abs()).all()


def test_no_numbers_where_there_is_no_system():
    """Where V is not positive definite everything is NaN, not something that looks right."""
    couplings, _, _ = _system()
    for found in inverse_logdet(-couplings - couplings.mT):
        assert found.isnan().all()


def test_slow_convergence_is_reported_and_never_silent():
    couplings, fields, beta = _system()
    saddle = solve_saddle_point(
        couplings, fields=fields, beta=beta, max_steps=2, throw=False
    ).saddle
    assert int(saddle.status) == Status.STEP_LIMIT
    assert not bool(saddle.converged)
    assert float(saddle.residual) > 1e-12
    with pytest.raises(NotConverged, match=r"saddle point t\* was not found .step limit after \d"):
        solve_saddle_point(couplings, fields=fields, beta=beta, max_steps=2)
    hopeless = torch.full((3, 3), 1e300, dtype=torch.float64)
    lost = solve_saddle_point(hopeless, fields=fields[:3], beta=1.0, throw=False).saddle
    assert int(lost.status) == Status.DIVERGED
    with pytest.raises(NotConverged, match="diverged after"):
        solve_saddle_point(hopeless, fields=fields[:3], beta=1.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"couplings": torch.zeros(3, 4)}, ValueError, "couplings must have shape"),
        ({"fields": torch.zeros(2, 4)}, ValueError, "fields must have shape"),
        ({"fields": torch.zeros(3, 0)}, ValueError, "fields must have shape"),
        ({"fields": torch.zeros(3, 4).double()}, TypeError, "fields must be torch.float32"),
        ({"couplings": torch.zeros(2, 3, 3), "beta": torch.ones(5)}, ValueError, "broadcast"),
        ({"beta": 1e-30}, ValueError, "beta"),
        ({"couplings": torch.zeros(3, 3).half()}, TypeError, "couplings must be torch.float32 or"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"couplings": torch.zeros(3, 3), "fields": torch.zeros(3, 4), "beta": 1.0} | change
    with pytest.raises(error, match=message):
        solve_saddle_point(**arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_rounding_leaves_is_a_solution_or_said_to_be_none(dtype):
    """Two spins tied to each other are one spin in twice the field; a third is free."""
    tied = torch.zeros(3, 3, dtype=dtype)
    tied[0, 1] = tied[1, 0] = 1.0
    # L(2) at β = 1.
    exact = (math.sqrt(17.0) - 1.0) / 4.0
    stalled = 0
    for power in range(2, 19):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = solve_saddle_point(
                10.0**power * tied, fields=torch.ones(3, 3, dtype=dtype), beta=1.0, throw=False
            )
        if found.saddle.converged:
            close = 1e-3 + 10.0**-power
            assert float(found.magnetization[0, 0]) == pytest.approx(exact, abs=close)
            assert float(found.saddle.residual) <= 1e-3
        elif int(found.saddle.status) == Status.STALLED:
            assert float(found.saddle.residual) > 1e-3
            stalled += 1
        else:
            # Overflow and what has no factor is no number, and no zero either.
            assert int(found.saddle.status) == Status.DIVERGED
            for part in (found.magnetization, found.correlations, found.free_energy):
                assert part.isnan().all()
    assert stalled


def test_what_overflows_is_not_a_number():
    pair, fields = torch.zeros(2, 2).double(), torch.ones(2, 3).double()
    found = solve_saddle_point(pair, fields=fields, beta=1e300, throw=False)
    assert int(found.saddle.status) == Status.DIVERGED
    assert found.magnetization.isnan().all()
    assert found.correlations.isnan().all()
