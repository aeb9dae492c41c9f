"""Masked copies and characters, the arms they add, and their tables."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from compendium.c24_training import sixteen
from compendium.c24_training.sixteen import (
    COUNTS,
    EXPERIMENTS,
    MARKS,
    RESULTS,
    SHORTER,
    SYMBOLS,
    TOKENS,
    TUNING,
    character_task,
    copy_task,
    text_parts,
    train,
)
from compendium.c24_training.study import fit, score
from compendium.c24_training.tables import choice
from compendium.common.classifiers import build_classifier
from compendium.common.help_text import ALPHABET, WEIGHTS, help_text
from compendium.common.token_tasks import crowd_share
from spinformer.spins.module import Solver


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


def test_windows_are_pieces_of_the_text_without_three_characters():
    text = help_text()
    parts = [text_parts(split) for split in range(5)]
    tests = [part["test"] for part in parts]
    assert all(torch.equal(part["validation"], text.tensor_split(10)[0]) for part in parts)
    assert sum(map(len, tests)) == pytest.approx(len(text) / 2, abs=5)
    for split, part in enumerate(parts):
        held = torch.cat([part["validation"], part["test"]])
        assert len(part["train"]) + len(held) == len(text)
        together = torch.bincount(torch.cat([held, part["train"]]), minlength=len(ALPHABET))
        assert torch.equal(together, torch.bincount(text, minlength=len(ALPHABET)))
        assert torch.equal(part["test"], text.tensor_split(10)[1 + 2 * split])
    task = character_task(2)
    whole = "".join(chr(65 + c) for c in parts[2]["test"].tolist())
    for row in (0, 1, 2, 3, 700):
        shown, asked = task.test[0][row].argmax(-1), task.test[1][row]
        masked = [place for place in range(TOKENS) if asked[place] >= 0]
        first = 1 + row % 4
        assert masked == [first, first + 5, first + 10]
        assert all(int(shown[place]) == len(ALPHABET) for place in masked)
        window = torch.where(asked >= 0, asked, shown).tolist()
        assert whole[32 * row : 32 * row + 16] == "".join(chr(65 + c) for c in window)
    drawn, labels = task.sample(50, torch.Generator().manual_seed(3))
    pieces = torch.where(labels >= 0, labels, drawn.argmax(-1))
    train = "".join(chr(65 + c) for c in parts[2]["train"].tolist())
    assert all("".join(chr(65 + c) for c in piece) in train for piece in pieces.tolist())
    assert {int(row.nonzero()[0]) for row in labels >= 0} == {1, 2, 3, 4}


def test_counted_neighbours_by_dictionaries():
    """Bits of masked characters of a small piece, the constants found by trying all."""
    sizes = {"train": 3000, "validation": 600, "test": 600}
    cut = {name: text_parts(0)[name][:size] for name, size in sizes.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sixteen, "text_parts", lambda split: cut)
        found = sixteen.masked_count_bits(0)
    train, size = cut["train"].tolist(), len(ALPHABET)
    ones, twos = Counter(train), Counter(itertools.pairwise(train))
    around = Counter(zip(train, train[1:], train[2:], strict=False))
    gaps = Counter(zip(train, train[2:], strict=False))

    def one(c):
        return (ones[c] + 1) / (len(train) + size)

    def two(c, a, weight):
        return (twos[a, c] + weight * one(c)) / (sum_of[a] + weight)

    sum_of = Counter(train[:-1])

    def bits(part, weight, weight_both=None):
        total, count = 0.0, 0
        text = cut[part].tolist()
        for row, start in enumerate(range(0, len(text) - TOKENS, 2 * TOKENS)):
            for place in (1 + row % 4 + 5 * k for k in range(3)):
                a, c, b = text[start + place - 1 : start + place + 2]
                chance = two(c, a, weight)
                if weight_both is not None:
                    both = [two(x, a, weight) * two(b, x, weight) for x in range(size)]
                    chance = (around[a, c, b] + weight_both * both[c] / sum(both)) / (
                        gaps[a, b] + weight_both
                    )
                total, count = total - math.log2(chance), count + 1
        return total / count

    pair = min(WEIGHTS, key=lambda w: bits("validation", w))
    both = min(WEIGHTS, key=lambda w: bits("validation", pair, w))
    assert found["bigram"] == pytest.approx(bits("test", pair))
    assert found["trigram"] == pytest.approx(bits("test", pair, both))


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


def test_the_fixed_point_has_no_limit_and_is_one():
    layer = build_classifier("fixed point", seed=0, tokens=3, features=2, dim=8).layers[0].double()
    assert layer.solver == Solver("fixed point", max_steps=300)
    assert layer.coupling_limit is None
    with torch.no_grad():
        layer.log_strength -= 1
        _, parts = layer(torch.randn(1, 3, 8).double(), return_parts=True)
    h, m, pair = (x[0, 0].numpy() for x in (parts.fields, parts.solution.value, parts.couplings))
    pair = pair + pair.T
    np.fill_diagonal(pair, 0.0)
    for i in range(3):
        field = h[i].copy()
        for j in range(3):
            field += pair[i, j] * m[j] - pair[i, j] ** 2 * (1 - m[j] @ m[j]) * m[i]
        want = 2 * field / (1 + math.sqrt(1 + 4 * field @ field))
        np.testing.assert_allclose(m[i], want, atol=1e-9)


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


def column(table, arm, name):
    return table[name][table["arm"] == arm]


def test_copies_are_learned_in_front_of_frozen_couplings():
    """Live, against the crowd; then the tables with an interval of scipy's own."""
    task = copy_task(11)
    shape = {"depth": 1, "strength": 0.6, **task.shape}
    network = build_classifier("frozen couplings", seed=3, **shape)
    drawn = network.layers[0].query.detach().clone()
    fit([network], tasks=[task], rates=[0.01], seeds=[3], steps=80, probed=0)
    tokens, labels = (part[:200] for part in task.test)
    assert score(network, tokens, labels=labels)[0] > 1.5 * crowd_share(MARKS, kinds=SYMBOLS)
    assert torch.equal(network.layers[0].query, drawn)

    copies, text = RESULTS["copies"].read(), RESULTS["characters"].read()
    assert np.array_equal(
        column(copies, "saddle", "accuracy"), column(copies, "frozen couplings", "accuracy")
    )
    both = [column(text, arm, "bits") for arm in ("frozen couplings", "saddle")]
    assert len(both[0]) == 10
    interval = stats.ttest_rel(*both).confidence_interval(0.95)
    # Bits saved by training the couplings: none.
    assert interval.low < 0
    assert interval.high < 0.02
    places = column(copies, "positions", "accuracy")
    crowd = crowd_share(MARKS, kinds=SYMBOLS)
    assert abs(places.mean() - crowd) < 3 * places.std(ddof=1) / math.sqrt(10) + 0.005


