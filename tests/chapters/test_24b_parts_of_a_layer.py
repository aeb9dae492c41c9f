"""Chapter 24b: mixers exchanged, parts removed, correlations along a stack."""

import itertools

import numpy as np
import pytest
import torch
from grid_trainings import at_best
from open_cells import run_open_cells

from compendium.c24b_parts_of_a_layer import layer_parts
from compendium.c24b_parts_of_a_layer.cascade import log_growth, settings_b11b
from compendium.c24b_parts_of_a_layer.settings import GRIDS, LAYERS, MIXERS
from compendium.common.token_classifiers import build_classifier
from compendium.common.token_tasks import crowd_share, digit_task, recall_task
from compendium.common.token_training import probe_layers
from compendium.common.training_grids import Cell, accuracy_lead


@pytest.mark.claim("B8c")
def test_mixers_inside_a_layer_and_out_of_it():
    """What a mixer lets the asked token know, live; then the tables, line by line."""
    tokens = recall_task(3).test[0][:40]
    other = recall_task(4).test[0][:40]
    beside = torch.cat([other[:, :-1], tokens[:, -1:]], 1)
    moved = {}
    for arm in LAYERS:
        model = build_classifier(arm, seed=5, depth=1, **recall_task(3).shape)
        with torch.no_grad():
            here = model(tokens)
            there = model(beside)
        moved[arm] = float((here - there).norm() / here.norm())
    # Each token alone cannot be told from one beside other pairs: nothing can be looked up.
    assert moved.pop("layer of identity") == 0.0
    assert min(moved.values()) > 0.02
    patches = {
        arm: at_best(GRIDS["layers_digits"].table, arm=arm, strength=0.6) for arm in MIXERS + LAYERS
    }
    recall = {
        arm: at_best(GRIDS["layers_recall"].table, arm=arm, strength=0.6) for arm in MIXERS + LAYERS
    }
    cells = [Cell(arm, 0.6, 200) for arm in ("layer of spins", "layer of attention")]
    lead = accuracy_lead(GRIDS["layers_recall"], *cells, seen=200)
    gains = [
        recall["layer of spins"][k] - recall["layer of attention"][k] for k in recall["attention"]
    ]
    assert lead == pytest.approx(gains, abs=1e-12)
    crowd = crowd_share(7, kinds=8)
    for split in patches["attention"]:
        assert patches["layer of averaging"][split] > patches["attention"][split]
        for found in (patches, recall):
            assert abs(found["layer of spins"][split] - found["layer of attention"][split]) < 0.05
        assert max(recall["layer of averaging"][split], recall["averaging"][split]) < crowd + 0.05
        # Mixers that cannot look up lack the property that spins have there.
        assert recall["layer of attention"][split] > recall["layer of averaging"][split] + 0.5
        assert recall["layer of identity"][split] < 0.2


@pytest.mark.claim("B11")
def test_correlations_along_depth():
    """Untrained; free spins hand their own fields on, and build nothing."""
    tokens = digit_task(2).test[0][:30]
    labels = digit_task(2).test[1][:30]
    grown = {}
    for strength in (0.01, 0.6):
        stack = build_classifier(
            "saddle", seed=3, depth=4, strength=strength, **digit_task(0).shape
        )
        layers = probe_layers(stack, tokens, labels=labels)
        grown[strength] = layers[-1]["correlation"] - layers[0]["correlation"]
    assert abs(grown[0.01]) < 0.05
    assert grown[0.6] > 0.2


class Shift(torch.nn.Module):
    """x → a x + b: divides the relative change of x by |a x + b|/|a x|."""

    def __init__(self, scale, shift):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale), requires_grad=False)
        self.shift = torch.nn.Parameter(torch.tensor(shift), requires_grad=False)

    def forward(self, x):
        return self.scale * x + self.shift


@pytest.mark.claim("B11b")
def test_a_change_is_passed_on_by_layers_that_are_known():
    stack = build_classifier("identity", seed=1, depth=4, **digit_task(0).shape)
    tokens = digit_task(0).test[0][:5]
    here = stack.embed(tokens).detach()
    for scale, shift in ((3.0, 0.0), (-0.5, 0.0), (2.0, 4.0), (1.0, -20.0)):
        layers = [Shift(1.0, 0.0), Shift(1.0, 0.0), Shift(scale, shift), Shift(0.1, 0.0)]
        stack.layers = torch.nn.ModuleList(layers)
        ratio = (scale * here).norm() / (scale * here + shift).norm()
        found = log_growth(stack, tokens, seed=2)
        assert found == pytest.approx(float(ratio.log()), abs=1e-3)
    # Weak couplings hand the change on as it is, stronger ones mix it with what is unchanged.
    fresh = settings_b11b.rows(strength=0.1, rate=0.0018, count=2, updates=1)
    assert abs(fresh[0]["value"]) < 0.05
    table = settings_b11b.read()
    before = table["look"] == "before"
    assert (table["value"][before & (table["strength"] > 0.4)] < 0).all()
    assert (table["value"][~before]).mean() > 0.1


