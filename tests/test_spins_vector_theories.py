"""Theories of vector spins side by side, held to exact integrals and to rigorous bounds."""

import numpy as np
import pytest
import torch

from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.vector_theories import vector_free_energies

DOUBLE = torch.float64


def _pair(dim, strength, seed):
    generator = torch.Generator().manual_seed(seed)
    couplings = strength * torch.randn(2, 2, generator=generator, dtype=DOUBLE)
    return couplings, torch.randn(2, dim, generator=generator, dtype=DOUBLE)


@pytest.mark.parametrize("dim", [1, 2, 5, 16])
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.4, 1.5])
def test_the_bounds_hold_and_the_corrected_saddle_is_best(dim, strength):
    for seed in range(4):
        couplings, fields = _pair(dim, strength, seed)
        found = vector_free_energies(couplings, fields=fields, beta=0.9)
        exact = two_spins(couplings.numpy(), fields=fields.numpy(), beta=0.9)
        low, high = found.bounds
        assert low - 1e-9 <= exact.log_partition <= high + 1e-9
        row = {name: index for index, name in enumerate(found.methods)}
        off = np.abs(found.log_partition - exact.log_partition)
        if strength <= 0.4:
            assert found.converged.all()
            assert found.stable.all()
        if strength <= 0.4 and dim >= 5:
            assert off[row["corrected saddle"]] < 0.35 * off[row["saddle"]]
            wrong = np.linalg.norm(found.magnetization - exact.magnetization, axis=(-2, -1))
            assert wrong[row["corrected saddle"]] < wrong[row["naive"]]
        if strength == 0.0:
            # A product of free spins: the lower bound is the truth.
            assert low == pytest.approx(exact.log_partition)


def test_a_saddle_of_the_naive_theory_is_told_from_a_maximum():
    """Aligned spins without fields below the critical temperature: m = 0 is stationary, no more."""
    couplings = 0.5 * (torch.ones(6, 6, dtype=DOUBLE) - torch.eye(6, dtype=DOUBLE))
    silent = torch.zeros(6, 3, dtype=DOUBLE)
    found = vector_free_energies(couplings, fields=silent, beta=1.0)
    row = {name: index for index, name in enumerate(found.methods)}
    assert np.abs(found.magnetization).max() < 1e-9
    assert not found.stable[row["naive"]]
    assert found.converged[row["naive"]]
    hot = vector_free_energies(couplings, fields=silent, beta=0.1)
    assert hot.stable.all()
    assert " no " in str(found).splitlines()[1]
    assert str(found).endswith("and 45.0000")


def test_what_is_printed_is_what_the_columns_hold():
    """Few components at strong coupling: some theories are stable and within the bounds, some not.

    At another temperature than one, where F is not −ln Z.
    """
    silent = torch.zeros(6, 3, dtype=DOUBLE)
    couplings = 0.5 * (torch.ones(6, 6, dtype=DOUBLE) - torch.eye(6, dtype=DOUBLE))
    one = vector_free_energies(couplings, fields=silent, beta=0.7, max_steps=1)
    two = vector_free_energies(torch.zeros(2, 2).double(), fields=silent[:2] + 1.0, beta=1.6)
    seen = set()
    for found in (one, two):
        for row, line in enumerate(str(found).splitlines()[1:-1]):
            value = found.log_partition[row]
            flags = [column[row] for column in (found.stable, found.converged, found.within_bounds)]
            numbers = [f"{value:.4f}", f"{-value / found.beta:.4f}"]
            assert line[:18].strip() == found.methods[row]
            assert line[18:].split() == numbers + [("no", "yes")[int(flag)] for flag in flags]
            seen |= {(place, bool(flag)) for place, flag in enumerate(flags)}
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beta": 0.0}, "beta"),
        ({"fields": torch.ones(3, 2).double()}, "fields"),
        ({"couplings": torch.zeros(2, 2, 2).double()}, "couplings"),
    ],
)
def test_bad_input(change, words):
    given = {"couplings": torch.zeros(2, 2).double(), "fields": torch.ones(2, 3).double()}
    given |= {"beta": 1.0, **change}
    with pytest.raises(ValueError, match=words):
        vector_free_energies(given.pop("couplings"), **given)
