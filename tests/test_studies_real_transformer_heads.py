"""Attention statistics of heads and the law of Gaussian logits."""

import numpy as np
import pytest
import torch
from minilm_model import installed_model
from scipy.special import ndtri
from scipy.stats import skew

from compendium.c14b_heads_and_fixed_points import heads, sizes
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.encoder import run_model
from spinformer.language.untrained import example_model


def test_head_statistics_by_hand():
    """k, s and the classes of a small model's heads, against loops over its attention maps."""
    model = example_model(seed=2)
    tokens = torch.arange(18).reshape(2, 9)
    found = heads.head_statistics(model, tokens)
    for layer, trace in enumerate(run_model(model, tokens)):
        for head in range(2):
            entries, spreads, laws = [], [], []
            for queries, keys in zip(trace.queries[:, head], trace.keys[:, head], strict=True):
                for query in queries.numpy():
                    logits = keys.numpy() @ query / np.sqrt(4)
                    weights = np.sort(np.exp(logits) / np.exp(logits).sum())[::-1]
                    entries.append(next(n for n in range(1, 10) if weights[:n].sum() >= 0.9))
                    spreads.append(logits.std())
                    laws.append(max(1.0, 9 * heads.gaussian_fraction(logits.std())))
            median = np.median(entries)
            assert found.entries[layer, head] == median
            assert found.spread[layer, head] == pytest.approx(np.median(spreads), rel=1e-12)
            assert found.classes[layer, head] == 1 + sum(median <= 9 / n for n in (2, 8, 32))
            law = np.median(laws)
            assert found.law_entries[layer, head] == pytest.approx(law, rel=1e-12)
            assert found.law_classes[layer, head] == 1 + sum(law <= 9 / n for n in (2, 8, 32))
    assert found.keys == 9
    assert sum(heads.class_counts(found.classes)) == 4


def test_cumulated_attention_by_hand():
    """Two sequences, two heads: ranked weights of every query, summed and averaged in loops."""
    trace = run_model(example_model(seed=2), torch.arange(12).reshape(2, 6))[1]
    for head, curve in enumerate(heads.cumulated_attention(trace)):
        rows = []
        for queries, keys in zip(trace.queries[:, head], trace.keys[:, head], strict=True):
            for query in queries.numpy():
                weights = np.exp(keys.numpy() @ query / 2)
                rows.append(np.cumsum(np.sort(weights)[::-1]) / weights.sum())
        np.testing.assert_allclose(curve, np.mean(rows, axis=0), rtol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.2816, 2.43, 3.2])
def test_gaussian_law_against_drawn_logits(spread):
    """k/N of 40 rows of 50,000 Gaussian logits: within four standard errors, plus 1/N."""
    generator = torch.Generator().manual_seed(5)
    logits = spread * torch.randn(40, 50_000, generator=generator, dtype=torch.float64)
    fractions = effective_entries(torch.softmax(logits, -1)).double() / logits.shape[1]
    error = float(fractions.std()) / 40**0.5
    law = float(heads.gaussian_fraction(spread))
    assert abs(float(fractions.mean()) - law) < 4 * error + 1 / 50_000


def test_gaussian_law_for_another_mass():
    """Half the weight at spread 0 is half of the entries; at 1 those above 1, a share Φ(−1)."""
    found = heads.gaussian_fraction([0.0, 1.0], mass=0.5)
    np.testing.assert_allclose(found, [0.5, 0.158655], atol=1e-6)


def test_sampled_gaussian_entries_in_two_limits():
    """Two keys: k falls from 2 to 1 at s = ln 9/(√2 · 0.6745) = 2.303; many: Phi(1.2816 - s)."""
    edge = np.log(9) / (np.sqrt(2) * ndtri(0.75))
    assert edge == pytest.approx(2.303, abs=1e-3)
    found = heads.sampled_gaussian_entries(np.array([0.85, 1.15]) * edge, keys=2, draws=4000)
    assert found.tolist() == [2.0, 1.0]
    spread = np.array([0.0, 0.7, 1.5])
    many = heads.sampled_gaussian_entries(spread, keys=20_000, draws=30) / 20_000
    np.testing.assert_allclose(many, heads.gaussian_fraction(spread), atol=0.004)


def test_gaussian_law_puts_the_class_edges_where_stated():
    """Class edges k/N = 1/2, 1/8, 1/32 are spreads 1.2816, 2.4319, 3.1443."""
    for edge, spread in zip((1 / 2, 1 / 8, 1 / 32), (1.28155, 2.43190, 3.14429), strict=True):
        assert ndtri(0.9) - ndtri(edge) == pytest.approx(spread, abs=1e-5)
        assert heads.gaussian_fraction(spread) == pytest.approx(edge, abs=1e-5)


def test_weight_on_the_marks_by_hand():
    """Sums of the first and last weight, query by query."""
    trace = run_model(example_model(seed=2), torch.arange(12).reshape(2, 6))[1]
    expected = np.zeros(2)
    for b in range(2):
        for head in range(2):
            for query in trace.queries[b, head].numpy():
                weights = np.exp(trace.keys[b, head].numpy() @ query / 2)
                expected[head] += (weights[0] + weights[5]) / weights.sum() / 12
    np.testing.assert_allclose(heads.mark_weight(trace), expected, rtol=1e-12)


def test_skewness_by_hand():
    """Against scipy, and 0 for a head that tells no key from another."""
    drawn = np.random.default_rng(0).gamma(2.0, size=(3, 50))
    found = heads.logit_skewness(torch.from_numpy(drawn))
    np.testing.assert_allclose(found, skew(drawn, axis=-1), rtol=1e-12)
    assert heads.logit_skewness(torch.ones(2, 4)).tolist() == [0.0, 0.0]


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


def test_stored_sizes_are_those_of_the_model():
    """The shortest windows of one text and of random tokens, computed anew."""
    model = installed_model()
    for source in ("verse", "random 1"):
        rows = [r for r in sizes.size_rows(model, source, lengths=(32,)) if r["kind"] == "window"]
        for column in ("entries", "spread", "skewness", "even", "odd"):
            stored = sizes.read_sizes(column)[source][0].ravel()
            np.testing.assert_allclose([row[column] for row in rows], stored, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: heads.gaussian_fraction(-1.0), "spread"),
        (lambda: heads.head_medians(torch.ones(3)), "per_query"),
        (lambda: heads.head_medians(torch.ones(0, 2, 3)), "per_query"),
        (lambda: heads.class_counts(np.array([0, 1])), "classes"),
        (lambda: heads.logit_spread(torch.tensor([1.0, np.nan])), "logits"),
        (lambda: sizes.growth_exponents([[1.0, 2.0]], lengths=[3.0, 3.0]), "lengths"),
        (lambda: sizes.growth_exponents([1.0, 2.0, 3.0], lengths=[1.0, 2.0]), "entries"),
        (lambda: sizes.growth_exponents([0.0, 2.0], lengths=[1.0, 2.0]), "entries"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
