"""Matrix-valued couplings of vector spins: which reaction a spin of fixed length feels."""

import numpy as np
import pytest
import torch

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.spins.block_couplings import (
    apply_blocks,
    reaction_matrices,
    solve_block_fixed_point,
)
from spinformer.spins.solvers import solve_fixed_point

DOUBLE = torch.float64


def _system(sites, dim, seed, size=0.5):
    generator = torch.Generator().manual_seed(seed)
    couplings = size * torch.randn(sites, sites, generator=generator, dtype=DOUBLE) / sites**0.5
    # Far from a multiple of an orthogonal matrix: W Wᵀ has eigenvalues from zero to some four.
    channels = torch.randn(dim, dim, generator=generator, dtype=DOUBLE) / dim**0.5
    return (
        couplings,
        channels,
        torch.randn(sites, dim, generator=generator, dtype=DOUBLE) / dim**0.5,
    )


def _blocks(couplings, channels):
    blocks = torch.einsum("ij,ab->iajb", couplings, channels)
    blocks = blocks + blocks.permute(2, 3, 0, 1)
    for i in range(len(couplings)):
        blocks[i, :, i] = 0.0
    return blocks


def test_fields_and_reactions_are_those_of_the_blocks():
    couplings, channels, mean = _system(4, 3, seed=0)
    mean = 0.5 * mean
    blocks = _blocks(couplings, channels)
    given = {"couplings": couplings, "channels": channels}
    torch.testing.assert_close(
        apply_blocks(mean, **given), torch.einsum("iajb,jb->ia", blocks, mean)
    )
    want = torch.zeros(4, 3, 3, dtype=DOUBLE)
    for i in range(4):
        for j in range(4):
            block = blocks[i, :, j]
            want[i] += 1.3 * (1 - mean[j] @ mean[j]) * block @ block.T
    torch.testing.assert_close(reaction_matrices(mean, **given, beta=1.3), want)


@pytest.mark.parametrize("order", [1, 2])
def test_one_in_place_of_a_matrix_is_the_usual_theory(order):
    couplings, _, fields = _system(5, 4, seed=1)
    channels = torch.eye(4, dtype=DOUBLE)
    given = {"fields": fields, "beta": 1.2, "order": order}
    found = solve_block_fixed_point(couplings, channels=channels, **given)
    torch.testing.assert_close(found.value, solve_fixed_point(couplings, **given).value)


def _sampled(couplings, channels, fields, *, beta, chains, sweeps, seed):
    """Means of unit spins by heat bath, all chains at once, and the mean over chains and sweeps."""
    rng = np.random.default_rng(seed)
    blocks = _blocks(couplings, channels).numpy()
    sites, dim = fields.shape
    spins = rng.standard_normal((chains, sites, dim))
    spins /= np.linalg.norm(spins, axis=-1, keepdims=True)
    total = np.zeros((sites, dim))
    for sweep in range(sweeps):
        for i in range(sites):
            local = fields.numpy()[i] + np.einsum("ajb,sjb->sa", blocks[i], spins)
            spins[:, i] = sample_von_mises_fisher(beta * dim * local, seed=rng)
        if sweep >= 20:
            total += spins.mean(0)
    return total / (sweeps - 20)


def test_a_spin_of_fixed_length_feels_the_trace_of_the_reaction():
    """Monte Carlo against three reactions: none, the trace, and the whole matrix, which mixes.

    The matrix is what a Gaussian variable feels; here it is worse than its trace.
    """
    sites, dim = 6, 24
    wrong = {"none": [], "trace": [], "matrix": []}
    for seed in range(2):
        couplings, channels, fields = _system(sites, dim, seed=10 + seed, size=0.6)
        truth = torch.from_numpy(
            _sampled(couplings, channels, fields, beta=1.0, chains=1500, sweeps=120, seed=seed)
        )
        given = {"channels": channels, "fields": fields, "beta": 1.0}
        means = {
            "none": solve_block_fixed_point(couplings, **given, order=1).value,
            "trace": solve_block_fixed_point(couplings, **given).value,
        }
        mean = means["trace"]
        for _ in range(400):
            matrices = reaction_matrices(mean, couplings=couplings, channels=channels, beta=1.0)
            theta = fields + apply_blocks(mean, couplings=couplings, channels=channels)
            theta = theta - (matrices @ mean[..., None])[..., 0]
            gain = 2 / (1 + (1 + 4 * theta.square().sum(-1, keepdim=True)).sqrt())
            mean = 0.5 * mean + 0.5 * gain * theta
        means["matrix"] = mean
        # It does mix channels: a good part of it is not along the spin.
        reaction = (matrices @ mean[..., None])[..., 0]
        along = (reaction * mean).sum(-1, keepdim=True) / mean.square().sum(-1, keepdim=True)
        off = (reaction - along * mean).square().sum() / reaction.square().sum()
        assert 0.2 < off < 0.8
        for name, value in means.items():
            wrong[name].append(float((value - truth).norm() / truth.norm()))
    assert np.mean(wrong["trace"]) < 0.5 * np.mean(wrong["none"]), wrong
    assert np.mean(wrong["trace"]) < 0.5 * np.mean(wrong["matrix"]), wrong
