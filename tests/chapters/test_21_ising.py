"""Chapters 21 and 21a: derivatives of the exact free energy, errors of the approximations."""

import numpy as np
import pytest

from compendium.c21_ising.study import approximation_errors, field_differences
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact


def test_errors_of_ising_approximations():
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
