"""Data, parameter counts, probes and the training loop of stacks of spin systems."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from spinformer.studies.classifiers import (
    TokenClassifier,
    build_classifier,
    matched_transformer,
    parameter_count,
)
from spinformer.studies.training import (
    accuracy,
    digits_as_tokens,
    over_trainings,
    probe_change,
    probe_layers,
    probe_table,
    train,
)


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
    # One hidden unit more or less, in all three layers, would not come closer.
    one = 3 * (24 + 1 + 24)
    assert abs(parameter_count(transformer) - parameter_count(spins)) <= one / 2
    with pytest.raises(ValueError, match="dim must be small enough"):
        matched_transformer(spins, dim=40, heads=4)


@pytest.mark.claim("B11")
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
@pytest.mark.claim("B10")
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
    # At a vanishing rate the loss is that of all images, a short last batch by its size.
    still = model()
    whole = torch.nn.functional.cross_entropy(still(few.train_tokens), few.train_labels)
    found = train(still, few, epochs=1, batch=180, rate=1e-12)
    assert found.loss == [pytest.approx(float(whole.detach()), rel=1e-5)]


def test_seeds_of_initial_weights_leave_the_global_state_alone():
    torch.manual_seed(3)
    want = torch.rand(1)
    torch.manual_seed(3)
    one, two, other = (build_classifier("spins", seed=n, dim=8, heads=2) for n in (0, 0, 1))
    assert torch.rand(1) == want
    assert torch.equal(one.layers[0].query, two.layers[0].query)
    assert not torch.equal(one.layers[0].query, other.layers[0].query)
    assert one.layers[0].response
    assert not build_classifier("without response", seed=0, dim=8, heads=2).layers[0].response


def test_averages_over_trainings():
    """The error is that of the mean over trainings: against the scatter of such means."""
    values = np.random.default_rng(0).normal(size=(4000, 5, 2))
    found = [over_trainings(group) for group in values]
    scatter = np.std([one.value for one in found], axis=0)
    error = np.sqrt(np.mean([one.error**2 for one in found], axis=0))
    np.testing.assert_allclose(error / scatter, 1.0, atol=0.06)
    alone = over_trainings(values[0, :1])
    assert np.isnan(alone.error).all()
    np.testing.assert_array_equal(alone.value, values[0, 0])


def test_tables_of_probes(data):
    few = replace(data, train_tokens=data.train_tokens[:100], train_labels=data.train_labels[:100])
    runs = [train(_spins(seed), few, epochs=2, batch=50, probe_at=(0, 2)) for seed in (0, 1)]
    early, late = (probe_table(runs, name="turn", epoch=epoch) for epoch in (0, 2))
    assert early.shape == (2, 2)
    assert late[1, 0] == runs[1].probes[2][0].turn
    change = probe_change(runs, name="turn", first=0, last=2)
    np.testing.assert_array_equal(change, late - early)
    assert (change != 0).all()


def test_a_loss_that_is_not_finite_is_said(data):
    model = _spins()
    with torch.no_grad():
        model.readout.weight.fill_(torch.inf)
    with pytest.raises(RuntimeError, match="no longer finite in epoch 1"):
        train(model, data, epochs=1)


def test_bad_input(data):
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\)"):
        accuracy(_spins(), data.test_tokens[:3], labels=data.test_labels[:1])
    with pytest.raises(TypeError, match="labels"):
        accuracy(_spins(), data.test_tokens[:3], labels=torch.ones(3))
    with pytest.raises(ValueError, match=r"probe_at\[1\]"):
        train(_spins(), data, epochs=2, probe_at=(0, 3))
    with pytest.raises(TypeError, match="progress"):
        train(_spins(), data, progress="no")
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
