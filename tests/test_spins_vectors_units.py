"""The four scalings of vector spins are one model: energies, weights, and the way back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinformer.core.special import mean_alignment
from spinformer.spins.vectors.exact import one_spin, two_spins
from spinformer.spins.vectors.units import (
    driven_couplings,
    driven_fields,
    driven_radius,
    ordered_couplings,
    pair_couplings,
    sigma_from_unit,
    unit_from_sigma,
)


def _draw(seed, sites, dim):
    rng = np.random.default_rng(seed)
    spins = rng.normal(size=(sites, dim))
    spins *= np.sqrt(dim) / np.linalg.norm(spins, axis=-1, keepdims=True)
    return rng.normal(size=(sites, sites)), rng.normal(size=(sites, dim)), spins, rng


def _sigma_energy(couplings, fields, spins):
    return -np.einsum("ij,id,jd", couplings, spins, spins) - (fields * spins).sum()


@settings(deadline=None, max_examples=20, derandomize=True)
@given(seed=st.integers(0, 1000), sites=st.integers(1, 5), dim=st.integers(3, 9))
def test_energies_and_conditional_weights_agree(seed, sites, dim):
    couplings, fields, spins, rng = _draw(seed, sites, dim)
    energy = _sigma_energy(couplings, fields, spins)
    u, h = unit_from_sigma(spins), unit_from_sigma(fields)
    unit = -np.einsum("ij,id,jd", couplings, u, u) - (h * u).sum()
    assert abs(dim * unit - energy) < 1e-10
    pair = pair_couplings(couplings)
    pairs = -0.5 * np.einsum("ij,id,jd", pair, u, u) - (h * u).sum() - np.trace(couplings)
    assert abs(dim * pairs - energy) < 1e-10
    again = pair_couplings(ordered_couplings(pair))
    np.testing.assert_allclose(again, pair, atol=1e-14)
    np.testing.assert_allclose(sigma_from_unit(u), spins, atol=1e-14)
    # Turn one spin: the driven weight changes by the same factor as the Boltzmann weight.
    turned = spins.copy()
    turned[0] = np.sqrt(dim) * rng.permutation(u[0])
    change = -(_sigma_energy(couplings, fields, turned) - energy)
    radius = driven_radius(dim)
    s, other = radius * u, radius * unit_from_sigma(turned)
    theta = driven_fields(fields)[0] + driven_couplings(couplings, dim=dim)[0] @ s
    assert abs((other[0] - s[0]) @ theta - change) < 1e-9


def test_driven_mean_is_the_exact_one():
    field = np.array([0.3, -1.0, 2.0, 0.5, 0.0])
    exact = unit_from_sigma(one_spin(field, beta=0.7).magnetization[0])
    radius, drive = driven_radius(5), driven_fields(field)
    size = np.linalg.norm(drive)
    mean = mean_alignment(0.7 * radius * size, dim=5) * drive / size
    np.testing.assert_allclose(mean, exact, atol=1e-12)


def test_only_the_pair_counts_in_an_exact_system():
    couplings, fields, _, _ = _draw(0, 2, 4)
    whole = two_spins(couplings, fields=fields, beta=0.4)
    pair = two_spins(ordered_couplings(pair_couplings(couplings)), fields=fields, beta=0.4)
    np.testing.assert_allclose(whole.magnetization, pair.magnetization, atol=1e-13)
    constant = 0.4 * 4 * np.trace(couplings)
    assert abs(whole.log_partition - pair.log_partition - constant) < 1e-12


def test_tensors_keep_type_and_gradient():
    couplings = torch.rand(2, 3, 3, requires_grad=True)
    pair = pair_couplings(couplings)
    np.testing.assert_allclose(
        pair.detach().numpy(), pair_couplings(couplings.detach().numpy()), atol=1e-6
    )
    (slope,) = torch.autograd.grad(pair[0, 0, 1], couplings)
    assert pair.dtype == torch.float32
    assert slope[0, 0, 1] == slope[0, 1, 0] == 1
    assert slope.sum() == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pair_couplings(np.ones((2, 3))), ValueError, "couplings"),
        (lambda: ordered_couplings(torch.ones(2, 3)), ValueError, "pair"),
        (lambda: unit_from_sigma(np.array(1.0)), ValueError, "vectors"),
        (lambda: unit_from_sigma(np.array([np.nan])), ValueError, "vectors"),
        (lambda: driven_radius(2), ValueError, "dim"),
        (lambda: driven_fields(np.ones(2)), ValueError, "dim"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
