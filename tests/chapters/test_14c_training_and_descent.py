"""The toy and the layer with an energy, written out."""

from itertools import product

import numpy as np
import pytest
import torch
from known_memories import draw
from open_cells import run_open_cells
from scipy.special import logsumexp, softmax
from torch.autograd.functional import hessian, jacobian

from compendium.c14c_training_and_descent import energy_transformer, toy
from compendium.c14c_training_and_descent.energy_transformer import energy, gradient, normalize


def cosine(one, other):
    return (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)


def draw_toy(count, seeds=(0,)):
    return toy.draw_examples(count, toy.streams(seeds, 1))


def by_hand(weights, layer, patterns, states):
    """Energy (S,) and update (S, D) of one layer at states (S, D), by the definition."""
    q = weights["query"][layer, 0].numpy()
    k = weights["key"][layer, 0].numpy()
    o = weights["output"][layer, 0].numpy()
    scores = states @ q.T @ k @ patterns.T / 4
    energies = -4 * np.log(np.exp(scores - scores.mean(1, keepdims=True)).mean(1))
    return energies, softmax(scores, axis=1) @ patterns @ o.T


def test_the_loss_follows_the_goal():
    """With W_O = 0 the state stays what it is: scores ξ·x_j/√D, of R x_j, and with the sign."""
    weights = toy.initial_weights([0], layers=2)
    weights["output"] = torch.zeros_like(weights["output"])
    examples = draw_toy(40)
    turns = toy.rotation([0])
    patterns, states, target = [part[0].numpy() for part in examples]
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
    patterns, states, target = [part[0] for part in draw_toy(4000)]
    torch.testing.assert_close(patterns.norm(dim=-1), torch.full((4000, 16), 4.0).double())
    noise = states - patterns[torch.arange(4000), target]
    # 64,000 numbers: their standard deviation is known to 0.3 per cent.
    assert float(noise.std()) == pytest.approx(0.5, rel=0.015)
    share = torch.bincount(target, minlength=16).double() / 4000
    assert float((share - 1 / 16).abs().max()) < 5 * (15 / 256 / 4000) ** 0.5
    for matrix in toy.initial_weights(range(16)).values():
        assert float(matrix.std()) == pytest.approx(1 / 8, rel=0.03)


