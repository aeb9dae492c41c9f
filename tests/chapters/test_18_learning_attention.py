"""Scale of the scores as start and rate, temperatures that training cannot change, open cells."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from torch.nn import functional

from compendium.c18_learning_attention import study
from spinformer.hopfield.continuous import attention_weights


def _trained(scale: float, kind: str) -> torch.Tensor:
    """Logits of a layer whose maps are given the start and the rate that make up for its scale."""
    generator = torch.Generator().manual_seed(3)
    rotations = torch.linalg.qr(torch.randn(2, 16, 16, generator=generator))[0]
    layer = study._Layer(np.array([scale]), 2, norm="none", width=8, heads=2, generator=generator)
    power = {"SGD": 1.0, "Adam": 0.5}[kind]
    with torch.no_grad():
        for weights in (layer.query, layer.key):
            weights /= math.sqrt(scale)
    maps = {"params": [layer.query, layer.key], "lr": 0.02 / scale**power}
    others = {"params": [layer.value, layer.output], "lr": 0.02}
    optimizer = getattr(torch.optim, kind)([maps, others])
    for _ in range(30):
        episodes = study._episodes(rotations, 8, pairs=4, generator=generator)
        logits, _ = layer(episodes)
        optimizer.zero_grad()
        wanted = episodes.labels[:, :, 0].flatten()
        functional.cross_entropy(logits.flatten(0, 1), wanted).backward()
        optimizer.step()
    return logits.detach()


@pytest.mark.claim("A25")
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_scale_of_the_scores_is_a_start_and_a_rate(kind):
    torch.testing.assert_close(_trained(4.0, kind), _trained(1.0, kind), atol=2e-3, rtol=2e-3)


@pytest.mark.claim("A25b")
def test_normalized_queries_and_keys_keep_the_temperature():
    scales = np.array([0.25, 4.0])
    options = {"seed": 5, "width": 8, "pairs": 4, "runs": 2, "steps": 40, "rate": 0.02}
    kept = study.train_retrieval(scales, norm="queries and keys", **options)
    np.testing.assert_allclose(kept.beta, [[0.25] * 2, [4.0] * 2], rtol=1e-3)
    assert study.temperature_change(scales, kept.beta) == pytest.approx([0.0, 0.0], abs=1e-3)
    moved = study.train_retrieval(scales, norm="none", **options)
    assert (moved.beta[0] > 0.3).all()
    # By hand: ln 2 and ln 1/2 at the two scales.
    doubled = np.array([[0.5], [2.0]])
    assert study.temperature_change(scales, doubled) == pytest.approx([math.log(2.0)])


@pytest.mark.claim("A20")
def test_heads_are_attention_of_their_own_on_parts_of_the_width():
    generator = torch.Generator().manual_seed(1)
    rotations = torch.linalg.qr(torch.randn(1, 16, 16, generator=generator))[0]
    episodes = study._episodes(rotations, 5, pairs=6, generator=generator)
    layer = study._Layer(np.array([2.0]), 1, norm="inputs", width=12, heads=3, generator=generator)
    logits, _ = layer(episodes)
    expected = torch.zeros(5, study.LABELS)
    for place in range(5):
        keys = functional.layer_norm(episodes.addresses[0, place], (16,)) @ layer.key[0]
        query = functional.layer_norm(episodes.queries[0, place], (16,)) @ layer.query[0]
        values = layer.value[0][episodes.labels[0, place]]
        for head in range(3):
            part = slice(4 * head, 4 * head + 4)
            weights = attention_weights(keys[:, part], states=query[part], beta=1.0)
            expected[place] += weights @ values[:, part] @ layer.output[0, part]
    torch.testing.assert_close(logits[0], expected, atol=1e-4, rtol=1e-4)


def test_every_scale_sees_the_same_starts_and_episodes():
    result = study.train_retrieval(np.array([1.0, 1.0]), seed=2, width=8, runs=2, steps=10)
    np.testing.assert_array_equal(result.beta[0], result.beta[1])
    assert result.beta[0, 0] != result.beta[0, 1]


def test_open_cells_show_the_identity():
    cells = run_open_cells("18_learning_attention")
    assert cells["deviation"] < 1e-12
    first = cells["high_temperature"][0].item()
    generator = torch.Generator().manual_seed(0)
    query, key = (
        0.4 * torch.randn(8, 4, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    inputs = torch.randn(16, 8, generator=generator, dtype=torch.float64)
    weights = attention_weights(inputs @ key, states=inputs @ query, beta=0.5)
    assert first == pytest.approx(-weights.diagonal().log().mean().item())
    ends = [cells[name][-20:].mean().item() for name in ("uncompensated", "high_temperature")]
    assert abs(ends[0] - ends[1]) > 0.01


def test_lines_of_other_trainings_compare_neighbouring_scales_and_numbers_of_heads(monkeypatch):
    """With trainings of known lengths: time ∝ 1/scale, and H heads learn H times as fast."""
    asked = []

    def training(scales, *, seed, width, pairs, optimizer, rate, norm="none", heads=1, **lengths):
        asked.append((seed, pairs, optimizer, rate, norm))
        steps = 2.0**20 / np.asarray(scales)[:, None] / heads * (width / 8) * np.ones(study.RUNS)
        return SimpleNamespace(steps=steps)

    monkeypatch.setattr(study, "train_retrieval", training)
    chosen = {"data": 3, "width": 8, "pairs": 5, "optimizer": "SGD", "rate": 0.7}
    (line,) = study.confirm_a25.rows(**chosen, norm="queries and keys")
    scales = study.scales_of(8)
    assert line["value"] == pytest.approx(np.log2(scales[2] / scales[3]))
    assert line["runs"] == study.RUNS
    assert asked == [(3, 5, "SGD", 0.7, "queries and keys")]
    rows = study.settings_a20.rows(**chosen)
    assert set(asked[1:]) == {(3, 5, "SGD", 0.7, "none")}
    for row in rows:
        # As many channels for each head take H times as long.
        gain = np.log2(row["heads"]) if row["kept"] == "all heads" else 0.0
        assert row["value"] == pytest.approx(gain)
    lines = {(row["heads"], row["kept"], row["scale"]) for row in rows}
    assert lines == set(product((2, 4), ("all heads", "each head"), (1.0, 16.0)))
    assert len(rows) == len(lines)
