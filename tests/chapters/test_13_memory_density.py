"""What the numbers in the stored tables of chapter 13 mean."""

import numpy as np
import pytest
import torch

from compendium.c13_memory_density.study import (
    DIGITS,
    HELD_OUT,
    digit_pictures,
    free_mixture,
    learn_digits,
)
from spinformer.hopfield.density import contrastive_gradient, log_weights, loss


@pytest.mark.nightly
def test_rows_are_the_definitions():
    exact, near, *longer = HELD_OUT.rows(half=3.0, shift=0.5, seed=2)
    assert [row["sweeps"] for row in (exact, near, *longer)] == [0, 1, 4, 16]
    # CD-1 stays near the cluster means, whose two bells then have the weights of their norms.
    means = torch.tensor([[3.5, 0.0], [-2.5, 0.0]], dtype=torch.float64)
    noise = torch.randn(2000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(502))
    data = (means[torch.arange(2000) % 2] + noise)[1000:]
    tied, equal = (
        torch.logsumexp(weights.log_softmax(0) - 0.5 * torch.cdist(data, means) ** 2, 1).mean()
        for weights in (0.5 * means.square().sum(1), torch.zeros(2))
    )
    assert near["excess"] == pytest.approx(float(equal - tied), abs=0.6)
    assert 0.0 < exact["excess"] < near["excess"]
    found, train, test = learn_digits("raw", seed=1)
    assert (len(train), len(test)) == (1200, 597)
    assert torch.cat([train, test]).sum() == pytest.approx(float(digit_pictures("raw").sum()))
    row = DIGITS.rows(pictures="raw", seed=1)[1]
    learned = found["cd"].patterns
    weights = log_weights(learned, beta=5.0).exp()
    nearest = ((train[:, None] - learned) ** 2).sum(-1).argmin(1)
    counts = np.bincount(nearest.numpy(), minlength=20)
    free = torch.as_tensor((counts + 0.5) / 1210)
    second = 5.0 * weights[:, None] * learned
    step = contrastive_gradient(
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
        mixture = free_mixture(learned, logits=logits, beta=5.0)
        wanted[name] = -float(mixture.log_prob(test).mean())
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-9)
    normal = digit_pictures("equal norm")
    torch.testing.assert_close(normal.norm(dim=1), torch.full((1797,), 5.0, dtype=torch.float64))
