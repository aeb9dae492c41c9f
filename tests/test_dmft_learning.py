"""Learning in the driven network: rollouts, the exact gradient, and the three that stand for it."""

from itertools import product

import numpy as np
import pytest
import torch

from compendium.c36_learning_through_the_limit.learning import (
    Paths,
    bits_of_segment,
    exact_costs,
    rollout,
    surprise,
    surrogate,
)
from spinformer.dmft.finite_size import mean_path
from spinformer.dmft.network import Network

SETTING = {"beta": 1.3, "gamma": 4.0}


def _draw(seed, *, starts=2, steps=3, context=2, features=2, segments=3):
    rng = np.random.default_rng(seed)
    weights = torch.as_tensor(np.tanh(rng.standard_normal((4, features, segments))))
    window = torch.as_tensor(rng.choice([-1.0, 1.0], (starts, context, segments)))
    targets = torch.as_tensor(rng.choice([-1.0, 1.0], (starts, steps, segments)))
    return weights, window, targets


def _plain_field(weights, window, beta, gamma):
    """h of the next token, from explicit bits (T, N) and weights (4, P, N), one loop a sum."""
    size = window.shape[1]
    m = [[weights[role] @ token / size for role in range(4)] for token in window]
    powers = [np.exp(gamma * sum(m[-1][2] * token[3])) for token in m]
    attention = sum(p * token[1] for p, token in zip(powers, m, strict=True)) / sum(powers)
    return beta * attention @ weights[0]


def _enumerated(weights, window, targets, size):
    """Mean costs of one start: a sum over every text of N bits a token."""
    bits = size // weights.shape[2]
    explicit = np.repeat(weights, bits, axis=2)
    path = np.repeat(window, bits, axis=1)
    costs = np.zeros(len(targets))

    def follow(path, chance, step):
        if step == len(targets):
            return
        field = _plain_field(explicit, path[-len(window) :], **SETTING)
        up = 1.0 / (1.0 + np.exp(-2.0 * field))
        for place, sign in enumerate(targets[step]):
            own = up[place * bits]
            costs[step] -= chance * np.log2(own if sign > 0 else 1.0 - own)
        for signs in product((-1.0, 1.0), repeat=size):
            token = np.array(signs)
            follow(
                np.vstack([path, token]),
                chance * np.prod(np.where(token > 0, up, 1.0 - up)),
                step + 1,
            )

    follow(path, 1.0, 0)
    return costs


@pytest.mark.parametrize(("size", "steps"), [(3, 3), (6, 2)])
def test_exact_costs_are_sums_over_all_texts(size, steps):
    weights, window, targets = _draw(0, steps=steps + (size == 3))
    found = exact_costs(weights, window=window, targets=targets, size=size, **SETTING)
    for place in range(len(window)):
        wanted = _enumerated(
            weights.numpy(), window[place].numpy(), targets[place].numpy()[: steps + 1], size
        )
        assert np.allclose(found[place, : len(wanted)], wanted, atol=1e-12)


def test_the_limit_is_the_mean_path_of_the_network_of_signs():
    rng = np.random.default_rng(1)
    network = Network(
        semantic=rng.choice([-1.0, 1.0], (4, 3, 5)), position=np.ones((4, 3, 0)), context=2,
        gamma=3.0, epsilon=0.0,
    )  # fmt: skip
    window = rng.uniform(-1.0, 1.0, (2, 5))
    path = mean_path(network, 0.9, window=window, steps=6)
    targets = rng.choice([-1.0, 1.0], (6, 4))
    found = rollout(
        torch.tensor(network.semantic)[None], window=torch.tensor(window)[None, None],
        targets=torch.tensor(targets)[None, None], beta=0.9, gamma=3.0,
    )  # fmt: skip
    assert np.allclose(found.tokens[0, 0], path, atol=1e-13)
    chance = 0.5 * (1.0 + targets * path[2:, :4])
    assert np.allclose(found.costs[0, 0], -np.log2(chance).sum(1), atol=1e-12)
    assert float(found.scores.abs().max()) == 0.0