@pytest.mark.parametrize("task", ["digits", "recall"])
def test_networks_without_a_part_have_as_many_parameters(task):
    shape = layer_parts.TASKS[task](0).shape
    sizes = {
        (network["mixer"], network["removed"]): layer_parts.parameter_count(
            layer_parts.build_network(shape=shape, **network)
        )
        for network in layer_parts.NETWORKS
    }
    complete = sizes["attention", "nothing"]
    assert max(sizes.values()) < 1.06 * complete
    assert min(sizes.values()) > 0.94 * complete


def test_a_part_that_is_removed_is_gone():
    """Each by a property that only the network with it has."""
    task = recall_task(0)
    tokens = task.test[0][:6]
    other = task.test[0][6:12]
    network = {
        removed: layer_parts.build_network(
            mixer="none" if removed == "mixing" else "attention",
            removed=removed,
            shape=task.shape,
            seed=1,
        )
        for removed in ("nothing", *layer_parts.REMOVED)
    }
    # Mixing: whether other tokens reach the last one.
    beside = torch.cat([other[:, :-1], tokens[:, -1:]], 1)
    for removed, one in network.items():
        with torch.no_grad():
            same = torch.equal(one(tokens), one(beside))
        assert same == (removed == "mixing")
    # Skips: whether anything passes where both branches are silent.
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    for removed in ("nothing", "skip"):
        layer = layer_parts.PartialLayer(32, mixer="attention", removed=removed)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.zero_()
            assert bool((layer(states) == 0).all()) == (removed == "skip")
    # Normalization: whether the size of the states does not matter to what is mixed.
    for removed in ("nothing", "normalization"):
        layer = layer_parts.PartialLayer(32, mixer="averaging", removed=removed)
        with torch.no_grad():
            mixed = [layer.mixing(layer.before(size * states)) for size in (1.0, 3.0)]
        assert torch.allclose(*mixed, atol=1e-4) == (removed == "nothing")
    parts = {name for name, _ in network["feed-forward"].named_parameters()}
    assert not any("wide" in name for name in parts)


@pytest.mark.claim("B1b")
def test_what_is_lost_without_a_part_by_hand():
    """The stored accuracies at the rate of the least median validation loss."""
    table = layer_parts.layer_parts.read()
    for task, mixer in itertools.product(("digits", "recall"), layer_parts.MIXERS):
        found = {}
        for removed in ("nothing", "skip", "normalization"):
            here = (table["task"] == task) & (table["mixer"] == mixer)
            here &= table["removed"] == removed
            losses = {
                rate: np.median(table["held"][here & (table["rate"] == rate)])
                for rate in np.unique(table["rate"])
            }
            best = here & (table["rate"] == min(losses, key=losses.get))
            found[removed] = table["accuracy"][best]
            again = layer_parts.accuracies(task, mixer=mixer, removed=removed)
            assert again.tolist() == found[removed].tolist()
        assert abs(found["nothing"].mean() - found["normalization"].mean()) < 0.03
        # Averaging cannot learn recall, with skips or without.
        lost = found["nothing"].mean() - found["skip"].mean()
        assert (lost > 0.05) == ((task, mixer) != ("recall", "averaging"))


@pytest.mark.claim("B1c")
def test_what_a_second_part_costs_by_hand():
    """The worse of two parts by the mean over splits; a layer that has lost both of them."""
    table = layer_parts.settings_b1c.read()
    for task, mixer, pair in (
        ("digits", "averaging", ("normalization", "feed-forward")),
        ("recall", "attention", ("skip", "feed-forward")),
    ):
        here = np.char.startswith(table["data"], f"{task} {mixer} without {', '.join(pair)},")
        assert here.sum() == 3
        alone = [layer_parts.accuracies(task, mixer=mixer, removed=part)[:3] for part in pair]
        worse = min(alone, key=np.mean)
        np.testing.assert_allclose(table["alone"][here], worse)
        extra = worse - table["accuracy"][here]
        np.testing.assert_allclose(table["value"][here], extra - 0.03, atol=1e-6)
        # Two proportions of 500 answers, each with its own error.
        shares = np.stack([worse, table["accuracy"][here]])
        error = np.sqrt((shares * (1 - shares)).sum(0) / 500)
        half = (table["high"] - table["low"])[here] / 2
        np.testing.assert_allclose(half, 1.96 * error, rtol=0.3, atol=0.006)
    assert (table["low"][np.char.find(table["data"], "averaging without norm") >= 0][:3] > 0).all()
    # Averaging with neither normalization nor feed-forward network is linear, with either not.
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    for removed in ("normalization, feed-forward", "normalization", "feed-forward"):
        layer = layer_parts.PartialLayer(32, mixer="averaging", removed=removed)
        with torch.no_grad():
            linear = torch.allclose(layer(3 * states), 3 * layer(states), atol=1e-4)
        assert linear == (removed == "normalization, feed-forward")
    # Neither skips nor feed-forward network: what is mixed, and nothing else.
    layer = layer_parts.PartialLayer(32, mixer="attention", removed="skip, feed-forward")
    with torch.no_grad():
        assert torch.equal(layer(states), layer.mixing(layer.before(states)))


