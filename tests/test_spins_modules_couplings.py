"""Field-dependent couplings: the two-term formula against enumeration, exact pairs, autograd."""

import itertools

import pytest
import torch
from hypothesis import given, settings, strategies as st

from compendium.c23_anatomy.study import autograd_response, softmax_couplings, softmax_response
from spinformer.spins.module import response_attention


def symmetrize(matrix):
    return (matrix + matrix.mT) / 2


def _draw(sites, dim, seed, batch=()):
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randn(*batch, sites, dim, generator=generator, dtype=torch.float64)
    bilinear = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return fields / dim**0.5, bilinear / dim**0.5


def _ising_states(sites):
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=sites)), dtype=torch.float64)


def _ising_log_weights(fields, couplings, beta):
    """−βE of every state for one-dimensional spins; fields (N, 1)."""
    states = _ising_states(fields.shape[0])
    pairs = torch.einsum("si,ij,sj->s", states, couplings, states)
    return beta * (pairs + states @ fields[:, 0])


@pytest.mark.parametrize("mask_diagonal", [True, False])
@pytest.mark.parametrize("beta", [0.3, 1.5])
@pytest.mark.claim("B5")
def test_two_terms_are_the_gradient_of_the_exact_free_energy(mask_diagonal, beta):
    """D = 1, five sites: −dF/dh by autograd through the sum over all states, to 1e-12."""
    fields, bilinear = _draw(5, 1, seed=4)
    options = {"scale": 3.0, "strength": 0.8, "mask_diagonal": mask_diagonal}

    def couplings_of(h):
        return softmax_couplings(h, bilinear=bilinear, **options)

    assert bool((couplings_of(fields).diagonal() == 0).all()) == mask_diagonal
    probe = fields.clone().requires_grad_()
    log_z = _ising_log_weights(probe, couplings_of(probe), beta).logsumexp(0)
    (want,) = torch.autograd.grad(log_z / beta, probe)
    states = _ising_states(5)
    p = _ising_log_weights(fields, symmetrize(couplings_of(fields)), beta).softmax(0)
    correlation = torch.einsum("s,si,sj->ij", p, states, states)
    mean = (p @ states)[:, None]
    response = autograd_response(fields, couplings_of, correlation=correlation)
    assert response.abs().max() > 1e-3
    torch.testing.assert_close(mean + response, want, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    sites=st.integers(2, 9),
    dim=st.integers(1, 7),
    scale=st.floats(0.0, 30.0),
    strength=st.floats(0.01, 3.0),
    seed=st.integers(0, 10_000),
    mask_diagonal=st.booleans(),
)
@pytest.mark.claim("B6")
def test_closed_form_equals_autograd(sites, dim, scale, strength, seed, mask_diagonal):
    fields, bilinear = _draw(sites, dim, seed, batch=(2,))
    options = {"scale": scale, "strength": strength, "mask_diagonal": mask_diagonal}
    couplings = softmax_couplings(fields, bilinear=bilinear, **options)
    torch.testing.assert_close(couplings.sum(-1), torch.full((2, sites), strength).double())
    correlation = symmetrize(torch.randn(2, sites, sites, dtype=torch.float64))
    given = {"couplings": couplings, "correlation": correlation}
    given |= {"scale": scale, "strength": strength}
    closed = softmax_response(fields, bilinear=bilinear, **given)

    def couplings_of(h):
        return softmax_couplings(h, bilinear=bilinear, **options)

    automatic = autograd_response(fields, couplings_of, correlation=correlation)
    torch.testing.assert_close(closed, automatic, rtol=1e-12, atol=1e-12 * (1 + scale))
    rows = response_attention(couplings, correlation=correlation, coupling_strength=strength).sum(
        -1
    )
    assert rows.abs().max() < 1e-13 * (1 + strength)
