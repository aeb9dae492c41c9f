"""Driven spins that learn: study, arms, entropy production from simulated steps, the tables."""

import math
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from open_cells import run_open_cells

from compendium.c25b_learning_under_a_drive import frozen, rattling, study
from compendium.c25b_learning_under_a_drive.directions import simulated_entropy
from compendium.c25b_learning_under_a_drive.study import (
    ALPHABET,
    ARMS,
    LOOKS,
    PAIRS,
    UPDATES,
    WEIGHTS,
    WINDOW,
    Network,
    chosen_setting,
    counts_table,
    draw_recall,
    help_text,
    score,
    stationary_spins,
    text_part,
    train,
    whole_windows,
)
from spinformer.spins.large_d import driven_step, entropy_rate, langevin_response


@pytest.fixture(scope="module")
def trained():
    """The first seed of the table again."""
    rate, strength = chosen_setting("driven", task="recall")
    return train("driven", task="recall", rate=rate, strength=strength, seed=0, looks=LOOKS)


def answered(tokens, said):
    """Whether each answer to a question is the value of its key, from a dictionary."""
    for sequence, answers in zip(tokens.tolist(), said.tolist(), strict=True):
        pairs = dict(sequence[:PAIRS])
        asked = zip(sequence[PAIRS:], answers[PAIRS:], strict=True)
        yield [pairs[key] == answer for (key, _), answer in asked]


def test_arms_differ_in_what_their_names_say():
    tokens = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))
    layers = {arm: Network(arm, task="recall", strength=2.0, seed=3).layer for arm in ARMS}
    counts = {arm: sum(p.numel() for p in layer.parameters()) for arm, layer in layers.items()}
    assert counts.pop("attention") == pytest.approx(counts["driven"], rel=0.04)
    assert len(set(counts.values())) == 1
    mixed = {arm: layers[arm].mixer(tokens, return_parts=True) for arm in counts}
    for arm in ("one step", "naive", "symmetric", "uniform"):
        assert (mixed[arm][0] - mixed["driven"][0]).abs().max() > 1e-3
    assert torch.equal(mixed["frozen"][0], mixed["driven"][0])
    assert not layers["frozen"].mixer.query.requires_grad
    want = 2.0 * torch.ones(7, 7).tril(-1) / torch.arange(7).clamp(min=1)[:, None]
    torch.testing.assert_close(mixed["uniform"][1].couplings[0, 0], want)
    assert (layers["one step"].mixer.steps, layers["naive"].mixer.theory) == (1, "naive")


def test_every_question_has_its_answer_among_the_pairs_and_shuffled_ones_by_chance():
    for shuffled, share in ((False, 1.0), (True, 1 / PAIRS)):
        batch = draw_recall(300, seed=1, shuffled=shuffled)
        for sequence, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            pairs = dict(sequence[:PAIRS])
            assert sorted(pairs.values()) == sorted(targets[PAIRS:]) == list(range(PAIRS))
            assert {tuple(asked) for asked in sequence[PAIRS:]} == {(key, PAIRS) for key in pairs}
        right = list(answered(batch.tokens, batch.targets))
        assert np.mean(right) == pytest.approx(share, abs=0.03)


def test_no_part_of_the_text_is_in_two_places():
    for split in (0, 1):
        sizes = [len(text_part(part, split=split)) for part in ("train", "validation", "test")]
        assert sum(sizes) == len(help_text())
        assert sizes[2] == pytest.approx(0.1 * len(help_text()), rel=0.01)
    last = text_part("test", split=0)
    flat = text_part("test", split=1)
    assert torch.equal(last, help_text()[-len(last) :])
    windows = whole_windows(flat)
    assert torch.equal(windows.tokens[..., 0].flatten(), flat[: windows.targets.numel()])
    assert torch.equal(windows.targets[:, :-1], windows.tokens[:, 1:, 0])
    assert windows.tokens[0, :, 1].tolist() == list(range(WINDOW))


