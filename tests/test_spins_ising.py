"""Exact sums against a plain loop, autograd, finite differences and closed forms; couplings."""

import itertools

import numpy as np
import pytest
import torch

from spinformer.spins import ising
from spinformer.spins.monte_carlo import sample_ising

# Two spins tied to each other, and a third that is free.
HARD = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def _glass(seed, size, batch=()):
    rng = np.random.default_rng(seed)
    raw = np.triu(rng.normal(size=(*batch, size, size)) / np.sqrt(size), 1)
    return raw + raw.swapaxes(-1, -2), 0.5 * rng.normal(size=(*batch, size))


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("beta", [0.0, 0.7, 40.0])
@pytest.mark.claim("B2")
def test_matrix_form_equals_the_plain_loop(size, beta):
    couplings, fields = _glass(size, size)
    result = ising.solve_exact(couplings, fields=fields, beta=beta)
    states = [np.array(s, float) for s in itertools.product((-1, 1), repeat=size)]
    energies = np.array([-(0.5 * s @ couplings @ s + fields @ s) for s in states])
    weights = np.exp(-beta * (energies - energies.min()))
    log_z = np.log(weights.sum()) - beta * energies.min()
    p = weights / weights.sum()
    assert result.log_partition == pytest.approx(log_z, rel=1e-13, abs=1e-13)
    assert np.allclose(result.magnetization, p @ states, atol=1e-13)
    pairs = sum(w * np.outer(s, s) for w, s in zip(p, states, strict=True))
    assert np.allclose(result.correlations, pairs, atol=1e-13)
    assert result.energy == pytest.approx(p @ energies, abs=1e-12)
    assert result.entropy == pytest.approx(p @ (beta * energies + log_z), abs=1e-11)


def test_open_chain_in_closed_form():
    # An open chain without field: Z = 2^N prod cosh(beta J_i), <s_i s_j> = prod tanh between.
    size, beta = 20, 0.9
    bonds = np.random.default_rng(1).normal(size=size - 1)
    couplings = np.diag(bonds, 1) + np.diag(bonds, -1)
    result = ising.solve_exact(couplings, fields=np.zeros(size), beta=beta)
    expected = size * np.log(2) + np.log(np.cosh(beta * bonds)).sum()
    assert result.log_partition == pytest.approx(expected, rel=1e-13)
    assert result.correlations[3, 15] == pytest.approx(np.prod(np.tanh(beta * bonds[3:15])))


def test_document_s_ordered_pairs_couple_twice():
    # [bal2021transformers, Eq. (binaryrandomising)], summed over all i and j of two spins by hand.
    j, h, beta = np.array([[0.7, 0.2], [-0.5, 0.1]]), np.array([0.3, -0.4]), 1.2
    states = map(np.array, itertools.product((-1, 1), repeat=2))
    total = sum(np.exp(beta * (s @ j @ s + h @ s)) for s in states)
    result = ising.solve_exact(ising.pair_couplings(j), fields=h, beta=beta)
    assert result.log_partition + beta * np.trace(j) == pytest.approx(np.log(total), rel=1e-13)


@pytest.mark.claim("B4")
def test_enumeration_autograd_finite_differences_and_monte_carlo_agree():
    beta = 0.8
    couplings, fields = _glass(5, 9)
    result = ising.solve_exact(couplings, fields=fields, beta=beta)
    h = torch.tensor(fields, requires_grad=True)
    j = torch.tensor(couplings, requires_grad=True)
    log_z = ising.ising_log_partition(j, fields=h, beta=beta)
    assert log_z.item() == pytest.approx(float(result.log_partition), rel=1e-13)
    # m = -dF/dh with F = -ln Z / beta, [bal2021transformers, Eq. (sigma)].
    m, pairs = torch.autograd.grad(log_z / beta, (h, j), create_graph=True)
    assert np.allclose(m.detach(), result.magnetization, atol=1e-12)
    off = ~np.eye(9, dtype=bool)
    assert np.allclose(2 * pairs.detach()[off], result.correlations[off], atol=1e-12)
    hessian = torch.stack([torch.autograd.grad(m[i], h, retain_graph=True)[0] for i in range(9)])
    assert np.allclose(hessian / beta, result.susceptibility, atol=1e-12)
    step = 1e-4
    for i in range(9):
        shift = step * np.eye(9)[i]
        up = ising.solve_exact(couplings, fields=fields + shift, beta=beta).free_energy
        down = ising.solve_exact(couplings, fields=fields - shift, beta=beta).free_energy
        assert -(up - down) / (2 * step) == pytest.approx(result.magnetization[i], abs=1e-7)
    run = sample_ising(couplings, fields=fields, beta=beta, sweeps=12_000)
    found = run.magnetization
    pulls = (found.value - result.magnetization) / found.error
    assert np.abs(pulls).max() < 4.5
    # For any correlations of the spins passed at most as often as by one spin.
    assert np.sqrt(np.mean(pulls**2)) < 3