def test_copies_are_trained_as_each_would_be_alone():
    """Weights, rotations, data and three steps of training of copy 1 are those of seed 1."""
    torch.testing.assert_close(toy.rotation([0, 1])[1], toy.rotation([1])[0])
    both = toy.train_toy("translate", seeds=[0, 1], steps=3, record_every=2, layers=2)
    one = toy.train_toy("translate", seeds=[1], steps=3, record_every=2, layers=2)
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
    patterns, starts, target = [part[0] for part in draw_toy(5, seeds=[2])]
    cosines = np.zeros((5, 2))
    losses = []
    floors = []
    for b in range(5):
        x = patterns[b].numpy()
        xi = starts[b].numpy()
        # Bayes: the probability of j given its noisy copy, from squared distances.
        likely = np.exp(-((x - xi) ** 2).sum(1) / (2 * 1.5**2))
        floors.append(-np.log(likely[target[b]] / likely.sum()))
        for layer in range(2):
            up, _ = by_hand(weights, layer, x, xi + 1e-5 * np.eye(16))
            down, _ = by_hand(weights, layer, x, xi - 1e-5 * np.eye(16))
            step = by_hand(weights, layer, x, xi[None])[1][0]
            cosines[b, layer] = cosine(step, down - up)
            xi = xi + step
        scores = -x @ xi / 4
        losses.append(np.log(np.exp(scores).sum()) - scores[target[b]])
    np.testing.assert_allclose(found["cosine"][0], cosines.mean(0), atol=1e-6)
    assert float(found["loss"][0]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(found["floor"][0]) == pytest.approx(np.mean(floors), rel=1e-10)


def test_moved_steps_by_hand():
    """Each pattern gets the weight of the one before it; both nulls, example by example."""
    weights = toy.trained_weights("translate", seeds=[3], steps=20, layers=2)[20]
    examples = toy.draw_examples(30, toy.streams([3], 4))
    patterns, starts, target = [part[0].numpy() for part in examples]
    turned = patterns @ toy.rotation([3])[0].numpy().T

    def loss(states):
        scores = np.einsum("bnd,bd->bn", turned, states) / 4
        return (logsumexp(scores, axis=1) - scores[np.arange(30), target]).mean()

    losses = {"no steps": loss(starts)}
    for name, shift in (("own", 0), ("moved weights", 1)):
        states = starts.copy()
        for layer in range(2):
            q = weights["query"][layer, 0].numpy()
            k = weights["key"][layer, 0].numpy()
            o = weights["output"][layer, 0].numpy()
            for example in range(30):
                seen = softmax(patterns[example] @ k.T @ (q @ states[example]) / 4)
                states[example] += o @ (np.roll(seen, shift) @ patterns[example])
        losses[name] = loss(states)
    benefits = toy.step_benefits(weights, "translate", seeds=[3], count=30)
    for name, gained in benefits.items():
        assert gained.item() == pytest.approx(losses[name] - losses["own"], abs=1e-12)


@pytest.mark.claim("A14c")
def test_trained_steps_are_useful_for_the_loss_and_moved_ones_are_not():
    """Before training neither null costs a tenth of a nat; after it both do, for every goal."""
    seeds = [70, 71]
    for goal in toy.GOALS:
        kept = toy.trained_weights(goal, seeds=seeds, steps=150, keep=[0], layers=1)
        for null, gained in toy.step_benefits(kept[0], goal, seeds=seeds).items():
            assert abs(gained).max() < 0.1, null
        for null, gained in toy.step_benefits(kept[150], goal, seeds=seeds).items():
            assert gained.min() > 0.02, null


@pytest.mark.nightly
def test_training_aligns_or_opposes_the_update_as_the_goal_asks():
    """Short trainings of two copies: recall goes up by more than 0.5, the others below −0.2."""
    found = {
        goal: toy.train_toy(goal, seeds=[0, 1], layers=2, steps=150, record_every=100)
        for goal in toy.GOALS
    }
    assert found["recall"]["step"].tolist() == [0, 100, 150]
    for goal, record in found.items():
        cosine = record["cosine"]
        assert (abs(cosine[0]) < 0.15).all()
        assert (record["loss"][-1] < record["loss"][0]).all()
        change = cosine[-1] - cosine[0]
        assert (change > 0.5).all() if goal == "recall" else (change < -0.2).all()


def test_stored_trainings_are_those_of_the_code():
    """Before training the rows are those of a new run; the loss never falls below its floor."""
    for (table, seed), goal in product(((toy.toy_table, 0), (toy.longer_table, 200)), toy.GOALS):
        stored = toy.read_toy(table)
        seeds = [seed, seed + 1]
        start = toy.measure_toy(toy.initial_weights(seeds), goal, seeds=seeds)
        np.testing.assert_allclose(stored[goal]["cosine"][0, :2], start["cosine"], rtol=2e-5)
        np.testing.assert_allclose(stored[goal]["loss"][0, :2], start["loss"], rtol=2e-5)
        assert (stored[goal]["loss"] > 0.98 * stored[goal]["floor"]).all()
        assert np.median(stored[goal]["loss"][-1]) < 0.25


def energy_layer(seed=0, beta=0.7):
    maps = [draw(3, 5, seed=[seed, n]) for n in (1, 2)]
    return energy_transformer.EnergyLayer(*maps, patterns=draw(7, 5, seed=[seed, 3]), beta=beta)


def test_energy_is_the_sum_written_out():
    model = energy_layer()
    seen = draw(6, 5, seed=4)
    total = 0.0
    for asking in seen.numpy():
        query = model.query_map.numpy() @ asking
        scores = [0.7 * float(query @ (model.key_map.numpy() @ other)) for other in seen.numpy()]
        total -= logsumexp(scores) / 0.7
    for pattern in model.patterns.numpy():
        total -= 0.5 * sum(max(0.0, float(pattern @ g)) ** 2 for g in seen.numpy())
    assert abs(float(energy(model, seen)) - total) < 1e-10 * abs(total)


def test_the_normalisation_is_the_gradient_of_a_convex_function():
    def spreads(y):
        return 5 * (y.var(-1, correction=0) + 1e-5).sqrt().sum()

    x = draw(1, 5, seed=5)
    torch.testing.assert_close(normalize(x), jacobian(spreads, x))
    curvature = hessian(spreads, x).reshape(5, 5)
    assert float(torch.linalg.eigvalsh(curvature).min()) > -1e-12


def test_no_safe_step_raises_the_energy_and_large_ones_do():
    for trial in range(40):
        model = energy_layer(trial, beta=float(np.exp(trial / 8 - 2)))
        if trial % 2:
            model = model._replace(key_map=-model.query_map, patterns=0.1 * model.patterns)
        tokens = draw(4, 6, 5, seed=[trial, 9])
        size = 0.999 * energy_transformer.safe_step(model, tokens)[:, None, None]
        after = tokens - size * gradient(model, normalize(tokens))
        change = energy(model, normalize(after)) - energy(model, normalize(tokens))
        assert float(change.max()) < 1e-10
    for kind in energy_transformer.KINDS:
        shares = energy_transformer.uphill_shares(kind, factors=[1.0, 64.0])
        assert shares[0] == 0.0
    assert shares[1] > 0.1


@pytest.mark.parametrize("count", [1, 8])
def test_the_safe_step_is_nearly_the_largest(count):
    """All tokens look at the first, which repels them along u, E ≈ Σ_C (u·g_1)(u·g_C).

    That curves upwards by (1 + √N)‖QᵀK‖ where the bound has 2√N‖QᵀK‖; the forces are small.
    """
    u, query, key = torch.linalg.qr(draw(6, 3, seed=2) - draw(6, 3, seed=2).mean(0)).Q.mT
    maps = torch.stack([u, 1e-4 * query]), torch.stack([-u, key])
    model = energy_transformer.EnergyLayer(*maps, torch.zeros(1, 6).double(), beta=1e6)
    first = (torch.arange(count) == 0).double()[:, None]
    steepest = torch.where(first > 0, (1 + count**0.5) / 2, 0.5)
    tokens = query + (2 * first - 1) * key + 1e-3 * steepest * u
    before = energy(model, normalize(tokens))
    slope = gradient(model, normalize(tokens))
    size = energy_transformer.safe_step(model, tokens)
    for factor, rises in ((0.999, False), (1.1 * 2 * count**0.5 / (1 + count**0.5), True)):
        after = energy(model, normalize(tokens - factor * size * slope))
        assert bool(after > before) == rises


def test_the_open_cells_do_what_the_package_does():
    """One layer of the toy, on examples of the package: its update and its cosine with descent."""
    cells = run_open_cells("14c_training_and_descent")
    one = torch.eye(16, dtype=torch.float64)[None, None]
    for goal, (match, output) in cells["trained_layers"].items():
        weights = {"query": match[None, None], "key": one, "output": output[None, None]}
        patterns, states, _ = draw_toy(50)
        step = cells["attend"](patterns[0], states[0], match, patterns[0]) @ output.T
        update = toy.toy_update(weights, 0, patterns=patterns, states=states)
        torch.testing.assert_close(step, update[0])
        found = toy.measure_toy(weights, goal, seeds=[0])
        assert cells["cosines_of_steps"][goal] == pytest.approx(found["cosine"].item(), abs=0.03)
    assert cells["cosines_of_steps"]["recall"] > 0.5
    assert cells["cosines_of_steps"]["avoid"] < -0.5


def test_queries_keys_and_memories_of_the_random_layers_are_independent(monkeypatch):
    layers = []

    def layer(queries, keys, patterns, *, beta):
        layers.append((queries, keys, patterns))
        return made(queries, keys, patterns, beta=beta)

    made = energy_transformer.EnergyLayer
    monkeypatch.setattr(energy_transformer, "EnergyLayer", layer)
    energy_transformer.uphill_shares("random keys", factors=(1.0,))
    sizes = {tuple(len(part) for part in one) for one in layers}
    assert sizes == {(6, 6, 12)}
    for part, width in zip(zip(*layers, strict=True), (6, 6, 12), strict=True):
        assert float(torch.cat(part).square().mean()) == pytest.approx(1 / width, rel=0.1)
    rows = [
        tuple(row.sign().tolist() + row.div(row.norm()).tolist())
        for one in layers
        for part in one
        for row in part
    ]
    assert len(set(rows)) == len(rows)
    layers.clear()
    energy_transformer.uphill_shares("opposed keys", factors=(1.0,))
    for queries, keys, patterns in layers:
        torch.testing.assert_close(keys, -queries)
        assert not patterns.any()
