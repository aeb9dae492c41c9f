"""Learning through the limit: rollouts and gradients, tasks, tables, and their claims."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, product
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.optimize import approx_fprime

from compendium.c36_learning_through_the_limit import horizons, learning
from compendium.c36_learning_through_the_limit.learning import Text, examples, rollout, surrogate
from spinformer.core.statistics import student_interval
from spinformer.dmft.finite_size import generate, mean_path, semantic_overlaps
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import MOTIONS

BETA = 1.3
GAMMA = 4.0


def test_the_open_cells_give_the_gradients_of_the_package():
    cells = run_open_cells("36_learning_through_the_limit")
    theta = cells["theta"].clone().requires_grad_()
    text = Text(window=cells["start"][None, None], targets=cells["targets"][None, None])
    costs, _, _ = rollout(torch.tanh(theta)[None], text, kind="limit")
    # The package adds the three segments up, the cells average them.
    (gradient,) = torch.autograd.grad(costs.sum() / 3, theta)
    assert cells["limit_gradient"] == pytest.approx(gradient.flatten(), abs=1e-12)

    def cost(flat):
        weights = torch.tanh(torch.as_tensor(flat).reshape(1, 4, 3, 3))
        return float(cells["write"](weights)[0])

    plain = approx_fprime(cells["theta"].flatten().numpy(), cost, 1e-7)
    assert cells["limit_gradient"].numpy() == pytest.approx(plain, abs=1e-5)
    # As the chapter says in words.
    assert cells["variances"]["REINFORCE"][0] > 100 * cells["variances"]["straight-through"][0]
    # Many bits: both are unbiased up to their noise, of one set of draws.
    torch.manual_seed(0)
    for kind, (few, many) in cells["variances"].items():
        mean = cells["path_gradients"](kind, 99_999).mean(0)
        gap = (mean - cells["limit_gradient"]).square().sum() / cells["squared_norm"]
        assert gap < 10 * many / 1000 + 1e-6
        power = np.log(many / few) / np.log(99_999 / 999)
        assert power == pytest.approx(-1.0 if kind == "straight-through" else 0.0, abs=0.15)


def _draw(seed, *, starts=2, steps=3, context=2, features=2, segments=3):
    rng = np.random.default_rng(seed)
    weights = torch.as_tensor(np.tanh(rng.standard_normal((4, features, segments))))
    window = torch.as_tensor(rng.choice([-1.0, 1.0], (starts, context, segments)))
    targets = torch.as_tensor(rng.choice([-1.0, 1.0], (starts, steps, segments)))
    return weights, window, targets


def _rolled(
    weights,
    window,
    targets,
    *,
    kind="limit",
    size=0,
    cut=False,
    seed=0,
    given=0,
    beta=BETA,
    gamma=GAMMA,
):
    """`rollout` of one network: costs, scores and tokens of its paths."""
    text = Text(window[None], targets[None], beta=beta, gamma=gamma, given=given)
    rolled = rollout(weights[None], text, kind=kind, size=size, cut=cut, seed=seed)
    return [part[0] for part in rolled]


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
        field = _plain_field(explicit, path[-len(window) :], BETA, GAMMA)
        up = 1.0 / (1.0 + np.exp(-2.0 * field))
        for place, sign in enumerate(targets[step]):
            own = up[place * bits]
            costs[step] -= chance * np.log2(own if sign > 0 else 1.0 - own)
        for token in map(np.array, product((-1.0, 1.0), repeat=size)):
            own = np.prod(np.where(token > 0, up, 1.0 - up))
            follow(np.vstack([path, token]), chance * own, step + 1)

    follow(path, 1.0, 0)
    return costs


@pytest.mark.parametrize(("size", "steps"), [(3, 3), (6, 2)])
def test_exact_costs_are_sums_over_all_texts(size, steps):
    weights, window, targets = _draw(0, steps=steps + (size == 3))
    text = Text(window[None], targets[None], beta=BETA, gamma=GAMMA)
    found = learning.exact_costs(weights, text, size=size)
    for costs, *start in zip(found, window.numpy(), targets.numpy(), strict=True):
        assert np.allclose(costs, _enumerated(weights.numpy(), *start, size), atol=1e-12)


def test_the_limit_is_the_mean_path_of_the_network_of_signs():
    rng = np.random.default_rng(1)
    network = Network(
        semantic=rng.choice([-1.0, 1.0], (4, 3, 5)),
        position=np.ones((4, 3, 0)),
        context=2,
        gamma=3.0,
        epsilon=0.0,
    )
    window = rng.uniform(-1.0, 1.0, (2, 5))
    targets = rng.choice([-1.0, 1.0], (6, 4))
    path = mean_path(network, 0.9, window=window, steps=6)
    given = (torch.tensor(part) for part in (network.semantic, window[None], targets[None]))
    costs, scores, tokens = _rolled(*given, beta=0.9, gamma=3.0)
    assert np.allclose(tokens[0], path, atol=1e-13)
    chance = 0.5 * (1.0 + targets * path[2:, :4])
    assert np.allclose(costs[0], -np.log2(chance).sum(1), atol=1e-12)
    assert float(scores.abs().max()) == 0.0


def test_drawn_paths_have_the_exact_mean_cost_and_reinforce_its_gradient():
    weights, window, targets = _draw(3, steps=4)
    copies = 40
    updates = 250
    size = 6
    leaf = weights.clone().requires_grad_()
    text = Text(window[None], targets[None], beta=BETA, gamma=GAMMA)
    exact = learning.exact_costs(leaf, text, size=size).mean()
    wanted = torch.autograd.grad(exact, leaf)[0]
    for baseline in (copies, 1):
        many = weights.expand(updates, -1, -1, -1).clone().requires_grad_()
        costs, scores, _ = rollout(
            many, text.repeated(updates, copies), kind="score", size=size, seed=baseline
        )
        value = surrogate(costs, scores, kind="score", copies=baseline)
        found = torch.autograd.grad(value.sum(), many)[0]
        for drawn, truth in ((value, exact), (found, wanted)):
            drawn = drawn.detach().flatten(1 if drawn.ndim > 1 else 0)
            truth = truth.detach()
            error = drawn.std(0) / updates**0.5
            assert float(((drawn.mean(0) - truth.flatten()) / error).abs().max()) < 4.0


def test_the_weight_of_a_score_is_what_came_later_less_that_of_the_other_copies():
    copies = 3
    starts = 2
    steps = 4
    costs = torch.as_tensor(np.random.default_rng(0).random((1, copies * starts, steps)))
    scores = torch.zeros_like(costs, requires_grad=True)
    value = surrogate(costs, scores, kind="score", copies=copies)
    found = torch.autograd.grad(value.sum(), scores)[0]
    for copy, start, step in np.ndindex(copies, starts, steps):
        later = [float(costs[0, c * starts + start, step + 1 :].sum()) for c in range(copies)]
        others = [value for c, value in enumerate(later) if c != copy]
        wanted = (later[copy] - np.mean(others)) / (copies * starts * steps)
        assert float(found[0, copy * starts + start, step]) == pytest.approx(wanted, abs=1e-14)


def test_told_tokens_are_those_of_the_target_and_only_they_cost():
    weights, window, targets = _draw(4, steps=5)
    costs, scores, path = _rolled(weights, window, targets[..., :2], size=30, given=2, seed=3)
    tokens = path[:, 2:]
    assert torch.equal(tokens[:, 1::2, :2], targets[:, 1::2, :2])
    assert not torch.equal(tokens[:, ::2, :2], targets[:, ::2, :2])
    assert torch.equal(costs > 0, torch.tensor([[False, True] * 2 + [False]] * 2))
    # Of a told token the score holds the network's own segment alone: that of a single bit mean.
    field = _plain_field(weights.numpy(), path[0, 1:3].numpy(), BETA, GAMMA)[2]
    up = 1.0 / (1.0 + np.exp(-2.0 * field))
    n = 10
    ups = n * (1.0 + float(tokens[0, 1, 2])) / 2
    wanted = ups * np.log(up) + (n - ups) * np.log(1.0 - up)
    assert float(scores[0, 1]) == pytest.approx(wanted, abs=1e-9)


def test_a_gradient_that_is_cut_sees_the_window_as_constant():
    weights, window, targets = _draw(5, steps=4)

    def gradient(window, targets, *, cut=False):
        leaf = weights.clone().requires_grad_()
        costs, _, _ = _rolled(leaf, window, targets, cut=cut)
        return torch.autograd.grad(costs.sum(), leaf)[0]

    tokens = _rolled(weights, window, targets)[2]
    found = gradient(window, targets, cut=True)
    single = [gradient(tokens[:, n : n + 2], targets[:, n : n + 1]) for n in range(4)]
    assert torch.allclose(found, sum(single), atol=1e-12)
    assert not torch.allclose(found, gradient(window, targets), atol=1e-3)


def _test_bytes():
    """The stretches (B, 10) of the test part, read from what a network is given and to write."""
    window, targets, *_ = examples("bytes", seeds=[7, 8], part="test")
    assert torch.equal(window[0], window[1])
    assert float(window[:, :, ::2].abs().max()) == 0.0
    assert torch.equal(targets[0, :, ::2], targets[0, :, 1::2])
    signs = torch.cat([window[0, :, 1::2, : learning.BYTE], targets[0, :, 1::2]], 1).numpy()
    return np.packbits(signs > 0, axis=-1)[..., 0]


def test_targets_follow_their_windows():
    cycle = learning.draw_cycle(5)
    path = torch.cat(examples("cycle", seeds=[5])[:2], 2)[0].numpy()
    assert np.array_equal(path, cycle[(np.arange(8)[:, None] + np.arange(16)) % 8])
    text = bytes(learning.text_bytes("test"))
    assert all(bytes(stretch) in text for stretch in _test_bytes())
    # In the training part every seed and every update has its own.
    first = examples("bytes", seeds=[7, 8], draw=0).targets
    again = examples("bytes", seeds=[7, 8], draw=1).targets
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, again)


def test_shuffled_targets_keep_their_tokens_and_lose_their_order():
    for task in ("cycle", "bytes"):
        plain = examples(task, seeds=[3])[1][0].flatten(0, 1)
        mixed = examples(task, seeds=[3], shuffled=True)[1][0].flatten(0, 1)
        assert not torch.equal(plain, mixed)
        assert torch.equal(plain.unique(dim=0), mixed.unique(dim=0))
        assert torch.equal(plain.sum(0), mixed.sum(0))


def test_the_tables_of_bytes_are_counts():
    read = list(learning.text_bytes("train"))
    pairs = Counter(pairwise(read))
    alone = Counter(read)
    told = []
    for before, after in chain.from_iterable(map(pairwise, _test_bytes()[:, 1:])):
        share = (alone[after] + 0.5) / (len(read) + 128)
        follow = alone[before] - (read[-1] == before)
        told.append(-np.log2((pairs[before, after] + 10 * share) / (follow + 10)) / 8)
    found = learning.tables()
    assert found["bytes after a byte"] == pytest.approx(np.mean(told))
    assert 1.0 > found["bits after a byte"] > found["bytes after a byte"]


def test_seeds_that_are_trained_together_do_not_touch_each_other():
    both = learning.train("cycle", seeds=(4, 5), updates=3, rate=0.03)
    alone = learning.train("cycle", seeds=(4,), updates=3, rate=0.03)
    assert torch.allclose(both[1.0][0], alone[1.0][0], atol=1e-12)
    assert float((both[1.0] - both[0.0]).abs().max()) > 0.01


def test_every_update_draws_anew(monkeypatch):
    drawn = Mock(side_effect=learning.rollout)
    monkeypatch.setattr(learning, "rollout", drawn)
    learning.train("cycle", seeds=(4,), updates=3, rate=0.03, gradient="score", size=99)
    assert len({call.kwargs["seed"] for call in drawn.call_args_list}) == 3


@pytest.mark.parametrize("size", [0, 99])
@pytest.mark.parametrize("task", ["cycle", "bytes"])
def test_a_network_that_knows_nothing_loses_a_bit_per_bit(task, size):
    nothing = torch.zeros(1, 4, learning.FEATURES, learning.SEGMENTS, dtype=torch.float64)
    assert learning.losses(nothing, task, seeds=(0,), size=size) == pytest.approx(1.0)


FRESH = (300, 301, 302)


@pytest.fixture(scope="module")
def fresh():
    """Short trainings of seeds that no table holds, with a tenth of its budget."""
    short = partial(learning.train, "cycle", seeds=FRESH, updates=32, rate=0.1)
    trained = {
        "limit": short(gradient="limit"),
        "straight": short(gradient="straight", size=9900),
        "score": short(gradient="score", size=9900, copies=8),
    }
    return {name: torch.tanh(theta[1.0]) for name, theta in trained.items()}


@pytest.mark.claim("C19")
def test_at_equal_work_the_limit_beats_reinforce_and_equals_straight_through(fresh):
    """A replication of the tables with other seeds and a smaller budget."""
    found = {
        name: learning.losses(theta, "cycle", seeds=FRESH, size=9900)
        for name, theta in fresh.items()
    }
    assert student_interval(found["limit"] - found["score"])[1] < -0.1
    assert abs((found["limit"] - found["straight"]).mean()) < 0.1


@pytest.mark.claim("C19b")
def test_what_was_trained_in_the_limit_works_at_finite_size(fresh):
    """In trainings of other seeds, tenfold better for ten times the bits."""
    loss = partial(learning.losses, fresh["limit"], "cycle", seeds=FRESH)
    limit = loss(size=0)
    few = loss(size=990)
    many = loss(size=9900)
    assert 3.0 < (few - limit).mean() / (many - limit).mean() < 40.0
    assert student_interval(many - limit)[1] < 0.02


@pytest.mark.claim("C19d")
def test_the_power_of_the_excess_on_the_cycle_is_open():
    """Seeds drawn with replacement: the power of the mean lies in the range in one draw of four."""
    rng = np.random.default_rng(0)

    def power(found):
        return np.polyfit(np.log(learning.SIZES), np.log(found.mean(1)), 1)[0]

    cycle = np.array([learning.excess("cycle", size) for size in learning.SIZES])
    drawn = np.array([power(cycle[:, rng.integers(20, size=20)]) for _ in range(400)])
    assert 0.05 < (np.abs(drawn + 1.0) < 0.25).mean() < 0.95


@pytest.mark.claim("C19c")
def test_the_gradient_grows_at_the_exponent_of_the_motion():
    network = Network.poclopez2024()
    table = horizons.growth_table.read()
    starts = random_contexts(network, 5, count=64)
    for motion, beta in (("chaos at 1.266", 1.266), ("chaos at 1.28", 1.28)):
        spectrum = lyapunov_spectrum(
            network, starts, beta=beta, steps=20_000, transient=4160, count=1
        )
        rates = spectrum.exponents.value
        # At 1.266 a few contexts in a thousand begin on the closed curve, where nothing grows.
        rate = rates[rates > 0.02].mean()
        low, high = student_interval(horizons.growth_slopes(table, motion, first=64, last=128))
        assert low < rate < high < 2.0 * rate


def test_gradients_of_many_starts_are_those_of_each():
    network = Network.poclopez2024()
    starts = random_contexts(network, 2, count=3)
    together = horizons.gradient_norms(network, starts, beta=1.28, horizons=(2, 6))
    for number in range(3):
        alone = horizons.gradient_norms(network, starts.select(number), beta=1.28, horizons=(2, 6))
        assert together[number] == pytest.approx(alone, rel=1e-12)


def test_gradient_norms_are_those_of_finite_differences():
    network = Network.poclopez2024()
    start = Context(np.random.default_rng(0).uniform(-0.5, 0.5, (4, 3)), 1)
    found = horizons.gradient_norms(network, start, beta=1.2, horizons=(1, 5))

    def signals(weights):
        moved = replace(network, semantic=weights.reshape(4, 3, 3))
        return trajectory(moved, start, beta=1.2, steps=5)[0][[0, 4], 0]

    weights = network.semantic.ravel()
    slopes = np.mean([approx_fprime(weights, signals, size) for size in (1e-6, -1e-6)], axis=0)
    assert np.allclose(found, np.linalg.norm(slopes, axis=1), rtol=1e-6)


@pytest.mark.parametrize("motion", ["periodic", "quasi-periodic"])
def test_starts_of_a_regular_motion_lie_along_one_orbit_at_one_position(motion):
    network = Network.poclopez2024()
    beta = MOTIONS[motion].beta
    starts = horizons.growth_starts(network, motion, chunk=0)
    turns = network.positions * MOTIONS[motion].spacing
    _, ahead = trajectory(network, starts, beta=beta, steps=1, transient=turns - 1)
    assert ahead.position == starts.position
    assert np.abs(ahead.attention[:-1] - starts.attention[1:]).max() < 1e-6


def test_the_sampled_derivative_is_a_difference_of_sampled_means():
    network = Network.poclopez2024().with_parameters(gamma=10.0)
    beta = 1.2
    step = 0.05
    runs = 12_000
    window = np.array([[0.5, -0.5, 0.2]] * 4)
    found = horizons.sampled_derivative(
        network, 99, beta=beta, window=window, position=3, steps=3, runs=runs, seed=0
    )
    texts = partial(
        generate,
        network,
        99,
        window=window,
        position=3,
        steps=3,
        runs=runs,
        seed=1,
        draw_window=False,
    )
    high = texts(beta=beta + step).tokens
    low = texts(beta=beta - step).tokens
    wanted = semantic_overlaps(network, (high - low)[:, 4:].mean(0) / (2 * step))
    assert np.abs(found - wanted).max() < 0.04 < 0.05 < np.abs(wanted).max()


def test_arms_learn_at_their_best_setting_and_are_tested_on_other_examples(monkeypatch):
    trained = []
    measured = []

    def train(task, **chosen):
        trained.append((task, chosen))
        return {0.5: torch.full((10, 2), 0.5), 1.0: torch.full((10, 2), 2.0)}

    def losses(weights, task, *, seeds, size=0, part="test"):
        measured.append((part, size))
        return np.full(len(seeds), float(weights[0, 0]) + size)

    monkeypatch.setattr(learning, "train", train)
    monkeypatch.setattr(learning, "losses", losses)
    for arm, changed in learning.ARMS.items():
        trained.clear()
        measured.clear()
        (row,) = learning.tuning_table.rows("cycle", arm=arm, copies=2, rate=0.3)
        (task, chosen), rule = trained[0], learning.TASKS["cycle"]
        assert task == "cycle"
        assert {name: chosen[name] for name in changed._fields} == changed._asdict()
        assert (chosen["updates"], chosen["rate"], chosen["copies"]) == (rule.budget, 0.3, 2)
        # Seeds that choose are not those that are shown; the arm's own N judges.
        assert len(chosen["seeds"]) == rule.tuned
        assert measured == [("validation", changed.size)]
        assert row["loss"] == pytest.approx(np.tanh(2.0) + changed.size)
        trained.clear()
        measured.clear()
        rows = learning.learning_table.rows("cycle", arm=arm, block=1, updates=7)
        ((_, later),) = trained
        assert not {*later["seeds"]} & {*chosen["seeds"]}
        assert later["updates"] == 7
        assert {part for part, _ in measured} == {"test"}
        assert len(rows) == 20
        for row in rows:
            theta = {0.5: 0.5, 1.0: 2.0}[row["share"]]
            assert row["limit"] == pytest.approx(np.tanh(theta))
            assert row["signs"] == 1.0
            for size in learning.SIZES:
                assert row[f"n{size}"] == pytest.approx(np.tanh(theta) + size)
        assert [row["seed"] for row in rows[:10]] == list(range(10, 20))
        table = learning.tuning_table.read()
        own = (table["task"] == "cycle") & (table["arm"] == ("limit" if changed.shuffled else arm))
        best = table["loss"][own].min()
        used = own & (table["rate"] == later["rate"]) & (table["copies"] == later["copies"])
        assert table["loss"][used].tolist() == [best]