def test_the_gradient_of_the_limit_is_that_of_finite_differences():
    weights, window, targets = _draw(2, steps=4)

    def cost(values):
        drawn = rollout(values[None], window=window[None], targets=targets[None], **SETTING)
        return surrogate(drawn, kind="limit").sum()

    leaf = weights.clone().requires_grad_()
    gradient = torch.autograd.grad(cost(leaf), leaf)[0]
    for place in np.ndindex(4, 2, 3):
        moved = torch.zeros_like(weights)
        moved[place] = 1e-6
        slope = (cost(weights + moved) - cost(weights - moved)) / 2e-6
        assert abs(float(slope) - float(gradient[place])) < 1e-7


def test_drawn_paths_have_the_exact_mean_cost_and_reinforce_its_gradient():
    weights, window, targets = _draw(3, steps=4)
    copies, updates, size = 40, 250, 6
    leaf = weights.clone().requires_grad_()
    exact = exact_costs(leaf, window=window, targets=targets, size=size, **SETTING).mean()
    wanted = torch.autograd.grad(exact, leaf)[0]
    shape = (updates, copies, 1, 1)
    for baseline in (copies, 1):
        many = weights.expand(updates, -1, -1, -1).clone().requires_grad_()
        paths = rollout(
            many, window=window.repeat(shape), targets=targets.repeat(shape), size=size,
            straight=False, seed=baseline, **SETTING,
        )  # fmt: skip
        value = surrogate(paths, kind="score", copies=baseline)
        found = torch.autograd.grad(value.sum(), many)[0]
        for drawn, truth in ((value, exact), (found, wanted)):
            drawn, truth = drawn.detach().flatten(1 if drawn.ndim > 1 else 0), truth.detach()
            error = drawn.std(0) / updates**0.5
            assert float(((drawn.mean(0) - truth.flatten()) / error).abs().max()) < 4.0


def test_the_weight_of_a_score_is_what_came_later_less_that_of_the_other_copies():
    copies, starts, steps = 3, 2, 4
    costs = torch.as_tensor(np.random.default_rng(0).random((1, copies * starts, steps)))
    scores = torch.zeros_like(costs, requires_grad=True)
    paths = Paths(costs=costs, scores=scores, tokens=costs)
    found = torch.autograd.grad(surrogate(paths, kind="score", copies=copies).sum(), scores)[0]
    for copy, start, step in np.ndindex(copies, starts, steps):
        later = [float(costs[0, c * starts + start, step + 1 :].sum()) for c in range(copies)]
        others = [value for c, value in enumerate(later) if c != copy]
        wanted = (later[copy] - np.mean(others)) / (copies * starts * steps)
        assert float(found[0, copy * starts + start, step]) == pytest.approx(wanted, abs=1e-14)


def test_one_bit_and_two_steps_by_hand():
    """h₁ = a and h₂ = a x₁ with a = ln(3)/2: bits up with probability ¾."""
    a = 0.5 * np.log(3.0)
    one = torch.ones(1, 4, 1, 1, dtype=torch.float64)
    window, targets = one[:, :1], torch.ones(1, 1, 2, 1, dtype=torch.float64)
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    weights = torch.cat([one[:, :1], scale * one[:, 1:2], one[:, 2:]], 1)
    setting = {"beta": a, "gamma": 0.0}

    def slope(cost):
        return float(torch.autograd.grad(cost, scale, retain_graph=True)[0]) / a

    limit = rollout(weights, window=window, targets=targets, **setting).costs[0, 0]
    exact = exact_costs(weights[0], window=window[0], targets=targets[0], size=1, **setting)[0]
    assert float(exact[1].detach()) == pytest.approx(0.75 * np.log2(4 / 3) + 0.5, abs=1e-12)
    assert slope(limit[0]) == pytest.approx(-2.0 / np.log(2.0) / 4.0, abs=1e-12)
    chance = 1.0 / (1.0 + 3.0**0.5)
    assert slope(limit[1]) == pytest.approx(
        -2.0 / np.log(2.0) * chance * (0.5 + 0.75 * a), abs=1e-12
    )
    assert slope(exact[1]) == pytest.approx(-0.375 * np.log2(3.0), abs=1e-12)
    shape = (1, 4000, 1, 1)
    drawn = rollout(
        weights, window=window.repeat(shape), targets=targets.repeat(shape), size=1, **setting
    )
    ups = float((drawn.tokens[0, :, 1, 0] > 0).double().mean())
    direct = 2.0 / np.log(2.0) * np.array([0.25 * (1 + 0.75 * a), 0.75 * (-1 + 0.75 * a)])
    assert slope(drawn.costs[..., 1].mean()) == pytest.approx(
        -ups * direct[0] - (1 - ups) * direct[1], abs=1e-10
    )


