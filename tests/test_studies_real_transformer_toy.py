"""The toy: its layer by hand, its data, its measurements, what training does to it."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from compendium.c14_real_transformer import toy


def draw(task, count, shift=1):
    return toy.draw_examples(task, count, streams=task.streams(shift))


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


def test_toy_energy_and_update_by_hand():
    task = toy.ToyTask(width=3, patterns=4, layers=1, copies=2, seed=4)
    weights = toy.initial_weights(task)
    patterns, states, _ = draw(task, 1)
    energies = toy.toy_energy(weights, 0, patterns=patterns, states=states)
    updates = toy.toy_update(weights, 0, patterns=patterns, states=states)
    for copy in range(2):
        energy, update = by_hand(weights, 0, patterns[copy, 0].numpy(), copy)
        state = states[copy, 0].numpy()
        np.testing.assert_allclose(updates[copy, 0], update(state), atol=1e-14)
        np.testing.assert_allclose(energies[copy, 0], energy(state), atol=1e-13)


def test_scores_follow_the_goal():
    """With W_O = 0 the state stays what it is: scores ξ·x_j/√D, of R x_j, and with the sign."""
    task = toy.ToyTask(width=5, patterns=3, layers=2)
    weights = toy.initial_weights(task) | {"output": torch.zeros(2, 1, 5, 5, dtype=torch.float64)}
    patterns, states, _ = draw(task, 4)
    turn = toy.rotation(task)[0].numpy()
    np.testing.assert_allclose(turn @ turn.T, np.eye(5), atol=1e-12)
    for goal, expected in (
        ("recall", lambda x, xi: x @ xi),
        ("avoid", lambda x, xi: -x @ xi),
        ("translate", lambda x, xi: (x @ turn.T) @ xi),
    ):
        asked = replace(task, goal=goal)
        found = toy.toy_logits(weights, asked, patterns=patterns, states=states)[0].numpy()
        for b in range(4):
            np.testing.assert_allclose(
                found[b],
                expected(patterns[0, b].numpy(), states[0, b].numpy()) / 5**0.5,
                atol=1e-12,
            )


def test_examples_and_weights_have_the_promised_sizes():
    """Patterns of length √D, noise of the standard deviation asked for, weights N(0, 1/4D)."""
    task = toy.ToyTask(noise=0.5)
    patterns, states, target = (part[0] for part in draw(task, 4000))
    torch.testing.assert_close(patterns.norm(dim=-1), torch.full((4000, 16), 4.0).double())
    noise = states - patterns[torch.arange(4000), target]
    # 64,000 numbers: their standard deviation is known to 0.3 per cent.
    assert float(noise.std()) == pytest.approx(0.5, rel=0.015)
    share = torch.bincount(target, minlength=16).double() / 4000
    assert float((share - 1 / 16).abs().max()) < 5 * math.sqrt(15 / 256 / 4000)
    wide = toy.initial_weights(replace(task, width=64))
    for matrix in wide.values():
        assert float(matrix.std()) == pytest.approx(1 / 16, rel=0.05)


def test_copies_are_trained_as_each_would_be_alone():
    """Weights, rotations, data and three steps of training of copy 1 are those of seed 1."""
    task = toy.ToyTask(goal="translate", layers=2, batch=8, copies=2)
    alone = replace(task, copies=1, seed=1)
    torch.testing.assert_close(toy.rotation(task)[1], toy.rotation(alone)[0])
    both, one = (toy.train_toy(t, steps=3, record_every=3) for t in (task, alone))
    for name in ("cosine", "fell", "loss", "floor"):
        np.testing.assert_allclose(both[name][:, 1], one[name][:, 0], atol=1e-12)
    for name in ("cosine", "loss"):
        assert abs(both[name][:, 0] - one[name][:, 0]).min() > 1e-9


def test_measurements_by_hand():
    """Two layers, five examples: each state followed on its own, gradients by differences."""
    task = toy.ToyTask(width=4, patterns=3, layers=2, goal="avoid", noise=1.5, seed=2)
    weights = toy.initial_weights(task)
    found = toy.measure_toy(weights, task, count=5)
    patterns, starts, target = (part[0] for part in draw(task, 5))
    fell, cosines = np.zeros((5, 2)), np.zeros((5, 2))
    losses, floors, right = [], [], []
    for b in range(5):
        x, xi = patterns[b].numpy(), starts[b].numpy()
        # Bayes: the probability of j given its noisy copy, from squared distances.
        likely = np.exp(-((x - xi) ** 2).sum(1) / (2 * 1.5**2))
        floors.append(-np.log(likely[target[b]] / likely.sum()))
        for layer in range(2):
            energy, update = by_hand(weights, layer, x)
            step = update(xi)
            gradient = np.array(
                [(energy(xi + 1e-5 * e) - energy(xi - 1e-5 * e)) / 2e-5 for e in np.eye(4)]
            )
            fell[b, layer] = energy(xi + step) < energy(xi)
            cosines[b, layer] = -step @ gradient
            cosines[b, layer] /= np.linalg.norm(step) * np.linalg.norm(gradient)
            xi = xi + step
        scores = -x @ xi / 2
        losses.append(np.log(np.exp(scores).sum()) - scores[target[b]])
        right.append(scores.argmax() == int(target[b]))
    np.testing.assert_allclose(found["fell"][0], fell.mean(0))
    np.testing.assert_allclose(found["cosine"][0], cosines.mean(0), atol=1e-6)
    assert float(found["loss"][0]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(found["floor"][0]) == pytest.approx(np.mean(floors), rel=1e-10)
    assert float(found["accuracy"][0]) == np.mean(right)


@pytest.mark.nightly
@pytest.mark.claim("A14c")
def test_training_aligns_or_opposes_the_update_as_the_goal_asks():
    """Short trainings of two copies: recall goes up by more than 0.5, the others below −0.2."""
    task = toy.ToyTask(layers=2, batch=64, copies=2)
    found = {
        goal: toy.train_toy(replace(task, goal=goal), steps=150, record_every=100)
        for goal in toy.GOALS
    }
    assert found["recall"]["step"].tolist() == [0, 100, 150]
    for goal, record in found.items():
        cosine = record["cosine"]
        assert (abs(cosine[0]) < 0.15).all()
        assert (record["loss"][-1] < record["loss"][0]).all()
        if goal == "recall":
            assert (cosine[-1] - cosine[0] > 0.5).all()
            assert (record["fell"][-1] > 0.99).all()
        else:
            assert (cosine[-1] - cosine[0] < -0.2).all()
    # What is recorded first is the untrained stack.
    start = toy.measure_toy(toy.initial_weights(task), task)
    assert all(np.array_equal(start[name], found["recall"][name][0]) for name in start)


def test_stored_trainings_are_those_of_the_code():
    """Before training the rows are those of a new run; the loss never falls below its floor."""
    for (table, seed), goal in product(((toy.TOY, 0), (toy.LONGER, 200)), toy.GOALS):
        stored = toy.read_toy(table)
        task = toy.ToyTask(goal=goal, batch=64, copies=2, seed=seed)
        start = toy.measure_toy(toy.initial_weights(task), task)
        np.testing.assert_allclose(stored[goal]["cosine"][0, :2], start["cosine"], rtol=2e-5)
        np.testing.assert_allclose(stored[goal]["loss"][0, :2], start["loss"], rtol=2e-5)
        assert (stored[goal]["loss"] > 0.98 * stored[goal]["floor"]).all()
        assert np.median(stored[goal]["loss"][-1]) < 0.25
