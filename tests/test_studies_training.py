"""Data, parameter counts, probes and the training loop of stacks of spin systems."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from spinformer.studies.classifiers import (
    TokenClassifier,
    matched_transformer,
    parameter_count,
)
from spinformer.studies.training import accuracy, digits_as_tokens, probe_layers, train


@pytest.fixture(scope="module")
def data():
    return digits_as_tokens(seed=1)


def _spins(seed=0, **options):
    torch.manual_seed(seed)
    return TokenClassifier("spins", dim=16, heads=2, depth=2, **options)


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_tokens_are_the_patches_of_the_images(patch):
    data = digits_as_tokens(patch=patch, seed=3, dtype=torch.float64)
    images = load_digits().images[np.random.default_rng(0).integers(0, 1797, 1)[0]]
    side = 8 // patch
    together = torch.cat([data.train_tokens, data.test_tokens])
    assert together.shape == (1797, side**2, patch**2)
    assert abs(float(data.train_tokens.mean())) < 1e-12
    assert abs(float(data.train_tokens.std()) - 1) < 1e-12
    # One image, cut by slices, must be among the tokens once the scaling is undone.
    cut = np.stack(
        [
            images[r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].ravel()
            for r in range(side)
            for c in range(side)
        ]
    )
    low, high = float(together.min()), float(together.max())
    restored = (together - low) / (high - low) * 16
    gaps = (restored - torch.tensor(cut)).abs().amax((-1, -2))
    assert float(gaps.min()) < 1e-9
    assert len(torch.cat([data.train_labels, data.test_labels])) == 1797


def test_seed_decides_the_split(data):
    again, other = digits_as_tokens(seed=1), digits_as_tokens(seed=2)
    assert torch.equal(again.test_tokens, data.test_tokens)
    assert not torch.equal(other.test_labels, data.test_labels)


def test_matched_transformer_has_as_many_parameters():
    spins = TokenClassifier("spins", dim=32, heads=4, depth=3)
    transformer, hidden = matched_transformer(spins, dim=24, heads=4)
    assert transformer.layers[0].linear1.out_features == hidden
    assert abs(parameter_count(transformer) / parameter_count(spins) - 1) < 0.01
    with pytest.raises(ValueError, match="dim must be small enough"):
        matched_transformer(spins, dim=40, heads=4)


def test_probes_against_plain_loops(data):
    model = _spins()
    tokens, labels = data.test_tokens[:40], data.test_labels[:40]
    probe = probe_layers(model, tokens, labels=labels)[0]
    with torch.no_grad():
        before = model.embed(tokens)
        after, parts = model.layers[0](before, return_parts=True)
    spins = (parts.residual + parts.mixing + parts.onsager).reshape(40, 16, 2, 8) / 8**0.5
    assert abs(probe.polarization - float(spins.norm(dim=-1).mean())) < 1e-5
    pairs = [(i, j) for i in range(16) for j in range(16) if i != j]
    plain = np.mean([parts.correlation[:, :, i, j].mean() for i, j in pairs])
    means = np.mean([(spins[:, i] * spins[:, j]).sum(-1).mean() for i, j in pairs])
    assert abs(probe.correlation - plain) < 1e-5
    assert abs(probe.connected - (plain - means)) < 1e-5
    cosine = torch.nn.functional.cosine_similarity
    similar = np.mean([cosine(after[:, i], after[:, j], dim=-1).mean() for i, j in pairs])
    assert abs(probe.similarity - similar) < 1e-5
    pooled = after.mean(1).numpy()
    within = sum(
        ((pooled[labels == k] - pooled[labels == k].mean(0)) ** 2).sum() for k in range(10)
    )
    total = ((pooled - pooled.mean(0)) ** 2).sum()
    assert abs(probe.separation - (1 - within / total)) < 1e-4
    silent = probe_layers(_spins(response=False), tokens, labels=labels)[0]
    assert silent.response == 0.0
    assert probe.response > 0.01


@pytest.mark.parametrize("kind", ["spins", "transformer"])
def test_training_learns_and_repeats(kind, data):
    def model():
        torch.manual_seed(5)
        if kind == "spins":
            return TokenClassifier("spins", dim=32, heads=4, depth=1, strength=2.0)
        return TokenClassifier("transformer", dim=32, heads=4, depth=1, feedforward=16)

    first = model()
    before = accuracy(first, data.test_tokens, labels=data.test_labels)
    run = train(first, data, epochs=3, rate=1e-2, probe_at=(0, 3))
    assert run.loss[-1] < 0.8 * run.loss[0]
    assert run.test_accuracy[-1] > before + 0.2
    assert sorted(run.probes) == [0, 3]
    assert run.probes[3][0].separation > run.probes[0][0].separation
    assert np.isnan(run.probes[3][0].polarization) == (kind == "transformer")
    few = replace(data, train_tokens=data.train_tokens[:200], train_labels=data.train_labels[:200])
    once, again = (train(model(), few, epochs=1, batch=50, seed=4) for _ in range(2))
    assert once.loss == pytest.approx(again.loss, rel=1e-6)


def test_bad_input(data):
    with pytest.raises(ValueError, match="kind"):
        TokenClassifier("perceptron")
    with pytest.raises(TypeError, match="options must be empty"):
        TokenClassifier("transformer", steps=2)
    with pytest.raises(ValueError, match="patch"):
        digits_as_tokens(patch=3)
    with pytest.raises(ValueError, match="epochs"):
        train(_spins(), data, epochs=0)
    with pytest.raises(ValueError, match="rate"):
        train(_spins(), data, rate=0.0)
    with pytest.raises(ValueError, match="tokens must have 3 axes"):
        probe_layers(_spins(), data.test_tokens[0], labels=data.test_labels[:1])
