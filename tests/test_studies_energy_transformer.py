"""The ladder of networks, their stacked training, what is measured in them, and the tables."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from compendium.c18_energy_transformer.energy_transformer import attention_gradient
from compendium.c18_energy_transformer.measures import align, follow, network_energy
from compendium.c18_energy_transformer.networks import (
    ARMS,
    TASKS,
    Network,
    core_parameters,
    rotated_updates,
)
from compendium.c18_energy_transformer.results import (
    EPOCHS,
    REFERENCES,
    RESULTS,
    SPLITS,
    TUNING,
    chosen_setting,
    network_rows,
    reference_rows,
)
from compendium.c18_energy_transformer.toys import angles_of, count_uphill, tokens_at
from compendium.c18_energy_transformer.training import (
    Start,
    hidden_patches,
    score,
    split_data,
    train_stack,
    tuning_data,
)
from compendium.common.images import digit_labels, digits
from spinformer.core.statistics import mean_interval


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape), dtype=torch.float32)


def network(arm, *, task="classes", step_size=0.7, seed=3):
    return Network(arm, task=task, step_size=step_size, seed=seed)


def no_hidden(count):
    return torch.zeros(count, 16, dtype=torch.bool)


def test_all_arms_have_the_parameters_of_the_energy_transformer_within_three_percent():
    counts = {arm: core_parameters(network(arm)) for arm in ARMS}
    assert counts["energy"] == counts["query side"] == 2 * 16 * 16 + 64 * 16 + 1 + 16
    assert all(abs(count / counts["energy"] - 1) < 0.03 for count in counts.values())


def test_arms_share_embedding_and_read_out_and_differ_in_the_step():
    patches = draw(2, 16, 4)
    models = {arm: network(arm) for arm in ARMS}
    tokens = {arm: m.embed(patches, no_hidden(2)) for arm, m in models.items()}
    for arm in ARMS:
        assert torch.equal(tokens[arm], tokens["tied"])
        assert torch.equal(models[arm].readout, models["tied"].readout)
    after = [m.step(tokens[arm], index=0) for arm, m in models.items()]
    for index, one in enumerate(after):
        assert all((one - other).abs().max() > 0.01 for other in after[:index])


def test_the_step_of_the_energy_arm_is_the_gradient_of_its_energy_and_no_other_arm_has_one():
    """The energy written out as a function of the normalised tokens, and autograd."""
    tokens = draw(1, 16, 16, seed=1).double()
    for arm, exact in (("energy", True), ("query side", False)):
        model = network(arm).double()
        seen = model.energy.normalize(tokens).detach().requires_grad_()
        maps = {"query_map": model.energy.query_map, "key_map": model.energy.key_map}
        scores = torch.einsum(
            "nd,hyd,hye,me->hnm", seen[0], maps["query_map"], maps["key_map"], seen[0]
        )
        energy = -math.sqrt(8) * torch.logsumexp(scores / math.sqrt(8), -1).sum()
        energy = energy - 0.5 * (seen[0] @ model.energy.patterns.T).relu().square().sum()
        force = torch.autograd.grad(energy, seen)[0]
        step = model.step(tokens, index=0) - tokens
        assert torch.allclose(step, -0.7 * force, rtol=1e-6) is exact
        assert float(network_energy(model, tokens).detach()) == pytest.approx(
            float(energy.detach())
        )


@pytest.mark.parametrize("arm", ARMS)
def test_the_step_size_scales_the_whole_step(arm):
    tokens = draw(2, 16, 16, seed=10).double()
    small, smaller = (
        network(arm, step_size=size).double().step(tokens, index=0) - tokens
        for size in (1e-4, 1e-6)
    )
    torch.testing.assert_close(0.01 * small, smaller, rtol=1e-3, atol=1e-8)


def test_tied_values_take_the_gradient_of_a_query_in_their_attention():
    model = network("tied values").double()
    tokens = draw(2, 16, 16, seed=2).double()
    parts = model.attend(tokens, index=0)
    as_query, _ = attention_gradient(parts.seen, query_map=parts.query_map, key_map=parts.key_map)
    torch.testing.assert_close(parts.update, -as_query)
    plain = network("tied").double().attend(tokens, index=0)
    assert plain.value_map is not plain.key_map


def test_a_plain_layer_is_that_of_the_framework():
    """torch's pre-LN encoder layer with the same weights."""
    model = network("tied", step_size=1.0)
    layer = model.layers[0]
    hidden = len(layer.into_hidden)
    frame = torch.nn.TransformerEncoderLayer(
        16, 2, hidden, dropout=0.0, batch_first=True, norm_first=True
    )
    maps = [layer.query_map, layer.key_map, layer.value_map]
    with torch.no_grad():
        frame.self_attn.in_proj_weight.copy_(torch.cat([m.flatten(0, 1) for m in maps]))
        frame.self_attn.in_proj_bias.zero_()
        frame.self_attn.out_proj.weight.copy_(layer.output_map.flatten(0, 1).T)
        frame.self_attn.out_proj.bias.zero_()
        frame.linear1.weight.copy_(layer.into_hidden)
        frame.linear1.bias.zero_()
        frame.linear2.weight.copy_(layer.from_hidden.T)
        frame.linear2.bias.zero_()
    tokens = draw(3, 16, 16, seed=4)
    torch.testing.assert_close(model.step(tokens, index=0), frame(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_a_stack_trains_each_network_as_adam_would_alone(task):
    data = split_data(0)
    starts = [
        Start(seed=4, rate=0.01, step_size=0.5),
        Start(seed=7, rate=0.003, step_size=1.0),
    ]
    few = type(data)(
        train_tokens=data.train_tokens[:96],
        train_labels=data.train_labels[:96],
        test_tokens=data.test_tokens,
        test_labels=data.test_labels,
    )
    stack = train_stack("energy", task=task, data=few, starts=starts, epochs=2, keep=[0]).networks
    for start, found in zip(starts, stack, strict=True):
        alone = Network("energy", task=task, step_size=start.step_size, seed=start.seed)
        generator = torch.Generator().manual_seed(1_000_003 + start.seed)
        optimizer = torch.optim.Adam(alone.parameters(), lr=start.rate)
        total, done = 6, 0
        for _ in range(2):
            for chosen in torch.randperm(96, generator=generator).split(32):
                for group in optimizer.param_groups:
                    group["lr"] = start.rate * (1 + math.cos(math.pi * done / total)) / 2
                patches = few.train_tokens[chosen]
                masks = hidden_patches(32, task=task, seed=generator)
                answer = alone(patches, masks)
                if task == "classes":
                    loss = functional.cross_entropy(answer, few.train_labels[chosen])
                else:
                    loss = (answer - patches)[masks].square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done += 1
        moved = (
            alone.energy.patterns
            - Network("energy", task=task, step_size=0.5, seed=start.seed).energy.patterns
        )
        assert moved.abs().max() > 3 * start.rate
        # Where a gradient is nearly zero, Adam's step is that of its rounding.
        wrong = (found.energy.patterns - alone.energy.patterns).abs()
        assert wrong.mean() < 0.01 * start.rate


def test_half_of_the_patches_are_hidden_and_every_patch_is_at_times():
    masks = hidden_patches(400, task="patches", seed=0)
    assert masks.sum(-1).unique().tolist() == [8]
    assert (masks.double().mean(0) - 0.5).abs().max() < 0.12
    assert not hidden_patches(3, task="classes", seed=0).any()


def test_hidden_pixels_do_not_reach_the_network():
    model, masks = network("energy", task="patches"), hidden_patches(2, task="patches", seed=1)
    patches = draw(2, 16, 4, seed=5)
    other = torch.where(masks.unsqueeze(-1), torch.tensor(9.0), patches)
    assert torch.equal(model(patches, masks), model(other, masks))


def test_no_image_of_the_tuning_is_in_a_test_set():
    tuned = tuning_data(SPLITS)
    count = len(tuned.train_labels) + len(tuned.test_labels)
    orders = [
        torch.randperm(len(digits()), generator=torch.Generator().manual_seed(split))
        for split in SPLITS
    ]
    held = [set(order[:599].tolist()) for order in orders]
    free = set(range(len(digits()))) - held[0] - held[1]
    assert count == len(free)
    wanted = np.bincount(digit_labels()[sorted(free)])
    got = torch.bincount(torch.cat([tuned.train_labels, tuned.test_labels])).numpy()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("arm", ["tied", "energy"])
def test_a_long_run_begins_with_the_forward_pass(arm):
    model, patches = network(arm), draw(5, 16, 4, seed=6)
    labels = torch.arange(5)
    found = follow(model, patches, labels=labels, hidden=no_hidden(5), steps=6)
    answer = model(patches.double(), no_hidden(5))
    assert found.score[4] == score(answer, patches=patches, labels=labels, hidden=no_hidden(5))
    tokens = model.embed(patches.double(), no_hidden(5))
    energies = []
    for step in range(7):
        energies.append(network_energy(model, tokens).detach())
        tokens = model.step(tokens, index=step)
    np.testing.assert_allclose(found.energy, torch.stack(energies).mean(-1))
    rises = (torch.stack(energies).diff(dim=0) > 0).double().mean(-1)
    np.testing.assert_array_equal(found.rise, rises)
    with pytest.raises(ValueError, match="network must have tied steps"):
        follow(network("untied"), patches, labels=labels, hidden=no_hidden(5), steps=1)


def test_the_controls_of_the_alignment_are_one_and_its_null_is_centred():
    patches = draw(20, 16, 4, seed=7)
    found = {arm: align(network(arm), patches, hidden=no_hidden(20), turns=40) for arm in ARMS}
    assert found["energy"].joint == pytest.approx(1, abs=1e-6)
    assert found["energy"].query < 0.99
    assert found["tied values"].query == pytest.approx(1, abs=1e-6)
    assert found["query side"].query == pytest.approx(1, abs=1e-6)
    assert found["query side"].joint < 0.99
    for arm in ("tied", "untied"):
        one = found[arm]
        assert abs(one.null) < 4 * one.deviation / 40**0.5
        assert abs(one.query) < 4 * one.deviation
    assert math.isnan(found["energy"].null)


def test_a_turn_keeps_the_norms_of_the_values_and_averages_to_nothing():
    model = network("tied").double()
    parts = model.attend(draw(2, 16, 16, seed=8).double(), index=0)
    one = (
        Network("tied", task="classes", step_size=1.0, seed=3)
        .double()
        .attend(draw(2, 16, 16, seed=8).double(), index=0)
    )
    generator = torch.Generator().manual_seed(0)
    turned = torch.stack([rotated_updates(parts, seed=generator) for _ in range(300)])
    assert turned.mean(0).norm() < 0.15 * parts.update.norm()
    # With an output map that keeps lengths a turn changes no length.
    head = type(one)(
        seen=one.seen,
        update=one.update,
        weights=one.weights[:, :1],
        query_map=one.query_map[:1],
        key_map=one.key_map[:1],
        value_map=one.value_map[:1],
        output_map=torch.eye(16, dtype=torch.float64)[None, :8],
    )
    plain = head.weights[:, 0] @ (head.seen @ head.value_map[0].T)
    torch.testing.assert_close(rotated_updates(head, seed=1).norm(dim=-1), plain.norm(dim=-1))


def test_scores_are_shares():
    patches, masks = draw(4, 16, 4, seed=9), hidden_patches(4, task="patches", seed=2)
    plain = {"patches": patches, "labels": torch.arange(4), "hidden": masks}
    assert score(patches, **plain) == 0
    assert score(torch.zeros_like(patches), **plain) == 1
    assert score(0.5 * patches, **plain) == pytest.approx(0.25)
    assert score(torch.eye(10)[[0, 1, 2, 9]], **plain) == 0.75


def test_angles_go_around_and_uphill_steps_need_steps_beyond_the_safe_one():
    angles = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(angles_of(tokens_at(angles)), angles)
    assert float(tokens_at(angles).sum(-1).abs().max()) < 1e-12
    found = count_uphill("opposed keys", factors=[1.0, 64.0], trials=3, seed=2)
    assert found.share[0] == 0
    assert found.share[1] > 0.5
    assert found.violations == 0


@pytest.mark.parametrize("task", TASKS)
def test_the_chosen_setting_is_the_best_of_the_table(task):
    """Most right answers, or least unexplained variance, among the trainings of one length."""
    table = TUNING[task].read()
    pick = {"classes": np.nanmax, "patches": np.nanmin}[task]
    for arm, epochs in product(ARMS, EPOCHS[task]):
        rows = (table["arm"] == arm) & (table["epochs"] == epochs)
        rate, size = chosen_setting(arm, task=task, epochs=epochs)
        best = rows & (table["rate"] == rate) & (table["step_size"] == size)
        assert table["score"][best].item() == pick(table["score"][rows])
        if task == "classes":
            chosen = RESULTS[task].read()
            trained = (chosen["arm"] == arm) & (chosen["epochs"] == epochs)
            assert set(chosen["rate"][trained]) == {rate}
            assert set(chosen["step_size"][trained]) == {size}


def test_references_come_out_again_and_the_completion_is_a_regression():
    table = REFERENCES.read()
    for row in reference_rows(0):
        stored = table["test"][(table["split"] == 0) & (table["task"] == row["task"])]
        assert row["test"] == pytest.approx(float(stored[0]), abs=0.01)


@pytest.mark.nightly
def test_one_seed_of_the_table_comes_out_again():
    """Trainings amplify rounding: accuracies within three points, alignments within 0.1."""
    table = RESULTS["classes"].read()
    rows = network_rows("tied", task="classes", split=0, epochs=12, seeds=(1,))
    for row in rows:
        stored = (table["arm"] == "tied") & (table["split"] == 0) & (table["epochs"] == 12)
        stored &= table["seed"] == row["seed"]
        for name, slack in (("test", 0.03), ("train", 0.03), ("query_12", 0.1), ("query_0", 1e-3)):
            assert row[name] == pytest.approx(table[name][stored].item(), abs=slack), name


def test_longer_training_shrinks_the_price_of_an_energy_and_leaves_some():
    """What the chapter says of the two lengths, on either split, from the table."""
    table = RESULTS["classes"].read()
    for split in (0, 1):
        gaps = []
        for epochs in EPOCHS["classes"]:
            here = (table["split"] == split) & (table["epochs"] == epochs)
            score = {arm: table["test"][here & (table["arm"] == arm)] for arm in ARMS}
            gaps.append(score["energy"] - score["tied"])
        assert mean_interval(gaps[1])[1] < 0
        assert mean_interval(gaps[1] - gaps[0])[0] > 0
