"""Teacher and student: the bound of the noise, recovery of the couplings, what limits do."""

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.optimize import minimize_scalar
from scipy.special import ive

from compendium.c24a_teacher_and_student.settings import (
    answers_at,
    band_rows,
    fit_to_the_end,
    unknowns_of,
)
from compendium.c24a_teacher_and_student.study import (
    NOISE,
    _pairs,
    bilinear,
    examples,
    learn,
    noise_bound,
    scale_table,
    stored,
    teacher,
    teacher_table,
)
from spinformer.core.random import torch_generator
from spinformer.spins.ising import solve_exact


def test_the_bound_is_what_small_noise_does_to_a_local_fit():
    """Gauss-Newton from the truth, with a derivative by autograd."""
    model = teacher(1)
    fields, _ = examples(model, samples=3, data="theory", seed=5)
    target = bilinear(model)
    names = ("query", "log_beta", "log_strength")

    def answer(*unknowns):
        weights = dict(zip(names, unknowns, strict=True)) | {"key": torch.eye(8).double()}
        return torch.func.functional_call(model, weights, (fields,)).flatten()

    base = target, model.log_beta.detach(), model.log_strength.detach()
    slopes = torch.autograd.functional.jacobian(answer, base)
    jacobian = torch.cat([slope.flatten(1) for slope in slopes], 1)
    # Least squares moves the unknowns by the pseudo-inverse times the noise.
    scatter = NOISE * torch.linalg.pinv(jacobian)[:64].norm() / target.norm()
    assert float(noise_bound(model, fields)) == pytest.approx(float(scatter), rel=1e-5)
    assert torch.isinf(noise_bound(model, fields[:1]))


def test_examples_are_the_teachers_answers():
    model = teacher(0)
    fields, noisy = examples(model, samples=40, data="theory", seed=2)
    with torch.no_grad():
        clean = model(fields)
    assert float((noisy - clean).std()) == pytest.approx(NOISE, rel=0.1)
    again, drawn = examples(model, samples=40, data="spins", seed=2, sweeps=64)
    assert torch.equal(again, fields)
    # Of the order of one over the root of the draws.
    off = (drawn - clean).norm() / clean.norm()
    assert 0.005 < float(off) < 0.3


def test_a_limit_keeps_its_word():
    model = teacher(3)
    fields, answers = examples(model, samples=4, data="theory", seed=1)
    limited = learn("limited", fields[None], answers=answers[None], steps=60)[0]
    with torch.no_grad():
        _, parts = limited(fields, return_parts=True)
    assert float((parts.beta * parts.pair.sum(-1, keepdim=True)).max()) < 0.9
    assert bool(parts.solution.converged.all())


@pytest.mark.nightly
def test_one_student_again(monkeypatch):
    study = "compendium.c24a_teacher_and_student.study"
    monkeypatch.setattr(f"{study}.TEACHERS", 1)
    made = _pairs("theory", student="saddle", samples=16)
    monkeypatch.setattr(f"{study}._pairs", lambda *args, **options: made)
    (row,) = teacher_table.rows(data="theory", student="saddle", samples=16)
    for name in ("error", "bound", "unseen"):
        samples, values = stored("theory", student="saddle", column=name)
        assert row[name] == pytest.approx(values[0, samples == 16][0], rel=0.05), name
    (row,) = scale_table.rows(data="theory", samples=16)
    table = scale_table.read()
    here = (table["data"] == "theory") & (table["teacher"] == 0)
    for name in ("beta", "strength"):
        assert row[name] == pytest.approx(table[name][here][0], abs=1e-3)


