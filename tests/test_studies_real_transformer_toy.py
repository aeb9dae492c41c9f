"""The toy: its layer by hand, its data, its measurements, what training does to it."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from compendium.c14_real_transformer import toy


def draw(count, seeds=(0,), shift=1):
    return toy.draw_examples(count, toy.streams(seeds, shift))


def by_hand(weights, layer, patterns, copy=0):
    """Energy and update of one layer as functions of one state, by the definition."""
    q, k, o = (weights[name][layer, copy].numpy() for name in ("query", "key", "output"))
    root = patterns.shape[1] ** 0.5

    def energy(state):
        logits = (patterns @ k.T) @ (q @ state) / root
        return -root * np.log(np.mean(np.exp(logits - logits.mean())))

    def update(state):
        attention = np.exp((patterns @ k.T) @ (q @ state) / root)
        return o @ (attention / attention.sum() @ patterns)

    return energy, update


def test_the_loss_follows_the_goal():
    """With W_O = 0 the state stays what it is: scores ξ·x_j/√D, of R x_j, and with the sign."""
    weights = toy.initial_weights([0], layers=2)
    weights["output"] = torch.zeros_like(weights["output"])
    examples, turns = draw(40), toy.rotation([0])
    patterns, states, target = (part[0].numpy() for part in examples)
    turn = turns[0].numpy()
    np.testing.assert_allclose(turn @ turn.T, np.eye(16), atol=1e-12)
    given = {"recall": patterns, "avoid": -patterns, "translate": patterns @ turn.T}
    for goal, seen in given.items():
        loss = toy.toy_loss(weights, goal, examples, turns=turns)
        scores = np.einsum("bnd,bd->bn", seen, states) / 4
        expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(40), target]
        np.testing.assert_allclose(float(loss), expected.mean(), rtol=1e-12)


def test_examples_and_weights_have_the_promised_sizes(monkeypatch):
    """Patterns of length √D, noise of the standard deviation asked for, weights N(0, 1/4D)."""
    monkeypatch.setattr(toy, "NOISE", 0.5)
    patterns, states, target = (part[0] for part in draw(4000))
    torch.testing.assert_close(patterns.norm(dim=-1), torch.full((4000, 16), 4.0).double())
    noise = states - patterns[torch.arange(4000), target]
    # 64,000 numbers: their standard deviation is known to 0.3 per cent.
    assert float(noise.std()) == pytest.approx(0.5, rel=0.015)
    share = torch.bincount(target, minlength=16).double() / 4000
    assert float((share - 1 / 16).abs().max()) < 5 * math.sqrt(15 / 256 / 4000)
    for matrix in toy.initial_weights(range(16)).values():
        assert float(matrix.std()) == pytest.approx(1 / 8, rel=0.03)


def test_copies_are_trained_as_each_would_be_alone():
    """Weights, rotations, data and three steps of training of copy 1 are those of seed 1."""
    torch.testing.assert_close(toy.rotation([0, 1])[1], toy.rotation([1])[0])
    both, one = (
        toy.train_toy("translate", seeds=seeds, steps=3, record_every=2, layers=2)
        for seeds in ([0, 1], [1])
    )
    assert both["step"].tolist() == [0, 2, 3]
    for name in ("cosine", "loss", "floor"):
        np.testing.assert_allclose(both[name][:, 1], one[name][:, 0], atol=1e-12)
    for name in ("cosine", "loss"):
        assert abs(both[name][:, 0] - one[name][:, 0]).min() > 1e-9


def test_measurements_by_hand(monkeypatch):
    """Two layers, five examples: each state followed on its own, gradients by differences."""
    monkeypatch.setattr(toy, "NOISE", 1.5)
    weights = toy.initial_weights([2], layers=2)
    found = toy.measure_toy(weights, "avoid", seeds=[2], count=5)
    patterns, starts, target = (part[0] for part in draw(5, seeds=[2]))
    cosines, losses, floors = np.zeros((5, 2)), [], []
    for b in range(5):
        x, xi = patterns[b].numpy(), starts[b].numpy()
        # Bayes: the probability of j given its noisy copy, from squared distances.
        likely = np.exp(-((x - xi) ** 2).sum(1) / (2 * 1.5**2))
        floors.append(-np.log(likely[target[b]] / likely.sum()))
        for layer in range(2):
            energy, update = by_hand(weights, layer, x)
            step = update(xi)
            gradient = np.array(
                [(energy(xi + 1e-5 * e) - energy(xi - 1e-5 * e)) / 2e-5 for e in np.eye(16)]
            )
            cosines[b, layer] = -step @ gradient
            cosines[b, layer] /= np.linalg.norm(step) * np.linalg.norm(gradient)
            xi = xi + step
        scores = -x @ xi / 4
        losses.append(np.log(np.exp(scores).sum()) - scores[target[b]])
    np.testing.assert_allclose(found["cosine"][0], cosines.mean(0), atol=1e-6)
    assert float(found["loss"][0]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(found["floor"][0]) == pytest.approx(np.mean(floors), rel=1e-10)


@pytest.mark.nightly
@pytest.mark.claim("A14c")
def test_training_aligns_or_opposes_the_update_as_the_goal_asks():
    """Short trainings of two copies: recall goes up by more than 0.5, the others below −0.2."""
    given = {"seeds": [0, 1], "layers": 2, "steps": 150, "record_every": 100}
    found = {goal: toy.train_toy(goal, **given) for goal in toy.GOALS}
    assert found["recall"]["step"].tolist() == [0, 100, 150]
    for goal, record in found.items():
        cosine = record["cosine"]
        assert (abs(cosine[0]) < 0.15).all()
        assert (record["loss"][-1] < record["loss"][0]).all()
        change = cosine[-1] - cosine[0]
        assert (change > 0.5).all() if goal == "recall" else (change < -0.2).all()


def test_stored_trainings_are_those_of_the_code():
    """Before training the rows are those of a new run; the loss never falls below its floor."""
    for (table, seed), goal in product(((toy.TOY, 0), (toy.LONGER, 200)), toy.GOALS):
        stored = toy.read_toy(table)
        seeds = [seed, seed + 1]
        start = toy.measure_toy(toy.initial_weights(seeds), goal, seeds=seeds)
        np.testing.assert_allclose(stored[goal]["cosine"][0, :2], start["cosine"], rtol=2e-5)
        np.testing.assert_allclose(stored[goal]["loss"][0, :2], start["loss"], rtol=2e-5)
        assert (stored[goal]["loss"] > 0.98 * stored[goal]["floor"]).all()
        assert np.median(stored[goal]["loss"][-1]) < 0.25
