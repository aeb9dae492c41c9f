"""All free energies of one system in one table (`spinformer.spins.free_energies`)."""

import numpy as np
import pytest

from spinformer.core.states import spin_states
from spinformer.spins.free_energies import _sampled_log_partition, free_energies
from spinformer.spins.ising import sherrington_kirkpatrick
from spinformer.spins.mean_field import solve_mean_field


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
    assert found.converged.all()
    lines = str(found).splitlines()
    assert float(lines[1].split()[2]) == pytest.approx(-exact / 0.6, abs=1e-4)
    assert len(lines) == 8
    assert all(line.endswith(" yes") for line in lines[1:])
    cold = free_energies(couplings, 0 * fields, 0.0, sweeps=4)
    assert cold.log_partition == pytest.approx(9 * np.log(2))


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
    run = {"fields": fields, "beta": 1.5, "sweeps": 150, "copies": 16}
    found = [_sampled_log_partition(couplings, **run, seed=seed) for seed in range(40)]
    scores = np.array([(value - exact) / error for value, error, _ in found])
    assert abs(scores.mean()) < 0.6
    assert 0.7 < scores.std() < 1.4


def test_ladders_that_do_not_mix_and_theories_that_do_not_settle_are_flagged():
    # Two states of all spins, far apart and much colder than any rung beside.
    block = 40.0 * (np.ones((6, 6)) - np.eye(6))
    run = {"sweeps": 50, "copies": 2, "seed": 0}
    assert not _sampled_log_partition(block, fields=np.zeros(6), beta=5.0, **run)[-1]
    couplings, fields = sherrington_kirkpatrick(12, seed=3)
    found = free_energies(couplings, fields + 0.01, 20.0, sweeps=20, copies=2)
    assert not found.converged.all()
    assert " no" in str(found)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="one system"):
        free_energies(np.zeros((3, 3)), np.zeros((2, 3)), 1.0)
    with pytest.raises(ValueError, match="copies must be"):
        free_energies(np.zeros((3, 3)), np.zeros(3), 1.0, copies=1)
