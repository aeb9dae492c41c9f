"""The toy: its layer by hand, its data, its measurements, what training does to it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from spinformer.studies.real_transformer import toy


def test_toy_energy_and_update_by_hand():
    """One layer, one example, against loops that follow the definition."""
    task = toy.ToyTask(width=3, patterns=4, layers=1, seed=4)
    weights = toy.initial_weights(task)
    patterns, states, _ = toy.draw_examples(task, 1, seed=0)
    x, xi = patterns[0].numpy(), states[0].numpy()
    q, k, o = (weights[name][0].numpy() for name in ("query", "key", "output"))
    logits = np.array([(k @ x[j]) @ (q @ xi) for j in range(4)]) / np.sqrt(3)
    attention = np.exp(logits) / np.exp(logits).sum()
    update = o @ sum(attention[j] * x[j] for j in range(4))
    energy = -np.sqrt(3) * np.log(np.mean(np.exp(logits - logits.mean())))
    np.testing.assert_allclose(
        toy.toy_update(weights, 0, patterns=patterns, states=states)[0], update, atol=1e-14
    )
    np.testing.assert_allclose(
        toy.toy_energy(weights, 0, patterns=patterns, states=states)[0], energy, atol=1e-13
    )


def test_scores_follow_the_goal():
    """With W_O = 0 the state stays what it is: scores ξ·x_j/√D, of R x_j, and with the sign."""
    task = toy.ToyTask(width=5, patterns=3, layers=2)
    weights = toy.initial_weights(task) | {"output": torch.zeros(2, 5, 5, dtype=torch.float64)}
    patterns, states, _ = toy.draw_examples(task, 4, seed=1)
    turn = toy.rotation(task).numpy()
    for goal, expected in (
        ("recall", lambda x, xi: x @ xi),
        ("avoid", lambda x, xi: -x @ xi),
        ("translate", lambda x, xi: (x @ turn.T) @ xi),
    ):
        asked = replace(task, goal=goal)
        found = toy.toy_logits(weights, asked, patterns=patterns, states=states).numpy()
        for b in range(4):
            np.testing.assert_allclose(
                found[b], expected(patterns[b].numpy(), states[b].numpy()) / 5**0.5, atol=1e-12
            )


def test_examples_and_weights_have_the_promised_sizes():
    """Patterns of length √D, noise of the standard deviation asked for, weights N(0, 1/4D)."""
    task = toy.ToyTask(noise=0.5)
    patterns, states, target = toy.draw_examples(task, 4000, seed=0)
    torch.testing.assert_close(patterns.norm(dim=-1), torch.full((4000, 16), 4.0).double())
    noise = states - patterns[torch.arange(4000), target]
    # 64,000 numbers: their standard deviation is known to 0.3 per cent.
    assert float(noise.std()) == pytest.approx(0.5, rel=0.015)
    share = torch.bincount(target, minlength=16).double() / 4000
    assert float((share - 1 / 16).abs().max()) < 5 * math.sqrt(15 / 256 / 4000)
    wide = toy.initial_weights(replace(task, width=64))
    for matrix in wide.values():
        assert float(matrix.std()) == pytest.approx(1 / 16, rel=0.05)
    again = toy.draw_examples(task, 3, seed=torch.Generator().manual_seed(7))
    assert torch.equal(again[1], toy.draw_examples(task, 3, seed=7)[1])


def test_measurements_by_hand():
    """Two layers, five examples: each state followed on its own, gradients by differences."""
    task = toy.ToyTask(width=4, patterns=3, layers=2, goal="avoid", seed=2)
    weights = toy.initial_weights(task)
    found = toy.measure_toy(weights, task, count=5)
    patterns, starts, target = toy.draw_examples(task, 5, seed=task.seed + 1_000_003)
    changes, cosines = np.zeros((5, 2)), np.zeros((5, 2))
    losses, right = [], []
    for b in range(5):
        x, xi = patterns[b].numpy(), starts[b].numpy()
        for layer in range(2):
            q, k, o = (weights[name][layer].numpy() for name in ("query", "key", "output"))

            def energy(state, x=x, q=q, k=k):
                logits = (x @ k.T) @ (q @ state) / 2
                return -2 * np.log(np.mean(np.exp(logits - logits.mean())))

            logits = (x @ k.T) @ (q @ xi) / 2
            update = o @ (np.exp(logits) / np.exp(logits).sum() @ x)
            gradient = np.array(
                [(energy(xi + 1e-5 * e) - energy(xi - 1e-5 * e)) / 2e-5 for e in np.eye(4)]
            )
            changes[b, layer] = energy(xi + update) - energy(xi)
            cosines[b, layer] = -update @ gradient
            cosines[b, layer] /= np.linalg.norm(update) * np.linalg.norm(gradient)
            xi = xi + update
        scores = -x @ xi / 2
        losses.append(np.log(np.exp(scores).sum()) - scores[target[b]])
        right.append(scores.argmax() == int(target[b]))
    np.testing.assert_allclose(found["change"], changes.mean(0), rtol=1e-9)
    np.testing.assert_allclose(found["fell"], (changes < 0).mean(0))
    np.testing.assert_allclose(found["cosine"], cosines.mean(0), atol=1e-6)
    assert float(found["loss"]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(found["accuracy"]) == np.mean(right)


def test_training_aligns_or_opposes_the_update_as_the_goal_asks():
    """Recall: updates follow −gradient and every energy falls; avoid: they oppose it."""
    task = toy.ToyTask(layers=2, batch=64)
    recall = toy.train_toy(task, steps=150, record_every=100)
    avoid = toy.train_toy(replace(task, goal="avoid"), steps=150, record_every=150)
    assert recall.steps == (0, 100, 150)
    assert (abs(recall.cosine[0]) < 0.15).all()
    assert (recall.cosine[-1] > 0.5).all()
    assert (recall.fell[-1] > 0.99).all()
    assert (avoid.cosine[-1] < -0.5).all()
    assert recall.loss[-1] < recall.loss[0]
    assert avoid.loss[-1] < avoid.loss[0]
    # What is recorded first is the untrained stack.
    start = toy.measure_toy(toy.initial_weights(task), task)
    assert all(np.array_equal(start[name], getattr(recall, name)[0]) for name in start)


def start(task):
    patterns, states, _ = toy.draw_examples(task, 2, seed=0)
    return toy.initial_weights(task), {"patterns": patterns, "states": states}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda t: toy.ToyTask(goal="other"), ValueError, "goal"),
        (lambda t: toy.ToyTask(layers=0), ValueError, "layers"),
        (lambda t: toy.ToyTask(noise=-1.0), ValueError, "noise"),
        (lambda t: toy.ToyTask(learning_rate=0.0), ValueError, "learning_rate"),
        (lambda t: toy.train_toy(t, steps=0), ValueError, "steps"),
        (lambda t: toy.train_toy(t, record_every=0), ValueError, "record_every"),
        (lambda t: toy.draw_examples(t, 0, seed=0), ValueError, "count"),
        (lambda t: toy.draw_examples(t, 1, seed=None), TypeError, "seed"),
        (lambda t: toy.toy_energy(start(t)[0], 3, **start(t)[1]), ValueError, "layer"),
        (lambda t: toy.toy_update(start(t)[0], -1, **start(t)[1]), ValueError, "layer"),
        (
            lambda t: toy.toy_update(start(t)[0], 0, **start(replace(t, width=8))[1]),
            ValueError,
            "states",
        ),
    ],
)
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(toy.ToyTask())
