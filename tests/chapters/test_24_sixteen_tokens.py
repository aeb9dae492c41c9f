"""Masked copies and characters, the arms they add, and their tables."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import optimize

from compendium.c24_training import settings
from compendium.c24_training.sixteen import COPIES, MARKS, SYMBOLS, TOKENS, copy_task, train
from compendium.c24_training.study import fit, score
from compendium.common.classifiers import build_classifier
from compendium.common.token_tasks import crowd_share


def test_a_copy_is_the_content_that_bears_the_same_mark():
    tokens, labels = copy_task(0).test
    wrong = 0
    for sample, asked in zip(tokens[:60].numpy(), labels[:60].tolist(), strict=True):
        masked = [place for place, label in enumerate(asked) if label >= 0]
        marks = {}
        for place, token in enumerate(sample):
            content, mark, flag = token[:SYMBOLS], token[SYMBOLS:-1], token[-1]
            assert (flag > 0) == (place in masked)
            assert content.any() == (place not in masked)
            if mark.any():
                marks.setdefault(int(mark.argmax()), []).append(place)
        assert sorted(marks) == list(range(MARKS))
        for pair in marks.values():
            (source,) = (place for place in pair if place not in masked)
            (target,) = (place for place in pair if place in masked)
            wrong += int(sample[source, :SYMBOLS].argmax()) != asked[target]
    assert wrong == 0
    assert not torch.equal(copy_task(1).test[1], labels)
    assert torch.equal(copy_task(1).validation[1], copy_task(0).validation[1])
    # Sources and masked tokens stand anywhere, alike.
    assert (labels >= 0).double().mean(0).sub(MARKS / TOKENS).abs().max() < 0.07
    for count in (2, MARKS):
        draws = itertools.product(range(SYMBOLS), repeat=count)
        best = [max(Counter(draw).values()) / count for draw in draws]
        assert crowd_share(count, kinds=SYMBOLS) == pytest.approx(np.mean(best))
    values = np.random.default_rng(0).integers(0, 8, (20000, 7))
    most = (values[..., None] == np.arange(8)).sum(1).max(-1) / 7
    assert crowd_share(7, kinds=8) == pytest.approx(most.mean(), abs=0.003)


def test_couplings_of_places_by_plain_loops_and_a_root_finder():
    network = build_classifier("positions", seed=1, tokens=4, features=2, dim=6, heads=2, depth=1)
    layer = network.layers[0].double()
    layer.spins.map_in.data += 0.3 * torch.randn(6, 6, generator=torch.manual_seed(0)).double()
    tokens = torch.randn(2, 4, 6, generator=torch.manual_seed(1)).double()
    with torch.no_grad():
        found = layer(tokens).numpy()
    scores = layer.scores.detach().numpy()
    for sample in range(2):
        fields = (tokens[sample] @ layer.spins.map_in).detach().numpy()
        fields /= np.sqrt((fields**2).mean(1, keepdims=True))
        for head in range(2):
            h = fields[:, 3 * head : 3 * head + 3] / math.sqrt(3)
            couplings = np.zeros((4, 4))
            for i in range(4):
                others = [j for j in range(4) if j != i]
                total = sum(math.exp(scores[head, i, j]) for j in others)
                for j in others:
                    couplings[i, j] = 0.6 * math.exp(scores[head, i, j]) / total
            both = (couplings + couplings.T) / 2

            def lengths(t, both=both, h=h):
                inverse = np.linalg.inv(np.diag(t) - both)
                return np.diag(inverse) / 2 + ((inverse @ h / 2) ** 2).sum(1) - 1

            t = optimize.root(lengths, np.full(4, 2.0)).x
            want = math.sqrt(3) * np.linalg.inv(np.diag(t) - both) @ h / 2
            np.testing.assert_allclose(found[sample, :, 3 * head : 3 * head + 3], want, atol=1e-8)
    # Trained are the table, beta, g and the maps, not the queries and keys that it replaces.
    names = {name.rpartition(".")[2] for name, p in network.named_parameters() if p.requires_grad}
    assert {"scores", "log_beta", "log_strength", "map_in"} < names
    assert not {"query", "key"} & names


def test_every_token_is_read_and_only_what_is_asked_counts():
    task = copy_task(0)
    model = build_classifier("attention", seed=2, dim=8, depth=1, **task.shape)
    tokens, labels = (part[:20] for part in task.test)
    with torch.no_grad():
        logits = model(tokens)
        states = model.layers[0](model.embed(tokens))
    torch.testing.assert_close(logits[3, 7], model.readout(states[3, 7]).detach())
    right, loss = [], []
    for sample, place in (labels >= 0).nonzero().tolist():
        row = logits[sample, place].double().numpy()
        wanted = int(labels[sample, place])
        right.append(row.argmax() == wanted)
        loss.append(math.log(np.exp(row).sum()) - row[wanted])
    found = score(model, tokens, labels=labels)
    assert found == pytest.approx((np.mean(right), np.mean(loss)), rel=1e-5)
    assert len(right) == 20 * MARKS
    # Side by side is one by one with several answers a sample as well.
    given = {"steps": 4, "looks": (4,), "probed": 0, "batch": 8}

    def models():
        return [build_classifier("positions", seed=s, dim=8, depth=1, **task.shape) for s in (4, 5)]

    others = [task, copy_task(1)]
    both = fit(models(), tasks=others, rates=[1e-2, 3e-2], seeds=[7, 8], **given)
    alone = fit(models()[1:], tasks=others[1:], rates=[3e-2], seeds=[8], **given)
    assert alone[0][0].loss == pytest.approx(both[1][0].loss, rel=1e-3)


@pytest.mark.claim("B10b")
def test_copies_are_learned_in_front_of_frozen_couplings():
    """Live: sooner with trained couplings, with frozen ones beyond the crowd; then the tables."""
    task, crowd, right = copy_task(11), crowd_share(MARKS, kinds=SYMBOLS), {}
    tokens, labels = (part[:200] for part in task.test)
    for arm in ("saddle", "frozen couplings", "positions"):
        network = build_classifier(arm, seed=3, depth=1, strength=0.6, **task.shape)
        drawn = [p.detach().clone() for p in (network.parameters()) if not p.requires_grad]
        fit([network], tasks=[task], rates=[0.018], seeds=[3], steps=50, probed=0)
        right[arm] = score(network, tokens, labels=labels)[0]
        kept = [p for p in network.parameters() if not p.requires_grad]
        assert all(torch.equal(*pair) for pair in zip(drawn, kept, strict=True))
    assert right["saddle"] > right["frozen couplings"] + 0.05
    assert right["frozen couplings"] > 1.3 * crowd
    # Couplings that see no tokens lack the property.
    assert right["positions"] < 1.2 * crowd

    table = COPIES.read()
    places = table["accuracy"][table["arm"] == "positions"]
    assert abs(places.mean() - crowd) < 3 * places.std(ddof=1) / math.sqrt(10) + 0.005
    judged = settings.TABLES["B10b"].read()
    early = (judged["seen"] == "60 of 60") | (judged["seen"] == "30 of 60")
    assert (judged["low"][early] > 0).all()
    late = (judged["seen"] == "100 of 100") & (judged["measure"] == "accuracy")
    assert (judged["value"][late] < 0.01).all()


@pytest.mark.nightly
def test_the_table_holds_what_the_command_gives():
    """One training of the table again, alone."""
    table = COPIES.read()
    here = (table["arm"] == "attention") & (table["split"] == 1) & (table["start"] == 1)
    (row,) = train("attention", runs=[(1, 1)])
    assert abs(row["accuracy"] - table["accuracy"][here][0]) < 0.02
    assert row["parameters"] == table["parameters"][here][0]
