"""Bags of digits: what is drawn, models of equal size, batched training against plain training."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from compendium.c19_hopfield_layer.study import (
    BATCH,
    CURVE,
    FEATURES,
    PARAMETERS,
    PARTS,
    POOLINGS,
    SIZE,
    TARGET,
    BagClassifier,
    draw_bags,
    inspect,
    split_digits,
    train_bags,
)
from compendium.common.classifiers import parameter_count
from compendium.common.images import digit_labels, digits
from spinformer.core.random import torch_generator


def test_bags_follow_their_rule_and_share_no_image():
    parts = split_digits(3)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(digits())))
    kept = {part: {tuple(row) for row in digits()[parts[part]]} for part in PARTS}
    known = {tuple(row): kind for row, kind in zip(digits(), digit_labels(), strict=True)}
    for part in PARTS:
        needle = draw_bags(40, rule="needle", part=part, seed=3)
        nines = (needle.classes == TARGET).sum(1)
        assert nines.tolist() == needle.labels.tolist() == [0.0, 1.0] * 20
        assert len(set((needle.classes == TARGET).nonzero()[:, 1].tolist())) > 5
        most = draw_bags(200, rule="majority", part=part, seed=3)
        wanted = (most.classes >= 5).double().mean(1) > 0.5
        assert torch.equal(most.labels > 0, wanted)
        assert 60 < float(most.labels.sum()) < 140
        for bags in (needle, most):
            assert bags.images.shape[1:] == (SIZE, 64)
            rows = bags.images[:10].flatten(0, 1).double().numpy()
            assert {tuple(row) for row in rows} <= kept[part]
            assert [known[tuple(row)] for row in rows] == bags.classes[:10].flatten().tolist()


def test_every_pooling_has_as_many_parameters():
    one_unit = 64 + 1 + FEATURES
    for pooling in POOLINGS:
        assert abs(parameter_count(BagClassifier(pooling)) - PARAMETERS) <= one_unit / 2


@pytest.mark.parametrize("pooling", ["gated", "hopfield, rest"])
def test_a_batched_training_is_a_training(pooling, monkeypatch):
    """One model, torch's own Adam, a loop; no vmap."""
    monkeypatch.setattr("compendium.c19_hopfield_layer.study.SHARPNESS", (1.0,))
    seed, rate = 5, 1e-2
    torch.manual_seed(seed)
    model = BagClassifier(pooling)
    data = {part: draw_bags(40, rule="needle", part=part, seed=seed) for part in PARTS}
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    order = torch_generator(seed)
    loss = nn.functional.binary_cross_entropy_with_logits
    best = (math.inf, math.nan)
    for _ in range(5):
        chosen = torch.randint(40, (BATCH,), generator=order)
        optimizer.zero_grad()
        train = data["train"]
        loss(model(train.images[chosen]), train.labels[chosen]).backward()
        optimizer.step()
        with torch.no_grad():
            now, then = (
                float(loss(model(data[part].images), data[part].labels)) for part in PARTS[1:]
            )
        best = min(best, (now, then))
    found = train_bags(
        pooling, rule="needle", bags=40, seeds=[4, seed], steps=5, held=40, rates=(rate,)
    )
    assert float(found.loss[1]) == pytest.approx(best[1], abs=1e-4)
    with torch.no_grad():
        test = data["test"]
        again = loss(found.models[1](test.images), test.labels)
    assert float(again) == pytest.approx(float(found.loss[1]), abs=1e-4)


def test_inspection_against_numbers_by_hand():
    torch.manual_seed(0)
    model, bags = BagClassifier("static"), draw_bags(20, rule="needle", part="test", seed=0)
    look = inspect(model, bags)
    features = model.encoder(bags.images).detach().numpy()
    beta = float(model.pool.beta.detach()[0])
    query = model.pool.pooled_queries.detach().numpy()[0]
    heats, found, entries = [], [], []
    for keys, kinds in zip(features, bags.classes.numpy(), strict=True):
        heats.append(beta * np.linalg.eigvalsh(np.cov(keys.T, bias=True)).max())
        weights = np.exp(beta * keys @ query)
        weights /= weights.sum()
        entries.append(1 + np.sum(np.cumsum(np.sort(weights)[::-1]) < 0.9))
        if (kinds == TARGET).any():
            found.append(kinds[weights.argmax()] == TARGET)
    assert look["heat"] == pytest.approx(np.median(heats), rel=0.02)
    assert sorted(heats)[9] * 0.999 <= look["heat"] <= sorted(heats)[10] * 1.001
    assert look["located"] == pytest.approx(np.mean(found))
    assert look["entries"] == pytest.approx(np.mean(entries))
    assert look["beta"] == pytest.approx(FEATURES**-0.5)
    resting = inspect(BagClassifier("static, rest"), bags)
    assert 0.9 < resting["converged"] <= 1.0
    assert resting["hops"] >= 1.0
    assert math.isnan(inspect(BagClassifier("max"), bags)["entries"])


def test_the_stored_table_is_what_the_code_gives():
    """Two seeds of one unit again; rounding is amplified, so within a few bags of 200."""
    table = CURVE.read()
    chosen = (table["rule"] == "needle") & (table["bags"] == 100) & (table["pooling"] == "mean")
    found = train_bags("mean", rule="needle", bags=100, seeds=[0, 1])
    np.testing.assert_allclose(found.accuracy.numpy(), table["accuracy"][chosen][:2], atol=0.025)
    np.testing.assert_allclose(found.loss.numpy(), table["loss"][chosen][:2], atol=0.01)
    assert len(table["seed"]) == 10 * len(CURVE.units)
