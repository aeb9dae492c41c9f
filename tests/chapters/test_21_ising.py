"""Chapters 21 and 21a: derivatives of the exact free energy, errors of the approximations."""

from types import SimpleNamespace

import numpy as np
import pytest

from compendium.c21_ising.study import approximation_errors, field_differences, several_solutions
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact


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