def test_random_couplings_have_the_stated_moments():
    couplings, fields = ising.sherrington_kirkpatrick(20, seed=1, count=200, field_std=0.5)
    off = couplings[:, ~np.eye(20, dtype=bool)]
    assert np.mean(off) == pytest.approx(0, abs=0.005)
    assert np.var(off) == pytest.approx(1 / 20, rel=0.02)
    assert np.std(fields) == pytest.approx(0.5, rel=0.05)
    assert np.array_equal(couplings, couplings.swapaxes(1, 2))
    assert not np.diagonal(couplings, axis1=1, axis2=2).any()
    assert ising.sherrington_kirkpatrick(5, seed=1)[0].shape == (5, 5)
    off = ~np.eye(600, dtype=bool)
    for symmetry in (-1.0, 0.0, 0.6, 1.0):
        pair = ising.gaussian_couplings(600, symmetry=symmetry, seed=0, mean=5.0, std=0.7)
        assert pair[off].mean() * 600 == pytest.approx(5.0, abs=0.3)
        centred = (pair - pair[off].mean()) / 0.7
        assert (centred[off] ** 2).mean() * 600 == pytest.approx(1.0, abs=0.02)
        assert (centred * centred.T)[off].mean() * 600 == pytest.approx(symmetry, abs=0.02)
        assert not pair.diagonal().any()


def test_batch_members_do_not_see_their_neighbours():
    couplings, fields = _glass(9, 7, (3, 2))
    together = ising.solve_exact(couplings, fields=fields, beta=1.3)
    for index in np.ndindex(3, 2):
        alone = ising.solve_exact(couplings[index], fields=fields[index], beta=1.3)
        assert np.array_equal(alone.magnetization, together.magnetization[index])
        assert np.array_equal(alone.log_partition, together.log_partition[index])
    shared = ising.solve_exact(couplings[0, 0], fields=fields, beta=1.3)
    assert shared.magnetization.shape == (3, 2, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((21, 21)), np.zeros(21), 1.0), "at most 20 spins"),
        ((np.zeros((2, 2)), np.full(2, 1e200), 1e200), "fields must have entries within"),
        ((HARD, np.array([0.0, 0.0, 1.0]), 1e16), "beta must keep beta \\* couplings and beta"),
        ((np.array([[0.0, 1.0], [0.5, 0.0]]), np.zeros(2), 1.0), "symmetric"),
        ((np.eye(2), np.zeros(2), 1.0), "zero diagonal"),
        ((np.zeros((2, 2)), np.zeros(3), 1.0), "fields must have shape"),
        ((np.zeros((3, 2, 2)), np.zeros((2, 2)), 1.0), "broadcast"),
    ],
)
def test_bad_input_is_named(arguments, message):
    couplings, fields, beta = arguments
    with pytest.raises(ValueError, match=message):
        ising.solve_exact(couplings, fields=fields, beta=beta)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e11])
def test_a_small_field_beside_a_hard_coupling_is_summed_or_refused(scale):
    """The third spin is free: tanh 1 whatever couples the others, or no number at all."""
    alone = np.array([0.0, 0.0, 1.0])
    for factor in (1.0, 1e6):
        strong = factor * scale * HARD
        if factor * scale > 2e11:
            with pytest.raises(ValueError, match="lost in rounding"):
                ising.solve_exact(strong, fields=alone, beta=1.0)
        else:
            m = ising.solve_exact(strong, fields=alone, beta=1.0).magnetization[2]
            assert m == pytest.approx(np.tanh(1.0), rel=1e-4)
    for dtype, limit in ((torch.float32, 800.0), (torch.float64, 4e11)):
        field = torch.tensor(alone, dtype=dtype, requires_grad=True)
        given = {"fields": field, "beta": torch.tensor(1.0)}
        pair = torch.tensor(HARD, dtype=dtype)
        log_z = ising.ising_log_partition(0.5 * (limit - 2.0) * pair, **given)
        (m,) = torch.autograd.grad(log_z, field)
        assert float(m[2].detach()) == pytest.approx(np.tanh(1.0), rel=1e-3)
        with pytest.raises(ValueError, match="lost in rounding"):
            ising.ising_log_partition(limit * pair, **given)
        with pytest.raises(ValueError, match="lost in rounding"):
            ising.ising_log_partition(float(torch.finfo(dtype).max) * pair, **given)


def test_digits_are_lost_in_the_sum_over_a_system_and_not_over_a_spin():
    """Each of twelve spins feels half of what a system may hold, all together six times as much."""
    couplings = 2e10 * (1 - np.eye(12))
    with pytest.raises(ValueError, match="lost in rounding"):
        ising.solve_exact(couplings, fields=np.zeros(12), beta=1.0)
    pairs = np.kron(np.eye(6), 1 - np.eye(2))
    one = ising.solve_exact(2e10 * pairs, fields=np.zeros(12), beta=1.0)
    assert one.energy == pytest.approx(-6 * 2e10)


def test_bad_tensors_are_named():
    pair = torch.zeros(2, 2)
    with pytest.raises(TypeError, match=r"torch\.float32 or torch\.float64"):
        ising.ising_log_partition(pair.half(), fields=torch.zeros(2).half(), beta=1.0)
    with pytest.raises(TypeError, match="fields"):
        ising.ising_log_partition(pair, fields=torch.zeros(2).double(), beta=1.0)
    with pytest.raises(ValueError, match="broadcast"):
        ising.ising_log_partition(pair.expand(3, 2, 2), fields=torch.zeros(4, 2), beta=1.0)