def test_tables_hold_what_the_command_gives():
    """One training of the table again, alone; the choice by hand; the counts of one split."""
    rate, strength = choice("copies", arm="attention", tuning=TUNING["copies"])
    tuning = TUNING["copies"].read()
    losses = tuning["loss"][tuning["arm"] == "attention"].reshape(3, 2).mean(1)
    assert rate == (0.003, 0.01, 0.03)[losses.argmin()]
    assert not {90, 91} & set(SHORTER.read()["split"])
    (row,) = train(
        EXPERIMENTS["copies"],
        arm="attention",
        runs=[(1, 1)],
        rate=rate,
        strength=strength,
        steps=100,
    )
    table = SHORTER.read()
    here = (table["arm"] == "attention") & (table["split"] == 1) & (table["start"] == 1)
    assert abs(row["accuracy"] - table["accuracy"][here][0]) < 0.02
    assert row["parameters"] == table["parameters"][here][0]
    assert math.isnan(row["converged"])
    counts = COUNTS.read()
    # Another Python ships another text.
    for name, bits in sixteen.masked_count_bits(2).items():
        assert bits == pytest.approx(counts[name][2], abs=0.15)


def test_the_meter_is_the_mean_over_layers():
    given = {"runs": [(0, 0)], "rate": 0.01, "strength": 2.0, "steps": 1}
    (row,) = train(EXPERIMENTS["characters"], arm="one step", **given)
    task = character_task(0)
    network = build_classifier("one step", seed=0, depth=2, strength=2.0, **task.shape)
    fit([network], tasks=[task], rates=[0.01], seeds=[0], steps=1, probed=0)
    tokens, labels = task.test
    with torch.no_grad():
        chances = network(tokens).softmax(-1).double()
        network(tokens[:40])
    told = [
        chances[n, place, label]
        for n, place in (labels >= 0).nonzero()
        for label in [labels[n, place]]
    ]
    assert row["bits"] == pytest.approx(-np.mean(np.log2(told)), rel=1e-3)
    apart = [float(layer.validity().summary()["distance"]) for layer in network.layers]
    assert row["distance"] == pytest.approx(np.mean(apart), rel=0.01)
    assert row["converged"] == 0
