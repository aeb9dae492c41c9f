"""Stuck trainings of recall: what is read, what is renewed, the race, and the two tables."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from compendium.c24_training.tables import LONGER
from compendium.c24c_copies_and_characters.stuck import (
    FREED,
    PARTS,
    STUCK,
    STUCK_BELOW,
    belongs,
    reading,
    trained,
    with_fresh,
)
from compendium.common.classifiers import build_classifier
from compendium.common.token_tasks import crowd_share, recall_task


def test_what_a_network_reads_by_plain_loops():
    task = recall_task(3)
    model = build_classifier("saddle", seed=5, depth=1, strength=1.5, **task.shape)
    tokens = task.test[0][:40]
    with torch.no_grad():
        said = model(tokens).argmax(-1).tolist()
        _, parts = model.layers[0](model.embed(tokens), return_parts=True)
    couplings, fields = parts.couplings.numpy(), parts.fields.double().numpy()
    crowd, focus, keyed = [], np.zeros((40, 2)), {key: [] for key in range(8)}
    for row, sample in enumerate(tokens.numpy()):
        values = [int(token[8:16].argmax()) for token in sample[:7]]
        crowd.append(values.count(said[row]) == max(map(values.count, values)))
        for place, token in enumerate(sample[:7]):
            keyed[int(token[:8].argmax())].append(fields[row, :, place])
            if token[:8].argmax() == sample[7, :8].argmax():
                for head in range(2):
                    looks = couplings[row, head, 7]
                    focus[row, head] = looks[place] / looks.sum()
    shares = []
    for head in range(2):
        groups = [np.array(group)[:, head] for group in keyed.values()]
        every = np.concatenate(groups)
        within = sum(((group - group.mean(0)) ** 2).sum() for group in groups)
        shares.append(1 - within / ((every - every.mean(0)) ** 2).sum())
    found = reading(model, tokens)
    assert found["crowd"] == np.mean(crowd)
    assert found["focus"] == pytest.approx(focus.mean(0).max(), rel=1e-4)
    assert found["keys"] == pytest.approx(max(shares), rel=1e-4)


def test_recipes_and_parts_touch_what_they_say():
    names = [name for name, _ in trained(0, recipe="as before", steps=1)[0].named_parameters()]
    parts = {part: {n for n in names if belongs(n, part=PARTS[part])} for part in PARTS}
    assert parts["couplings"] | parts["all but couplings"] == set(names)
    assert not parts["couplings"] & parts["all but couplings"]
    assert parts["fields"] | parts["answers"] == parts["all but couplings"]
    assert parts["fields"] == {
        *("embedding.weight", "embedding.bias", "position", "layers.0.map_in")
    }
    # The first step of Adam is as long as the rate.
    start = build_classifier("saddle", seed=1, depth=1, **recall_task(0).shape)
    moved = {}
    for recipe in ("as before", "half the rate", "fixed fields"):
        after = trained(0, recipe=recipe, steps=1)[1]
        moved[recipe] = {
            name: float((value - start.state_dict()[name]).abs().max())
            for name, value in after.state_dict().items()
        }
    for name in names:
        if not name.startswith("layers.0.log"):
            assert moved["as before"][name] == pytest.approx(0.01, rel=0.01)
            assert moved["half the rate"][name] == pytest.approx(0.005, rel=0.01)
    assert all(moved["fixed fields"][name] == 0 for name in parts["fields"])
    assert all(moved["fixed fields"][name] > 0 for name in parts["couplings"])
    # What is drawn anew is another drawing, what is kept is what was there.
    other = build_classifier("saddle", seed=9, depth=1, **recall_task(0).shape).state_dict()
    for part, touched in parts.items():
        found = with_fresh(start, part=PARTS[part], seed=9).state_dict()
        for name in names:
            want = other if name in touched else start.state_dict()
            assert torch.equal(found[name], want[name])


@pytest.mark.parametrize(("start", "learns"), [(1.2, False), (1.40, False), (1.43, True)])
def test_the_race_is_won_above_root_two(start, learns):
    """Descent of L = a² (1 − w) with gradients by autograd, integrated."""

    def slope(_, point):
        at = torch.tensor(point, requires_grad=True)
        (back,) = torch.autograd.grad(at[0] ** 2 * (1 - at[1]), at)
        return -back.numpy()

    def arrived(_, point):
        return point[1] - 1.5

    arrived.terminal = True
    path = solve_ivp(slope, (0, 60), [start, 0.0], events=arrived, rtol=1e-8, atol=1e-10)
    assert (path.y[1, -1] > 1.4) == learns
    constant = (path.y[1] - 1) ** 2 - path.y[0] ** 2 / 2
    np.testing.assert_allclose(constant, 1 - start**2 / 2, atol=1e-6)
    if not learns:
        assert path.y[0, -1] < 1e-3
        assert path.y[1, -1] == pytest.approx(1 - math.sqrt(1 - start**2 / 2), abs=1e-3)


def test_stuck_networks_of_the_tables_answer_with_the_crowd():
    """Stuck in one table is stuck in the other, and in the one of chapter 24 for its splits."""
    table, longer, freed = STUCK.read(), LONGER.read(), FREED.read()
    base = table["recipe"] == "as before"
    low = base & (table["accuracy"] < STUCK_BELOW)
    early = (longer["arm"] == "saddle") & (longer["steps"] == 400)
    early &= longer["accuracy"] < STUCK_BELOW
    assert len(table["split"][base]) == 20
    assert set(zip(freed["split"], freed["start"], strict=True)) == {
        *zip(table["split"][low], table["start"][low], strict=True),
        *zip(longer["split"][early], longer["start"][early], strict=True),
    }
    crowd = crowd_share(7, kinds=8)
    stays = freed["accuracy"][(freed["renewed"] == "answers") & (freed["accuracy"] < 0.9)]
    np.testing.assert_allclose(stays, crowd, atol=0.05)
    np.testing.assert_allclose(table["accuracy"][low], crowd, atol=0.15)
    fields = freed["accuracy"][freed["renewed"] == "fields"]
    nothing = freed["accuracy"][freed["renewed"] == "nothing"]
    assert fields.min() > 0.9 > np.median(nothing)
