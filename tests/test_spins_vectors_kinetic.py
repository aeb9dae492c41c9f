"""Driven vector spins for D → ∞: against simulation, and against each other order by order."""

import numpy as np
import pytest
import torch

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.spins.large_d import THEORIES, driven_step, entropy_rate, free_spins

ONE = torch.ones(1, 1, dtype=torch.float64)
STEPS = 8


def _system(sites=6, seed=0, size=1.2):
    rng = np.random.default_rng(seed)
    couplings = size * rng.standard_normal((sites, sites)) / sites**0.5
    np.fill_diagonal(couplings, 0.0)
    return couplings, 0.4 * rng.standard_normal((sites, 4))


def _theory(couplings, fields, *, theory, steps=STEPS):
    couplings, fields = torch.as_tensor(couplings), torch.as_tensor(fields)
    given = {"couplings": couplings, "fields": fields, "beta": ONE, "theory": theory}
    mean = free_spins(fields, ONE)
    covariance = torch.diag(1 - mean.square().sum(-1))
    for _ in range(steps):
        mean, covariance, delayed = driven_step(mean, covariance, **given)
    rate = entropy_rate(delayed, couplings=couplings, beta=ONE)
    return mean.numpy(), delayed.numpy(), float(rate)


def _simulation(couplings, fields, *, dim, replicas, seed):
    """Unit spins of `dim` components in fields within the first four, which hold all of ⟨u⟩."""
    rng = np.random.default_rng(seed)
    whole = np.zeros((len(fields), dim))
    whole[:, :4] = fields
    u = sample_von_mises_fisher(dim * np.broadcast_to(whole, (replicas, *whole.shape)), seed=rng)
    for _ in range(STEPS):
        before = u
        u = sample_von_mises_fisher(dim * (whole + couplings @ before), seed=rng)
    delayed = np.einsum("rid,rjd->ij", u, before) / replicas
    return u.mean(0)[:, :4], delayed


def test_the_large_d_theory_is_what_simulation_approaches():
    """Strong asymmetric couplings: errors fall as 1/D; naive and second order keep theirs."""
    couplings, fields = _system()
    errors, rates = {name: [] for name in THEORIES}, []
    for dim in (8, 32):
        mean, delayed = _simulation(couplings, fields, dim=dim, replicas=6000, seed=1)
        for name in THEORIES:
            found = _theory(couplings, fields, theory=name)[0]
            errors[name].append(np.linalg.norm(found - mean) / np.linalg.norm(mean))
        rates.append(np.sum((couplings - couplings.T) * delayed))
    assert errors["large D"][0] < 0.05
    assert errors["large D"][1] < 0.5 * errors["large D"][0]
    assert errors["second order"][1] > 1.5 * errors["large D"][1]
    assert errors["naive"][1] > 0.1
    _, _, rate = _theory(couplings, fields, theory="large D")
    assert abs(rates[1] / rate - 1) < 0.01
    assert abs(_theory(couplings, fields, theory="naive")[2] / rate - 1) > 0.05


def test_orders_in_the_couplings():
    """Halving J divides the error of naive theory by 4, and that of the second order by 16.

    The correlations between neighbours, which it leaves out, are of order J², and act as J Q Jᵀ.
    """
    errors = {name: [] for name in ("naive", "second order")}
    for size in (0.1, 0.05):
        couplings, fields = _system(seed=3, size=size)
        exact = _theory(couplings, fields, theory="large D")[0]
        for name, found in errors.items():
            found.append(np.linalg.norm(_theory(couplings, fields, theory=name)[0] - exact))
    assert errors["naive"][0] / errors["naive"][1] == pytest.approx(4, rel=0.15)
    assert errors["second order"][0] / errors["second order"][1] == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("theory", THEORIES)
def test_symmetric_couplings_produce_no_entropy(theory):
    couplings, fields = _system(seed=5, size=0.5)
    symmetric = (couplings + couplings.T) / 2
    _, delayed, rate = _theory(symmetric, fields, theory=theory, steps=60)
    assert abs(rate) < 1e-12
    # In equilibrium what follows is correlated with what went before as the other way round.
    if theory == "large D":
        assert np.abs(delayed - delayed.T).max() < 1e-10
    turned = couplings - couplings.T
    assert _theory(turned, fields, theory=theory, steps=60)[2] > 0.01