@pytest.mark.claim("B10c")
def test_the_error_of_the_theory_goes_into_the_temperature():
    """Stored students of drawn spins, and what the exact answer of a free spin makes of them.

    A free spin of D = 8 components answers with a ratio of Bessel functions. The saddle that comes
    nearest has a larger β: by a little in weak fields, by D/(D - 1) in strong ones. Coupled spins
    feel their neighbours, too, and lie between.
    """
    scale = scale_table.read()
    off = {data: scale["beta"][scale["data"] == data] for data in ("theory", "spins")}
    assert abs(off["theory"].mean()) < 0.01
    size = 8
    fields = np.random.default_rng(0).standard_normal((4000, size))
    scaled = np.sqrt(size) * np.linalg.norm(fields, axis=1)
    exact = ive(size / 2, scaled) / ive(size / 2 - 1, scaled)

    def miss(shift):
        x = 2 * np.exp(shift) * scaled / size
        return np.mean((x / (1 + np.sqrt(1 + x**2)) - exact) ** 2)

    free = minimize_scalar(miss, bounds=(-0.5, 0.5), method="bounded").x
    assert 0.05 < free < off["spins"].min()
    assert off["spins"].max() < np.log(size / (size - 1))
    # Students with a limit are not at the bound.
    sizes, bound = stored("theory", student="saddle", column="bound")
    for student in ("limited", "penalty"):
        error = stored("theory", student=student)[1][:, -1]
        assert np.median(error / bound[:, sizes == 16][:, 0]) > 2


def test_least_squares_end_at_the_minimum():
    """From another system's weights: no slope is left, and without noise the teacher is found."""
    model = teacher(3)
    fields = torch.randn(12, 6, 8, generator=torch_generator(4), dtype=torch.float64)
    with torch.no_grad():
        exact = model(fields)
    start = teacher(3)
    with torch.no_grad():
        start.query += 0.05 * torch.randn(8, 8, generator=torch_generator(5), dtype=torch.float64)
        start.log_beta += 0.1
    found = fit_to_the_end(start, fields, answers=exact)
    truth = unknowns_of(model)
    assert found == pytest.approx(truth, abs=1e-6)
    noise = 0.02 * torch.randn(exact.shape, generator=torch_generator(6), dtype=torch.float64)
    ended = fit_to_the_end(start, fields, answers=exact + noise)
    assert np.abs(ended - truth).max() > 1e-3

    def cost(unknowns):
        answers = answers_at(model, fields, unknowns)
        return (answers - (exact + noise).flatten()).square().sum()

    at = torch.tensor(ended, requires_grad=True)
    (slope,) = torch.autograd.grad(cost(at), at)
    from_start = torch.tensor(unknowns_of(start), requires_grad=True)
    (steep,) = torch.autograd.grad(cost(from_start), from_start)
    assert float(slope.norm()) < 1e-5 * float(steep.norm())


def test_the_band_is_around_one(monkeypatch):
    """Ratios of which the root mean square is known, with an interval by leaving one out."""
    settings = "compendium.c24a_teacher_and_student.settings"
    for ratios, value in (((1.0, 1.0, 1.0), 0.25), ((0.6, 0.8, 1.0), None), ((2.0, 2.0), -0.75)):
        monkeypatch.setattr(f"{settings}.error_ratios", lambda r=ratios, **_: np.array(r))
        (line,) = band_rows(0, samples=8, noise=0.02)
        whole = np.sqrt(np.mean(np.square(ratios)))
        assert line["value"] == pytest.approx(0.25 - abs(whole - 1) if value is None else value)
        assert line["low"] <= line["value"] <= line["high"]


def test_the_open_cells_answer_as_the_package_and_meet_the_bound():
    told = run_open_cells("24a_teacher_and_student")

    def answers(coupling):
        couplings = np.zeros((3, 3))
        couplings[(0, 0, 1), (1, 2, 2)] = coupling
        pairs = couplings + couplings.T
        means = [
            solve_exact(pairs, fields=field, beta=1.0).magnetization
            for field in told["eight_fields"]
        ]
        return np.concatenate(means)

    exact = answers(told["true_coupling"])
    np.testing.assert_allclose(told["exact_answers"], exact, atol=1e-12)
    steps = 1e-6 * np.eye(3)
    slopes = [
        (answers(told["true_coupling"] + step) - answers(told["true_coupling"] - step)) / 2e-6
        for step in steps
    ]
    bound = 0.02 * np.linalg.norm(np.linalg.pinv(np.transpose(slopes)))
    assert told["least_possible"] == pytest.approx(bound, rel=1e-5)
    assert told["typical_error"] == pytest.approx(bound, rel=0.1)
