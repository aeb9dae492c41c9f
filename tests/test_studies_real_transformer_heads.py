"""Attention statistics of heads and the law of Gaussian logits."""

import numpy as np
import pytest
import torch
from minilm_model import installed_model
from scipy.special import ndtr, ndtri

from compendium.c14b_heads_and_fixed_points import sizes
from spinformer.language.encoder import run_model
from spinformer.language.untrained import example_model


def test_sampled_gaussian_entries_in_two_limits():
    """Two keys: k falls from 2 to 1 at s = ln 9/(√2 · 0.6745) = 2.303; many: Phi(1.2816 - s)."""
    edge = np.log(9) / (np.sqrt(2) * ndtri(0.75))
    assert edge == pytest.approx(2.303, abs=1e-3)
    found = sizes.sampled_gaussian_entries(np.array([0.85, 1.15]) * edge, keys=2, draws=4000)
    assert found.tolist() == [2.0, 1.0]
    spread = np.array([0.0, 0.7, 1.5])
    many = sizes.sampled_gaussian_entries(spread, keys=20_000, draws=30) / 20_000
    np.testing.assert_allclose(many, ndtr(1.2816 - spread), atol=0.004)


def test_medians_of_a_small_model_by_hand():
    """k and s of its heads, against loops over its attention maps."""
    for trace in run_model(example_model(seed=2), torch.arange(18).reshape(2, 9)):
        found = sizes.logit_rows(trace.beta * trace.queries @ trace.keys.mT)
        for head in range(2):
            entries, spreads = [], []
            for queries, keys in zip(trace.queries[:, head], trace.keys[:, head], strict=True):
                for query in queries.numpy():
                    logits = keys.numpy() @ query / np.sqrt(4)
                    weights = np.sort(np.exp(logits) / np.exp(logits).sum())[::-1]
                    entries.append(next(n for n in range(1, 10) if weights[:n].sum() >= 0.9))
                    spreads.append(logits.std())
            assert found[head]["entries"] == np.median(entries)
            assert found[head]["spread"] == pytest.approx(np.median(spreads), rel=1e-12)


def test_halves_and_medians_of_logit_rows():
    """Two sequences are the two halves; of one sequence even and odd queries are."""
    logits = torch.zeros(2, 1, 3, 10, dtype=torch.float64)
    logits[1, ..., 0] = 50.0
    found = sizes.logit_rows(logits)[0]
    assert (found["even"], found["odd"], found["entries"]) == (9.0, 1.0, 5.0)
    single = torch.zeros(1, 1, 4, 10, dtype=torch.float64)
    single[0, 0, 1::2, 0] = 50.0
    found = sizes.logit_rows(single)[0]
    assert (found["even"], found["odd"]) == (9.0, 1.0)


def test_growth_exponents_of_power_laws():
    lengths = np.array([32, 64, 128, 256])
    entries = np.stack([3.0 * lengths**0.4, 0.5 * lengths, np.full(4, 7.0)])
    found = sizes.growth_exponents(entries, lengths=lengths)
    np.testing.assert_allclose(found, [0.4, 1.0, 0.0], atol=1e-12)


@pytest.mark.nightly
def test_stored_sizes_are_those_of_the_model():
    """The shortest windows of random tokens, computed anew."""
    model = installed_model()
    rows = [r for r in sizes.size_rows(model, "random 1", lengths=(32,)) if r["kind"] == "window"]
    for column in ("entries", "spread", "skewness", "even", "odd"):
        stored = sizes.read_sizes(column)["random 1"][0].ravel()
        np.testing.assert_allclose([row[column] for row in rows], stored, rtol=1e-4, atol=1e-4)