def test_told_tokens_are_those_of_the_target_and_only_they_cost():
    weights, window, targets = _draw(4, steps=5)
    paths = rollout(
        weights[None], window=window[None], targets=targets[None, ..., :2], size=30, given=2,
        seed=3, **SETTING,
    )  # fmt: skip
    tokens = paths.tokens[0, :, 2:]
    assert torch.equal(tokens[:, 1::2, :2], targets[:, 1::2, :2])
    assert not torch.equal(tokens[:, ::2, :2], targets[:, ::2, :2])
    assert torch.equal(paths.costs[0] > 0, torch.tensor([[False, True] * 2 + [False]] * 2))
    # Of a told token the score holds the network's own segment alone: that of a single bit mean.
    field = _plain_field(weights.numpy(), paths.tokens[0, 0, 1:3].numpy(), **SETTING)[2]
    up, n = 1.0 / (1.0 + np.exp(-2.0 * field)), 10
    ups = n * (1.0 + float(tokens[0, 1, 2])) / 2
    wanted = ups * np.log(up) + (n - ups) * np.log(1.0 - up)
    assert float(paths.scores[0, 0, 1]) == pytest.approx(wanted, abs=1e-9)


def test_a_gradient_that_is_cut_sees_the_window_as_constant():
    weights, window, targets = _draw(5, steps=4)
    shared = {"window": window[None], "targets": targets[None], **SETTING}
    whole = rollout(weights[None], **shared)
    leaf = weights.clone().requires_grad_()
    cut = rollout(leaf[None], keep=1, **shared).costs.sum()
    found = torch.autograd.grad(cut, leaf)[0]
    wanted = torch.zeros_like(found)
    for step in range(4):
        leaf = weights.clone().requires_grad_()
        single = rollout(
            leaf[None], window=whole.tokens[:, :, step : step + 2],
            targets=targets[None, :, step : step + 1], **SETTING,
        )  # fmt: skip
        wanted += torch.autograd.grad(single.costs.sum(), leaf)[0]
    assert torch.allclose(found, wanted, atol=1e-12)
    leaf = weights.clone().requires_grad_()
    full = torch.autograd.grad(rollout(leaf[None], keep=4, **shared).costs.sum(), leaf)[0]
    assert not torch.allclose(found, full, atol=1e-3)


def test_bad_input_is_named():
    weights, window, targets = _draw(6)
    good = {"window": window[None], "targets": targets[None], **SETTING}
    with pytest.raises(ValueError, match="size must be a multiple of the 3"):
        rollout(weights[None], size=10, **good)
    with pytest.raises(ValueError, match="window"):
        rollout(weights[None], **good | {"window": window[None, ..., :2]})
    with pytest.raises(ValueError, match="visible"):
        rollout(weights[None], **good | {"targets": torch.ones(1, 2, 3, 4).double()})
    with pytest.raises(ValueError, match="2e7"):
        exact_costs(weights, window=window, targets=targets, size=60, **SETTING)
    with pytest.raises(ValueError, match="tokens that 2 bits"):
        exact_costs(weights, window=0.5 * window, targets=targets, size=6, **SETTING)
    paths = Paths(costs=torch.ones(1, 3, 2), scores=torch.ones(1, 3, 2), tokens=torch.ones(1))
    with pytest.raises(ValueError, match="copies"):
        surrogate(paths, kind="score", copies=2)
    with pytest.raises(ValueError, match="kind"):
        surrogate(paths, kind="mean")
    assert bits_of_segment(99, segments=11) == 9
    assert float(surprise(torch.tensor([0.0, 50.0]), target=torch.ones(2))) == pytest.approx(1.0)


def test_exact_sums_lose_no_probability():
    """Without a push every visible bit costs one bit, after any number of steps."""
    weights = torch.ones(4, 2, 2, dtype=torch.float64)
    window, targets = (torch.ones(1, steps, 2, dtype=torch.float64) for steps in (1, 12))
    costs = exact_costs(weights, window=window, targets=targets, beta=0.0, gamma=1.0, size=20)
    torch.testing.assert_close(costs, torch.full_like(costs, 2.0), rtol=0, atol=1e-11)
