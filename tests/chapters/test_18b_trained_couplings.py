"""Participation ratios: known matrices, sampled Gaussian products, couplings written out."""

import math

import numpy as np
import pytest
import torch
from minilm_model import installed_model
from open_cells import run_open_cells

from compendium.c18b_trained_couplings import bottleneck, study
from spinformer.language.text import sample_text, text_windows
from spinformer.language.traces import trace_layers


@pytest.mark.claim("A24")
def test_participation_ratios_are_those_of_known_matrices():
    # By traces, without singular values.
    matrices = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = (matrices.mT @ matrices).numpy()
    traces = np.trace(gram, axis1=1, axis2=2) ** 2 / np.trace(gram @ gram, axis1=1, axis2=2)
    np.testing.assert_allclose(study.participation_ratio(matrices), traces, rtol=1e-12)
    assert study.participation_ratio(torch.ones(6, 6)) == pytest.approx(1.0)
    assert study.participation_ratio(torch.diag(torch.tensor([2.0, 1.0]))) == pytest.approx(25 / 17)
    # A uniform matrix is at 0, and a Gaussian product at 1.
    rng = np.random.default_rng(1)
    product = torch.from_numpy(rng.normal(size=(4, 200, 16)) @ rng.normal(size=(4, 16, 200)))
    assert study.places(product, rank=16).mean() == pytest.approx(1.0, abs=0.03)
    full = torch.from_numpy(rng.normal(size=(4, 200, 200)))
    assert study.places(full, rank=None).mean() == pytest.approx(1.0, abs=0.03)
    assert study.places(torch.ones(1, 9, 9), rank=3) == pytest.approx(0.0)


def test_centred_scores_lose_the_means_of_queries_and_keys():
    scores = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    added = scores + torch.randn(2, 6, 1) + torch.randn(2, 1, 6)
    both = "queries and keys"
    torch.testing.assert_close(study.centred(added, both), study.centred(scores, both))
    # What attention sees of a score is what is left without the means of queries.
    by_query = study.centred(added, "queries")
    torch.testing.assert_close(by_query.softmax(-1), added.softmax(-1))
    assert by_query.mean(-2).abs().max() > 0.1


def test_couplings_of_a_head_give_its_scores():
    encoder = installed_model()
    model = encoder.model
    trace = trace_layers(model, text_windows(encoder, sample_text(), 16)[:1])[2]
    scores = study.score_couplings(trace)
    states = trace.inputs[0]
    couplings = study.weight_couplings(model, 2)
    by_weights = trace.beta * torch.einsum("id,hde,je->hij", states, couplings, states)
    # Biases add numbers to queries and keys alone, which double centring removes.
    both = "queries and keys"
    torch.testing.assert_close(
        study.centred(by_weights, both), study.centred(scores, both), atol=1e-3, rtol=1e-3
    )


@pytest.mark.claim("A28")
def test_tokens_are_found_as_nearest_neighbours():
    states = torch.randn(30, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    maps = torch.stack([torch.eye(12), torch.zeros(12, 12)]).double()
    maps[1, 0, 0] = 1.0
    found = bottleneck.found_fraction(states, maps=maps, noise=0.05, seed=0, draws=2)
    assert found[0] == 1.0
    # One component only: written out for the same noise.
    generator = torch.Generator().manual_seed(0)
    spread = math.sqrt(((states - states.mean(0)) ** 2).sum(1).mean())
    right = []
    for _ in range(2):
        drawn = torch.randn(states.shape, generator=generator, dtype=torch.float64)
        moved = states[:, 0] + 0.05 * spread / math.sqrt(12) * drawn[:, 0]
        distance = (moved[:, None] - states[None, :, 0]).abs()
        right += [int(row.argmin()) == place for place, row in enumerate(distance)]
    assert found[1] == pytest.approx(np.mean(right))
    assert found[1] < 1.0
    # No noise finds all, and much noise about one in thirty.
    assert bottleneck.found_fraction(states, maps=maps, noise=0.0, seed=0).min() == 1.0
    lost = bottleneck.found_fraction(states, maps=maps[:1], noise=1e3, seed=0, draws=20)
    assert lost[0] == pytest.approx(1 / 30, abs=0.03)


def test_key_maps_give_the_keys_of_the_model():
    encoder = installed_model()
    model = encoder.model
    trace = trace_layers(model, text_windows(encoder, sample_text(), 16)[:1])[1]
    keys = trace.inputs[0] @ bottleneck.key_maps(model, 1).mT
    centred = trace.keys[0] - trace.keys[0].mean(-2, keepdim=True)
    torch.testing.assert_close(keys - keys.mean(-2, keepdim=True), centred, atol=1e-6, rtol=1e-6)


def test_open_cells_give_the_ratio_of_gaussian_weights():
    cells = run_open_cells("18b_trained_couplings")
    assert cells["expected"] == pytest.approx(study.gaussian_ratio(384, 32, 384))
    assert cells["gaussian"] == pytest.approx(cells["expected"], rel=0.03)
    assert cells["uniform"] == pytest.approx(1.0)
    assert 4.5 < cells["memory"] < 5.0
    memory = torch.from_numpy(cells["patterns"].T @ cells["patterns"])
    assert float(study.participation_ratio(memory)) == pytest.approx(cells["memory"])
    assert math.isclose(cells["participation"](np.diag([2.0, 1.0])), 25 / 17)
