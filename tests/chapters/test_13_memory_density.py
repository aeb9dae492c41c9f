"""What the numbers in the stored tables of chapter 13 mean."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from known_memories import normal
from open_cells import run_open_cells
from scipy.special import ndtr

from compendium.c13_memory_density import study
from compendium.common.images import digits
from spinformer.hopfield.density import (
    fit_em,
    log_partition,
    log_prob,
    log_weights,
    loss,
    loss_gradient,
)


@pytest.mark.nightly
def test_rows_are_the_definitions():
    exact, near, *longer = study.held_out_table.rows(half=3.0, shift=0.5, seed=2)
    assert [row["sweeps"] for row in (exact, near, *longer)] == [0, 1, 4, 16]
    # CD-1 stays near the cluster means, whose two bells then have the weights of their norms.
    means = torch.tensor([[3.5, 0.0], [-2.5, 0.0]], dtype=torch.float64)
    noise = torch.randn(2000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(502))
    data = (means[torch.arange(2000) % 2] + noise)[1000:]

    def log_density(weights):
        scores = weights.log_softmax(0) - 0.5 * torch.cdist(data, means) ** 2
        return float(torch.logsumexp(scores, 1).mean())

    lost = log_density(torch.zeros(2)) - log_density(0.5 * means.square().sum(1))
    assert near["excess"] == pytest.approx(lost, abs=0.6)
    assert 0.0 < exact["excess"] < near["excess"]
    found, train, test = study.learn_digits("raw", seed=1)
    assert (len(train), len(test)) == (1200, 597)
    assert torch.cat([train, test]).sum() == pytest.approx(digits().sum())
    row = study.digits_table.rows(pictures="raw", seed=1)[1]
    learned, _ = found["cd"]
    weights = log_weights(learned, beta=5.0).exp()
    nearest = ((train[:, None] - learned) ** 2).sum(-1).argmin(1)
    counts = np.bincount(nearest.numpy(), minlength=20)
    free = torch.as_tensor((counts + 0.5) / 1210)
    second = 5.0 * weights[:, None] * learned
    step = study.contrastive_gradient(
        learned, data=train, beta=5.0, steps=10, seed=torch.Generator().manual_seed(721)
    )
    patterns = learned.clone().requires_grad_()
    loss(patterns, data=train, beta=5.0).backward()
    wanted = {
        "share": counts.max() / 1200,
        "weight": float(weights.max()),
        "effective": float((-(weights * weights.log()).sum()).exp()),
        "norms": float(learned.norm(dim=1).std()),
        "cd_10": float((step - patterns.grad).norm() / second.norm()),
    }
    for name, logits in (("loss", 2.5 * learned.square().sum(1)), ("free", free.log())):
        mixture = study.free_mixture(learned, logits=logits, beta=5.0)
        wanted[name] = -float(mixture.log_prob(test).mean())
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-9)
    assert (study.shuffled_digits("equal norm", 0).norm(dim=1) - 5.0).abs().max() < 1e-12


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.claim("A12")
def test_exact_likelihood_beats_cd1_where_radii_differ(seed):
    means = torch.tensor([[2.0, 0.0], [-4.0, 0.0]], dtype=torch.float64)
    train, held_out = (means[torch.arange(4000) % 2] + normal(seed, 4000, 2)).split(2000)
    exact = fit_em(means, data=train, max_steps=3000, tolerance=1e-12).patterns
    cd = study.contrastive_path(means, data=train, rate=0.3, steps=200, seed=seed)[-1]
    gain = log_prob(exact, states=held_out) - log_prob(cd, states=held_out)
    assert float(gain.mean()) > max(1.0, 5 * float(gain.std()) / math.sqrt(2000))
    # CD-1 sits at the cluster means; its weights are then wrong by the gap of the norms.
    torch.testing.assert_close(cd, means, atol=0.25, rtol=0)
    assert float(log_weights(cd)[1]) > -0.02
    # Exact learning obeys w_i‖x_i‖ = ½ r_i instead: nearly equal norms, t₂² − t₁² = 2 ln(w₂/w₁),
    # so weights near 2 : 4 and norms near ½(2 + 4) = 3.
    weights = log_weights(exact).exp()
    norms = exact.norm(dim=1)
    assert abs(float(weights[0]) - 1 / 3) < 0.05
    assert ((norms - 3).abs() < 0.3).all()


PATTERNS = 0.7 * normal(8, 3, 2)
DATA = normal(9, 40, 2) + 0.5


def test_a_path_takes_the_rate_the_sweeps_and_the_seed_that_it_is_given():
    generator = torch.Generator().manual_seed(3)
    wanted = PATTERNS
    for share in (1.0, 0.5):
        slope = study.contrastive_gradient(wanted, data=DATA, beta=2.0, steps=4, seed=generator)
        wanted = wanted - 0.1 * share * slope
    path = partial(
        study.contrastive_path,
        PATTERNS,
        data=DATA,
        beta=2.0,
        rate=0.2,
        steps=2,
        sweeps=4,
        annealed=True,
    )
    _, _, last = path(seed=3)
    torch.testing.assert_close(last, wanted, rtol=0, atol=1e-14)
    assert not torch.equal(path(seed=4)[-1], wanted)


def test_cd_gradient_approaches_the_exact_one_where_the_chain_mixes():
    exact = loss_gradient(PATTERNS, data=DATA)
    many = DATA.repeat(2000, 1)
    short = study.contrastive_gradient(PATTERNS, data=many, steps=1, seed=4)
    long = study.contrastive_gradient(PATTERNS, data=many, steps=8, seed=4)
    assert float((long - exact).abs().max()) < 0.01
    assert float((short - exact).abs().max()) > 0.03


@pytest.mark.parametrize(("left", "right", "beta"), [(1.0, 1.0, 2.0), (0.7, 1.8, 1.0)])
def test_pair_mixing_is_the_decay_of_the_gibbs_chain(left, right, beta):
    patterns = torch.tensor([[left, 0.0], [-right, 0.0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    count = 100_000
    start = patterns[:1] + normal(6, count, 2) / math.sqrt(beta)
    weight = float(log_weights(patterns, beta=beta)[0].exp())
    for sweeps in (1, 3):
        after = study.swept(start, patterns=patterns, beta=beta, steps=sweeps, seed=generator)[:, 0]
        # The mean is linear in the share p of the first pattern, p − w = λ^sweeps (1 − w).
        share = weight + study.pair_mixing(patterns, beta=beta) ** sweeps * (1 - weight)
        expected = share * left - (1 - share) * right
        assert abs(float(after.mean()) - expected) < 4 * float(after.std()) / math.sqrt(count)
    assert study.pair_mixing(torch.zeros_like(patterns)) == pytest.approx(0.0, abs=1e-12)
    # One far, one near the origin: hops to the far one happen at Φ(0.3), back never.
    patterns = torch.tensor([[2e3], [0.3]], dtype=torch.float64)
    assert study.pair_mixing(patterns) == pytest.approx(1.0 - float(ndtr(0.3)), abs=1e-6)


def test_the_open_cells_do_what_the_package_does():
    """Z, the end of exact learning, the mean contrastive step, and the spreads of the norms."""
    cells = run_open_cells("13_memory_density")
    closed = float(log_partition(torch.as_tensor(cells["two_on_a_line"])))
    assert cells["log_z_from_grid"] == pytest.approx(closed, abs=1e-9)
    assert cells["log_z_in_closed_form"] == pytest.approx(closed, abs=1e-12)
    means = torch.as_tensor(cells["cluster_means"])
    cloud = torch.as_tensor(cells["cloud"])
    exact = fit_em(means, data=cloud, max_steps=3000, tolerance=1e-12).patterns
    np.testing.assert_allclose(cells["by_exact_steps"], exact, atol=1e-4)
    # Near patterns, between which the chain crosses: steps averaged over many samples of the cloud.
    many = DATA.repeat(2000, 1)
    random = np.random.default_rng(5)
    step = cells["contrastive_step"](PATTERNS.numpy(), many.numpy(), random, rate=1.0)
    slope = study.contrastive_gradient(PATTERNS, data=many, steps=1, seed=4)
    np.testing.assert_allclose(step - PATTERNS.numpy(), -slope, atol=0.01)
    spread = {
        name: np.linalg.norm(cells[name], axis=1).std(ddof=1)
        for name in ("cluster_means", "by_exact_steps", "by_contrastive_steps")
    }
    assert spread["by_exact_steps"] < 0.1 * spread["cluster_means"]
    assert spread["by_contrastive_steps"] > 0.8 * spread["cluster_means"]