def test_counted_pairs_and_triples_by_dictionaries():
    """Bits of a small piece of text, with the chosen constants found by trying all."""
    pieces = {"train": 3000, "validation": 700, "test": 700}
    cut = {part: text_part(part, split=0)[:size] for part, size in pieces.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "text_part", lambda part, *, split: cut[part])
        (found,) = counts_table.rows(split=0)
    train = cut["train"].tolist()
    ones = Counter(train)
    before = Counter(train[:-1])
    twos = Counter(pairwise(train))
    pairs_before = Counter(pairwise(train[:-1]))
    threes = Counter(zip(train, train[1:], train[2:], strict=False))

    def bits(part, weight, weight_three=None):
        losses = []
        text = cut[part].tolist()
        for place in range((len(text) - 1) // WINDOW * WINDOW):
            z = text[place - 1]
            a = text[place]
            b = text[place + 1]
            one = (ones[b] + 1) / (len(train) + len(ALPHABET))
            chance = (twos[a, b] + weight * one) / (before[a] + weight)
            if weight_three is not None and place % WINDOW:
                below = weight_three * chance
                chance = (threes[z, a, b] + below) / (pairs_before[z, a] + weight_three)
            losses.append(-math.log2(chance))
        return np.mean(losses)

    two = min(WEIGHTS, key=lambda w: bits("validation", w))
    three = min(WEIGHTS, key=lambda w: bits("validation", two, w))
    assert found["bigram"] == pytest.approx(bits("test", two))
    assert found["trigram"] == pytest.approx(bits("test", two, three))


def test_only_causal_networks_say_the_same_before_the_future_is_written():
    batch = whole_windows(text_part("test", split=0)[: 12 * WINDOW + 1])
    for arm in ARMS:
        network = Network(arm, task="text", strength=3.0, seed=1).double()
        past = score(network, batch, past_alone=True)["bits"]
        whole = score(network, batch, past_alone=False)["bits"]
        gap = abs(past - whole)
        assert gap > 1e-3 if arm == "symmetric" else gap < 1e-12


def test_the_error_of_simulated_entropy_is_its_scatter():
    couplings = np.array([[0.0, 0.8], [0.1, 0.0]])
    system = {"fields": np.eye(2, 8) / 2, "beta": 1.0, "steps": 4, "replicas": 50}
    found = [simulated_entropy(couplings, **system, seed=seed) for seed in range(60)]
    scatter = np.std([float(one.value) for one in found], ddof=1)
    assert np.mean([float(one.error) for one in found]) == pytest.approx(scatter, rel=0.3)
    # Replicas are independent, their steps are not.
    assert found[0].samples == 50


@pytest.mark.claim("B13b")
def test_a_driven_layer_looks_up_and_reads_nothing_of_the_future(trained):
    """Answers from a dictionary; derivatives of the past by the future."""
    network = trained[UPDATES]
    batch = draw_recall(100, seed=77)
    with torch.no_grad():
        said = network(batch.tokens).argmax(-1)
    assert np.mean(list(answered(batch.tokens, said))) > 0.5
    inputs = network.embed(batch.tokens[:4]).detach().requires_grad_()
    (slope,) = torch.autograd.grad(network.layer(inputs)[:, :10].square().sum(), inputs)
    assert slope[:, 10:].abs().max() == 0
    assert slope[:, 9].abs().max() > 0


def test_entropy_production_of_a_trained_layer_in_simulated_steps(trained):
    """Spins of 16 components with the trained couplings, before and after."""
    tokens = draw_recall(1, seed=5).tokens
    simulated = []
    for network in (trained[0], trained[UPDATES]):
        mixer, parts = stationary_spins(network, tokens)
        fields = network.embed(tokens)[0].double() @ mixer.map_in
        fields = fields / fields.square().mean(-1, keepdim=True).sqrt()
        heads = zip(parts.couplings[0], fields.detach().split(16, -1), mixer.log_beta, strict=True)
        run = {"steps": 36, "replicas": 100}
        found = [
            simulated_entropy(j.numpy(), fields=h.numpy() / 4, beta=b.exp().item(), **run).value
            for j, h, b in heads
        ]
        simulated.append(np.mean(found))
        assert simulated[-1] == pytest.approx(float(parts.entropy_production.mean()), rel=0.1)
    assert simulated[1] < simulated[0]


def test_the_open_cells_take_the_steps_of_the_package():
    """With diagonal correlations a step is the layer's; the pair's entropy is exact."""
    told = run_open_cells("25b_learning_under_a_drive")
    fields = torch.tensor(told["six_tokens"])
    coupling = torch.rand(6, 6, dtype=torch.float64).tril(-1)
    beta = torch.ones(1, 1, dtype=torch.float64)
    mean = langevin_response(fields, beta)
    np.testing.assert_allclose(told["free_means"](told["six_tokens"]), mean, atol=1e-12)
    diagonal = torch.diag(1 - mean.square().sum(-1))
    after, _, _ = driven_step(
        mean, diagonal, couplings=coupling, fields=fields, beta=beta, theory="large D"
    )
    by_cell, _ = told["driven_means"](mean.numpy(), coupling.numpy(), told["six_tokens"])
    np.testing.assert_allclose(by_cell, after, atol=1e-12)
    # Nothing of the last token reaches the others.
    assert (told["changes"][:5] == 0).all()
    assert told["changes"][5] > 0.1
    one_way = torch.tensor(told["one_direction"])
    fields = torch.eye(2, dtype=torch.float64)
    mean = langevin_response(fields, beta)
    covariance = torch.diag(1 - mean.square().sum(-1))
    for _ in range(3):
        mean, covariance, delayed = driven_step(
            mean, covariance, couplings=one_way, fields=fields, beta=beta, theory="large D"
        )
    np.testing.assert_allclose(told["pair_means"], mean, atol=1e-12)
    rate = entropy_rate(delayed, couplings=one_way, beta=beta) / 2
    assert told["pair_entropy"] == pytest.approx(float(rate), abs=1e-12)


@pytest.mark.parametrize("arm", ["attention", "driven", "symmetric"])
def test_every_setting_of_an_arm_is_tried_on_the_validation_part(arm, monkeypatch):
    trained = []
    scored = []

    def train(kind, *, task, rate, strength, seed):
        trained.append((kind, task, rate, strength))
        return {study.UPDATES: trained[-1]}

    def score(network, held, *, past_alone):
        scored.append((held, past_alone))
        return {"bits": network[2] + 10 * network[3]}

    monkeypatch.setattr(study, "train", train)
    monkeypatch.setattr(study, "score", score)
    monkeypatch.setattr(study, "held_batch", lambda task, part: (task, part))
    monkeypatch.setattr(study, "_thinned", lambda held: "a quarter")
    rows = study.tuning_table.rows("text", arm=arm)
    tried = {(row["rate"], row["strength"]): row["bits"] for row in rows}
    # Attention has no strength of couplings to choose.
    strengths = {*study.STRENGTHS[:1]} if arm == "attention" else {*study.STRENGTHS}
    assert {*tried} == {(rate, strength) for rate in study.RATES for strength in strengths}
    assert all(bits == rate + 10 * strength for (rate, strength), bits in tried.items())
    assert {one[:2] for one in trained} == {(arm, "text")}
    # Couplings that look ahead are judged by the past alone.
    alone = arm == "symmetric"
    assert set(scored) == {("a quarter" if alone else ("text", "validation"), alone)}


def test_trained_arms_are_scored_on_the_test_part_at_their_chosen_setting(monkeypatch):
    trained = []

    def train(kind, *, task, rate, strength, seed, shuffled=False, split=0, looks=()):
        trained.append((kind, task, rate, strength, seed, shuffled, split))
        return {update: update for update in (*looks, study.UPDATES)}

    def spins(network, tokens):
        seen.append(len(tokens))
        log_strength = torch.log(torch.tensor([1.0, 3.0])) + 0 * network
        parts = SimpleNamespace(entropy_production=torch.tensor([1.0, 2.0]) + network)
        return SimpleNamespace(log_strength=log_strength), parts

    def score(network, held, *, past_alone=False):
        return {"bits": network + 0.25 * len(held.tokens) + 0.5 * past_alone}

    def held(task, *, part, split=0):
        parts.append((task, part, split))
        return SimpleNamespace(tokens=torch.zeros(400, 2))

    seen = []
    parts = []
    for name, fake in {
        "train": train,
        "stationary_spins": spins,
        "score": score,
        "held_batch": held,
        "_thinned": lambda batch: SimpleNamespace(tokens=batch.tokens[::4]),
    }.items():
        monkeypatch.setattr(study, name, fake)
    for arm in (*study.ARMS, study.SHUFFLED):
        rows = study.recall_table.rows(arm, seed=7)
        kind = "driven" if arm == study.SHUFFLED else arm
        chosen = study.chosen_setting(kind, task="recall")
        assert trained[-1] == (kind, "recall", *chosen, 7, arm == study.SHUFFLED, 0)
        assert [row["update"] for row in rows] == [*study.LOOKS, study.UPDATES]
        for row in rows:
            assert row["bits"] == row["update"] + 100
            if arm == "attention":
                assert np.isnan([row["entropy"], row["strength"]]).all()
            else:
                assert row["entropy"] == pytest.approx(1.5 + row["update"])
                assert row["strength"] == pytest.approx(2.0)
    assert parts == [("recall", "test", 0)] * len(parts)
    for arm in study.TEXT_ARMS:
        (row,) = study.text_table.rows(arm, split=1, seed=5)
        chosen = study.chosen_setting(arm, task="text")
        assert trained[-1] == (arm, "text", *chosen, 5, False, 1)
        assert row["bits"] == study.UPDATES + 100
        assert row["bits_quarter"] == study.UPDATES + 25
        assert row["bits_past"] == study.UPDATES + 25.5
        if arm == "attention":
            assert np.isnan([row["entropy_before"], row["entropy_after"]]).all()
        else:
            assert row["entropy_before"] == pytest.approx(1.5)
            assert row["entropy_after"] == pytest.approx(1.5 + study.UPDATES)
    assert parts[-1] == ("text", "test", 1)


def test_networks_learn_text_from_windows_drawn_from_the_training_part(monkeypatch):
    """Each character is to be answered by the one that follows it; looks are kept copies."""
    batches = []
    whole = study.text_part("train", split=1)

    def batch(text, *, starts):
        assert torch.equal(text, whole)
        batches.append(starts)
        return text_batch(text, starts=starts)

    text_batch = study.text_batch
    monkeypatch.setattr(study, "text_batch", batch)
    monkeypatch.setattr(study, "UPDATES", 3)
    monkeypatch.setattr(study, "BATCH", 5)
    chosen = {"task": "text", "rate": 0.01, "strength": study.STRENGTHS[0], "seed": 4, "split": 1}
    kept = study.train("attention", looks=(0, 2), **chosen)
    assert sorted(kept) == [0, 2, 3]
    assert len(batches) == 3
    assert all(len(starts) == len(set(starts.tolist())) == 5 for starts in batches)
    assert not torch.equal(batches[0], batches[1])
    assert max(int(starts.max()) for starts in batches) + study.WINDOW < len(whole)
    weights = [
        torch.cat([part.detach().flatten() for part in kept[k].parameters()]) for k in sorted(kept)
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    # Adam's first steps are as long as the rate.
    assert float((weights[1] - weights[0]).abs().max()) < 2.5 * 0.01
    assert float((weights[1] - weights[0]).abs().max()) > 0.5 * 0.01


def test_every_line_of_robustness_that_reads_stored_runs_is_what_they_give():
    """Of all choices, not of the one that is checked with every table."""
    table = study.settings_b13b
    lines = [row for unit in table.units for row in table.rows(**unit)]
    stored = table.read()
    for name in ("value", "low", "high", "runs"):
        assert [line[name] for line in lines] == pytest.approx(stored[name], rel=1e-5, abs=1e-9)
    assert all(line["low"] <= line["value"] <= line["high"] for line in lines)


def test_the_lag_of_spins_whose_couplings_change():
    """One spin with a self-coupling that grows steadily: the lag of a scalar map, by iteration."""
    step = 1e-4
    drive = np.array([[0.3]])
    for steps in (1, 3):
        coupling = np.array([[0.4]])
        means = frozen.fixed_means(np.zeros((1, 1)), couplings=coupling, drive=drive)
        fixed = means
        for _ in range(200):
            coupling = coupling + step
            for _ in range(steps):
                means = np.tanh(drive + coupling * means)
            before = fixed
            fixed = frozen.fixed_means(fixed, couplings=coupling, drive=drive)
        lag = frozen.predicted_lag(fixed, fixed - before, couplings=coupling, steps=steps)
        np.testing.assert_allclose(means - fixed, lag, rtol=0.01)
    # Without loops nothing is left after as many steps as there are spins.
    chain = np.array([[0.0, 0.0, 0.0], [0.7, 0.0, 0.0], [0.2, 0.9, 0.0]])
    moved = np.array([[0.1, 0.2, 0.3]])
    lag = frozen.predicted_lag(np.zeros((1, 3)), moved, couplings=chain, steps=3)
    np.testing.assert_allclose(lag, 0.0, atol=1e-15)
    run = {"steps": 60, "strength": 0.3, "duration": 24.0, "seed": 3}
    slow = frozen.learn_while_relaxing(rate=0.2, **run)
    assert slow.loss[-1] < 0.02 * slow.loss[0]
    assert slow.lag.max() < 1e-10


@pytest.mark.claim("B13c")
def test_couplings_that_are_shaken_settle_where_they_rattle_least():
    """Moves by a loop over all cases; the exact density of one coupling; both signs of γ."""
    x = np.array([0.4, -0.7])
    for taught in (0.0, 0.3):
        moves, weights = [], []
        for inputs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            mean = math.tanh(x @ inputs)
            up = (1 - taught) * (1 + mean) / 2 + taught / 2
            for answer, chance in ((1, up), (-1, 1 - up)):
                moves.append((answer - mean) * np.array(inputs))
                weights.append(chance / 4)
        covariance = np.cov(np.transpose(moves), aweights=weights, ddof=0)
        expected = 0.5 * np.linalg.slogdet(covariance)[1]
        assert rattling.rattling(x, taught=taught) == pytest.approx(expected, rel=1e-12)
    # Between walls the density is that of no flux, 1/C, up to the finite rate.
    run = {"walkers": 400, "moves": 6000, "seed": 5}
    samples = rattling.walk(1, rate=0.04, taught=0.0, **run)
    # Walls reflect: no walker stays on one.
    assert (np.abs(samples) < 1).all()
    counts, edges = np.histogram(samples, bins=np.linspace(-0.8, 0.8, 9), density=True)
    density = np.cosh((edges[1:] + edges[:-1]) / 2) ** 2
    np.testing.assert_allclose(counts / counts.mean(), density / density.mean(), atol=0.15)
    grid, exact = rattling.density_of_one_coupling(0.04, taught=0.0)
    np.testing.assert_allclose(exact, np.cosh(grid) ** 2 / (1 + np.sinh(2) / 2), rtol=1e-4)
    slopes = []
    for pull in (0.0, 4.0):
        samples = rattling.walk(2, rate=0.08, taught=0.08 * pull, **run)
        slopes.append(rattling.rattling_slope(samples, taught=0.08 * pull))
    assert slopes[0] > 0.5
    assert slopes[1] < -5