def test_the_open_cells_are_layers_of_the_package(monkeypatch):
    """Three layers with the same weights; the widths that match their numbers of parameters."""
    told = run_open_cells("24b_parts_of_a_layer")
    monkeypatch.setattr(layer_parts, "HEADS", 1)
    for skip, removed in ((1.0, "nothing"), (0.0, "skip")):
        state = torch.tensor(told["first_tokens"])
        for query_key, value, first, second in told["stack"]:
            layer = layer_parts.PartialLayer(32, mixer="attention", removed=removed).double()
            with torch.no_grad():
                projections = (query_key.T, np.eye(32), value.T)
                layer.mixing.project.weight.copy_(torch.tensor(np.concatenate(projections)))
                layer.mixing.output.weight.copy_(torch.eye(32))
                for place, weight in ((0, first), (2, second)):
                    layer.wide[place].weight.copy_(torch.tensor(weight.T))
                    layer.wide[place].bias.zero_()
                state = layer(state)
        apart = (state - state.mean(0)).norm() / state.norm()
        assert told["last_spread"][skip] == pytest.approx(apart.item(), rel=1e-6)
    assert told["last_spread"][0.0] < 0.1 < 0.5 < told["last_spread"][1.0]

    def size(dim, removed):
        layer = layer_parts.PartialLayer(dim, mixer="attention", removed=removed)
        return layer_parts.parameter_count(layer)

    assert told["goal"] == size(32, "nothing")
    widths = range(40, 80, 2)
    best = min(widths, key=lambda dim: abs(size(dim, "feed-forward") - told["goal"]))
    assert told["matched_width"] == best


def test_normalization_is_judged_on_new_splits_at_the_rates_of_the_old(monkeypatch):
    """The loss of every split minus what an essential part costs, with the interval of counts."""
    asked = []

    def trained(task, *, mixer, removed, rates, splits):
        asked.append((task, mixer, removed, tuple(rates), tuple(splits)))
        lost = {"nothing": 0.0, "normalization": 0.1}[removed]
        return [{"accuracy": 0.95 - lost - 0.01 * number} for number, _ in enumerate(splits)]

    monkeypatch.setattr(layer_parts, "train_networks", trained)
    rows = layer_parts.settings_b1b.rows("digits", mixer="attention")
    for (_, _, removed, rates, splits), wanted in zip(
        asked, ("nothing", "normalization"), strict=True
    ):
        assert removed == wanted
        assert rates == (layer_parts.chosen_rate("digits", mixer="attention", removed=removed),)
        assert not set(splits) & {*layer_parts.SPLITS}
        assert len(splits) == len(rows)
    assert len({row["data"] for row in rows}) == len(rows)
    for number, row in enumerate(rows):
        share = np.array([0.95, 0.85]) - 0.01 * number
        assert row["value"] == pytest.approx(0.1 - layer_parts.COST)
        half = 1.96 * np.sqrt((share * (1 - share)).sum() / layer_parts.ANSWERS)
        assert row["high"] - row["low"] == pytest.approx(2 * half, rel=0.05)
        assert row["runs"] == 2


def test_two_removed_parts_are_compared_with_the_worse_of_them(monkeypatch):
    alone = {"skip": np.array([0.9, 0.8, 0.7]), "mixing": np.array([0.5, 0.5, 0.65])}
    asked = []

    def accuracies(task, *, mixer, removed):
        asked.append((mixer, removed))
        return alone[removed]

    def train_networks(task, *, mixer, removed, rates, splits):
        """The second rate has the least median loss, and the accuracies 0.3, 0.31 and 0.32."""
        return [
            {"held": abs(place - 1) + 0.1 * split, "accuracy": 0.3 * place + 0.01 * number}
            for place in range(len(rates))
            for number, split in enumerate(splits)
        ]

    monkeypatch.setattr(layer_parts, "accuracies", accuracies)
    monkeypatch.setattr(layer_parts, "train_networks", train_networks)
    rows = layer_parts.settings_b1c.rows("recall", mixer="none", removed="skip, mixing")
    # What mixes besides is attention.
    assert asked == [("attention", "skip"), ("none", "mixing")]
    np.testing.assert_allclose([row["alone"] for row in rows], alone["mixing"])
    np.testing.assert_allclose([row["accuracy"] for row in rows], [0.3, 0.31, 0.32])
    np.testing.assert_allclose([row["value"] for row in rows], [0.17, 0.16, 0.3])
