"""Tasks, arms, probes, Monte Carlo of a module, the training loop, and the stored tables."""

import csv
import statistics

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from sklearn.datasets import load_digits

from compendium.c24_training import grids, settings
from compendium.c24_training.meter import METER
from compendium.c24_training.study import (
    difference,
    fit,
    probe_layers,
    sample_module,
    score,
    train_arm,
    values_of,
)
from compendium.c24_training.tables import (
    DIGITS,
    EXPERIMENTS,
    RATES,
    RECALL,
    REFERENCES,
    TUNING,
    TUNING_SPLITS,
    choice,
)
from compendium.common.classifiers import (
    ARMS,
    COUPLINGS,
    TokenClassifier,
    build_classifier,
    parameter_count,
    transformer_width,
)
from compendium.common.token_tasks import (
    crowd_share,
    digit_images,
    digit_task,
    digits_as_tokens,
    recall_task,
)
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.vectors import one_spin

SHAPE = digit_task(0).shape


def _digits(arm, seed=0, **shape):
    return build_classifier(arm, seed=seed, **{**SHAPE, **shape})


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_tokens_are_the_patches_of_the_images(patch):
    data = digits_as_tokens(patch=patch, seed=3, dtype=torch.float64)
    image = load_digits().images[1234]
    side = 8 // patch
    together = torch.cat([data.train_tokens, data.test_tokens])
    assert together.shape == (1797, side**2, patch**2)
    assert abs(float(data.train_tokens.mean())) < 1e-12
    assert abs(float(data.train_tokens.std()) - 1) < 1e-12
    # The image, cut by slices, must be among the tokens once the scaling is undone.
    cut = np.stack(
        [
            image[r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].ravel()
            for r in range(side)
            for c in range(side)
        ]
    )
    low, high = float(together.min()), float(together.max())
    restored = (together - low) / (high - low) * 16
    assert float((restored - torch.tensor(cut)).abs().amax((-1, -2)).min()) < 1e-9
    other = digits_as_tokens(patch=patch, seed=4, dtype=torch.float64)
    assert not torch.equal(other.test_labels, data.test_labels)


def test_splits_share_no_image_and_all_the_validation():
    parts = [digit_images(split)[2] for split in (0, 1)]
    for train, held, test in parts:
        assert [len(rows) for rows in (train, held, test)] == [1000, 297, 500]
        assert len(np.unique(np.concatenate([train, held, test]))) == 1797
    assert np.array_equal(parts[0][1], parts[1][1])
    assert not np.array_equal(parts[0][2], parts[1][2])
    # Patches of two rows and four columns: the mean of an image is that of its tokens.
    task = digit_task(1)
    images, labels, (train, _, test) = digit_images(1)
    assert task.test[0].shape == (500, 8, 8)
    assert task.test[1].tolist() == labels[test].tolist()
    top = task.test[0][:, 0].reshape(-1, 2, 4).numpy()
    want = images[test].reshape(-1, 8, 8)[:, :2, :4]
    scale = images[train].std()
    np.testing.assert_allclose(top, (want - images[train].mean()) / scale, atol=2e-3)
    drawn, wanted = task.sample(40, torch.Generator().manual_seed(0))
    pool = digit_task(1, images=1000).test[0]
    assert all((token != pool).flatten(1).any(1).all() for token in drawn[:5])
    assert wanted.shape == (40,)


def test_recall_asks_for_the_value_of_a_key_that_is_there():
    tokens, labels = recall_task(0).test
    for sample, label in zip(tokens[:50].numpy(), labels[:50].tolist(), strict=True):
        asked = sample[-1, :8].argmax()
        holder = [row for row in sample[:-1] if row[:8].argmax() == asked]
        assert len(holder) == 1
        assert holder[0][8:16].argmax() == label
        assert sample[-1, 16] == 3
        assert (sample[:-1, 16] == 0).all()
        assert (sample[-1, 8:16] == 0).all()
        assert len({row[:8].argmax() for row in sample[:-1]}) == 7
    assert not torch.equal(recall_task(1).test[1], labels)
    assert torch.equal(recall_task(1).validation[0], recall_task(0).validation[0])


def test_arms_are_as_big_and_train_what_they_say():
    counts = {arm: parameter_count(_digits(arm)) for arm in ARMS}
    for arm in ("limited", "one step", "no response", "attention", "transformer"):
        assert abs(counts[arm] / counts["saddle"] - 1) < 0.06
    sizes = [abs(12 * d * d + 13 * d - 4 * 32**2) for d in (16, 18, 20)]
    assert np.argmin(sizes) == 1
    assert transformer_width(32, heads=2) == 18
    moved = {
        arm: {name for name, p in _digits(arm).named_parameters() if p.requires_grad}
        for arm in ("saddle", "frozen couplings", "couplings only", "read-out only")
    }
    last = {"readout.weight", "readout.bias"}
    couplings = {name for name in moved["saddle"] if name.rpartition(".")[2] in COUPLINGS}
    assert len(couplings) == 8
    assert moved["read-out only"] == last
    assert moved["couplings only"] == last | couplings
    assert moved["frozen couplings"] == moved["saddle"] - couplings
    # What the arms' names promise of the layers.
    layer = {arm: _digits(arm).layers[0] for arm in ARMS}
    assert layer["saddle"].solver.kind == "saddle"
    assert layer["one step"].solver.steps == 1
    assert not layer["no response"].response
    assert layer["limited"].coupling_limit == 0.9
    assert layer["transformer"].norm_first
    assert layer["transformer"].linear1.out_features == 72
    tokens = torch.randn(2, 8, 32)
    skip = layer["attention with skip"](tokens) - layer["attention"](tokens)
    torch.testing.assert_close(skip, tokens)
    free = layer["free spins"](tokens).detach()
    unit = tokens / tokens.square().mean(-1, keepdim=True).sqrt()
    cosine = torch.nn.functional.cosine_similarity
    heads = [
        cosine(part, whole, dim=-1)
        for part, whole in zip(free.split(16, -1), unit.split(16, -1), strict=True)
    ]
    assert min(float(value.min()) for value in heads) > 1 - 1e-4


def test_probes_against_plain_loops():
    model = _digits("saddle", dim=16, strength=1.0)
    tokens, labels = (part[:20] for part in digit_task(0).test)
    probe = probe_layers(model, tokens, labels=labels)[0]
    with torch.no_grad():
        before = model.embed(tokens)
        after, parts = model.layers[0](before, return_parts=True)
        meter = model.layers[0].validity()
    spins = (parts.residual + parts.mixing + parts.onsager).reshape(20, 8, 2, 8) / 8**0.5
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    plain = np.mean([parts.correlation[:, :, i, j].mean() for i, j in pairs])
    means = np.mean([(spins[:, i] * spins[:, j]).sum(-1).mean() for i, j in pairs])
    assert abs(probe.polarization - float(spins.norm(dim=-1).mean())) < 1e-5
    assert abs(probe.correlation - plain) < 1e-5
    assert abs(probe.connected - (plain - means)) < 1e-5
    ratios = []
    for sample in range(20):
        for head in range(2):
            m = spins[sample, :, head].numpy()
            covariance = parts.correlation[sample, head].numpy() - m @ m.T
            ratios.append(np.linalg.eigvalsh(covariance)[-1] / np.trace(covariance) * 8)
    assert abs(probe.collective - np.mean(ratios)) < 1e-4
    whole = parts.magnetization.flatten(1)
    share = (parts.response.flatten(1) * whole).sum(1) / (whole * whole).sum(1)
    assert abs(probe.response - float(share.mean())) < 1e-5
    assert probe.trusted == float(meter.trusted().double().mean())
    cosine = torch.nn.functional.cosine_similarity
    similar = np.mean([cosine(after[:, i], after[:, j], dim=-1).mean() for i, j in pairs])
    assert abs(probe.similarity - similar) < 1e-5
    apart = [np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x) for x in after.numpy()]
    assert abs(probe.residual - np.mean(apart)) < 1e-5
    pooled = after.mean(1).numpy()
    within = sum(
        ((pooled[labels == k] - pooled[labels == k].mean(0)) ** 2).sum() for k in range(10)
    )
    total = ((pooled - pooled.mean(0)) ** 2).sum()
    assert abs(probe.separation - (1 - within / total)) < 1e-4
    silent = probe_layers(_digits("no response", dim=16), tokens, labels=labels)[0]
    assert silent.response == 0.0
    assert np.isnan(probe_layers(_digits("attention"), tokens, labels=labels)[0].correlation)


def test_an_undriven_layer_keeps_only_what_all_samples_share():
    """Samples whose tokens agree with each other and with no other sample's."""
    model = TokenClassifier("free spins", tokens=4, features=2, dim=2, heads=1, depth=1)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(2))
        model.embedding.bias.zero_()
        model.position.zero_()
    angle = torch.linspace(0, 2 * torch.pi, 61)[:-1]
    own = torch.stack([angle.cos(), angle.sin()], -1)[:, None].expand(60, 4, 2)
    labels = torch.zeros(60, dtype=torch.int64)
    probe = probe_layers(model, own, labels=labels)[0]
    assert probe.correlation > 0.3
    assert abs(probe.undriven) < 0.06
    same = torch.ones(60, 4, 2)
    shared = probe_layers(model, same, labels=labels)[0]
    assert shared.undriven == pytest.approx(shared.correlation, rel=1e-4)


def test_drawn_spins_of_a_module():
    """One free spin exactly; the output at many components, where the saddle is exact."""
    torch.manual_seed(0)
    module = SpinTransformerModule(3, heads=1, solver="saddle", strength=1e-9)
    found = sample_module(module, torch.tensor([[[1.0, 2.0, 2.0]]]), sweeps=2000)
    field = found.spins[0, 0].numpy()
    exact = one_spin(np.array([1.0, 2.0, 2.0]) / 3**0.5, beta=1.0).magnetization[0]
    np.testing.assert_allclose(field, exact, atol=0.06)
    module = SpinTransformerModule(128, heads=2, solver="saddle", strength=1.5, channel_maps=True)
    with torch.no_grad():
        module.map_in.copy_(torch.randn(128, 128) / 8)
        module.map_out.zero_()
    inputs = torch.randn(1, 4, 128)
    found = sample_module(module, inputs, sweeps=320)
    with torch.no_grad():
        _, parts = module(inputs, return_parts=True)
    assert float(parts.response.norm() / parts.magnetization.norm()) > 0.2
    assert float(found.noise) < 0.07
    assert max(float(found.off_output), float(found.off_spins)) < 1.5 * float(found.noise)
    silent = SpinTransformerModule(8, heads=1, solver="saddle", response=False)
    same = torch.randn(1, 3, 8)
    found = sample_module(silent, same, sweeps=64)
    assert torch.equal(found.output, found.spins)
    long = sample_module(silent, same, sweeps=1600)
    assert 2.5 < float(found.noise / long.noise) < 10


def test_side_by_side_is_one_by_one():
    tasks = [digit_task(0), digit_task(1)]
    given = {"steps": 6, "looks": (0, 6), "probed": 0, "batch": 16}

    def models():
        return [_digits("saddle", seed=seed, dim=16) for seed in (4, 5)]

    rates, seeds = [1e-2, 3e-3], [7, 8]
    both = fit(models(), tasks=tasks, rates=rates, seeds=seeds, **given)
    for index in range(2):
        alone = fit(
            [models()[index]],
            tasks=[tasks[index]],
            rates=[rates[index]],
            seeds=[seeds[index]],
            **given,
        )[0]
        assert alone[0].loss == pytest.approx(both[index][0].loss, rel=1e-6)
        assert alone[1].loss == pytest.approx(both[index][1].loss, rel=2e-3)
        assert abs(alone[1].loss - alone[0].loss) > 0.003


def test_runs_of_an_arm_have_their_own_split_start_and_strength():
    runs = [(1, 0, 0.01, 0.6), (1, 1, 0.01, 0.6), (2, 0, 0.01, 2.0)]
    given = {"depth": 1, "steps": 1, "looks": (0,), "probed": 0}
    models, _, looks = train_arm("saddle", digit_task, runs=runs, **given)
    for (split, start, _, strength), (look,) in zip(runs, looks, strict=True):
        alone = _digits("saddle", seed=1000 * split + start, depth=1, strength=strength)
        test = digit_task(split).test
        assert look.loss == pytest.approx(score(alone, test[0], labels=test[1])[1], rel=1e-5)
    assert (
        models[1].layers[0].log_strength.exp().mean()
        < 1
        < models[2].layers[0].log_strength.exp()[0]
    )


def test_a_step_that_is_not_finite_is_left_out_and_validation_is_validation():
    model = _digits("one step", dim=8)
    task = digit_task(0)
    with torch.no_grad():
        model.readout.weight[0] = torch.inf
    start = {name: value.clone() for name, value in model.state_dict().items()}
    fit([model], tasks=[task], steps=2, rates=[1e-2], seeds=[0])
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    fresh = _digits("one step", dim=8)
    looks = fit(
        [fresh], tasks=[task], steps=1, rates=[1e-2], seeds=[0], looks=(0,), validate=True, probed=0
    )
    fresh = _digits("one step", dim=8)
    assert looks[0][0].accuracy == score(fresh, task.validation[0], labels=task.validation[1])[0]


@pytest.mark.nightly
@pytest.mark.claim("B10")
def test_couplings_alone_carry_the_digits():
    """Live; spins without couplings fail the same probe; then what the tables say."""
    task = digit_task(3)

    def trained(arm, strength):
        model = _digits(arm, seed=70, depth=1, strength=strength)
        given = {"steps": 60, "rates": [0.03], "seeds": [70], "looks": (60,), "probed": 0}
        return fit([model], tasks=[task], **given)[0][0].accuracy

    gaps = [trained("couplings only", g) - trained("read-out only", g) for g in (2.0, 1e-6)]
    assert gaps[0] > 0.1
    assert abs(gaps[1]) < 0.08

    table = DIGITS.read()
    last = (table["step"] == table["step"].max()) & (table["layer"] == 1)
    gap = [
        table["accuracy"][last & (table["arm"] == a)] for a in ("couplings only", "read-out only")
    ]
    interval = stats.ttest_rel(*gap).confidence_interval(0.95)
    found = difference(table, arm="couplings only", other="read-out only")
    np.testing.assert_allclose(found[1:], (interval.low, interval.high), rtol=1e-9)
    assert interval.low > 0.05
    # Recall, each arm at the rate of its least median validation loss, read line by line.
    lines = csv_lines(grids.TABLES["recall"].path)
    saddle, frozen, answers = (
        at_best(lines, arm=arm, updates="200", seen="200")
        for arm in ("saddle", "frozen couplings", "answers only")
    )
    # Nine of ten pairs above zero hold the median above it with 98 %.
    assert sum(saddle[split] > frozen[split] for split in saddle) >= 9
    assert sum(saddle[split] > answers[split] + 0.3 for split in saddle) >= 9
    assert max(answers.values()) < crowd_share(7, kinds=8) + 0.1
    # Twice the updates leave nothing of it, and an arm against itself has nothing of it either.
    lines = csv_lines(grids.TABLES["recall_longer"].path)
    late = [
        at_best(lines, arm=arm, updates="400", seen="400") for arm in ("saddle", "frozen couplings")
    ]
    assert all(abs(late[0][split] - late[1][split]) < 0.01 for split in late[0])
    again = dict(zip(saddle, np.roll(list(saddle.values()), 1), strict=True))
    assert sum(saddle[split] > again[split] for split in saddle) < 9
    for row, rows in (("B10", "recall"), ("B10b", "copies")):
        assert set(settings.TABLES[row].read()["task"]) == {rows}


def csv_lines(path):
    with path.open(encoding="utf-8", newline="") as file:
        file.readline()
        return list(csv.DictReader(file))


def at_best(lines, *, name="accuracy", **cell):
    """By split, at the rate of the least median validation loss; by hand."""
    here = [line for line in lines if all(line[key] == value for key, value in cell.items())]
    losses = {}
    for line in here:
        losses.setdefault(line["rate"], []).append(float(line["held"]))
    best = min(losses, key=lambda rate: statistics.median(losses[rate]))
    return {line["split"]: float(line[name]) for line in here if line["rate"] == best}


@pytest.mark.claim("B1b")
@pytest.mark.claim("B8c")
def test_mixers_inside_a_layer_and_out_of_it():
    """What a mixer lets the asked token know, live; then the tables, line by line."""
    task = recall_task(3)
    tokens = task.test[0][:40]
    other = tokens.clone()
    other[:, :-1] = recall_task(4).test[0][:40, :-1]
    moved = {}
    for arm in ("layer of spins", "layer of attention", "layer of averaging", "layer of identity"):
        model = build_classifier(arm, seed=5, depth=1, **task.shape)
        with torch.no_grad():
            # The value of one pair goes to another, so that the question has another answer.
            swapped = tokens.clone()
            swapped[:, 0, 8:16], swapped[:, 1, 8:16] = tokens[:, 1, 8:16], tokens[:, 0, 8:16]
            here, there, changed = (model(x) for x in (tokens, other, swapped))
        moved[arm] = [float((here - x).norm() / here.norm()) for x in (there, changed)]
    # Each token alone cannot be told from one beside other pairs: nothing can be looked up.
    assert moved["layer of identity"] == [0.0, 0.0]
    assert min(moved[f"layer of {arm}"][0] for arm in ("spins", "attention", "averaging")) > 0.02
    found = {}
    for name in ("digits", "recall"):
        lines = csv_lines(grids.TABLES[f"layers_{name}"].path)
        found[name] = {
            arm: at_best(lines, arm=arm, strength="0.6", updates="200", seen="200")
            for arm in (*grids.MIXERS, *grids.LAYERS)
        }
    crowd = crowd_share(7, kinds=8)
    digits, recall = found["digits"], found["recall"]
    for split in digits["attention"]:
        assert digits["layer of averaging"][split] > digits["attention"][split]
        assert abs(digits["layer of spins"][split] - digits["layer of attention"][split]) < 0.05
        assert abs(recall["layer of spins"][split] - recall["layer of attention"][split]) < 0.05
        assert max(recall["layer of averaging"][split], recall["averaging"][split]) < crowd + 0.05
        # Mixers that cannot look up lack the property that spins have there.
        assert recall["layer of attention"][split] > recall["layer of averaging"][split] + 0.5
        assert recall["layer of identity"][split] < 0.2
    # Splits drawn afterwards: no worse from 0.6, but from 0.3 one training is lost in recall.
    for name in ("digits", "recall"):
        lines = csv_lines(grids.TABLES[f"layers_{name}_again"].path)
        start = {"updates": "200", "seen": "200"}
        there = at_best(lines, arm="layer of attention", strength="0.6", **start)
        for strength, lost in (("0.6", 0), ("0.3", name == "recall")):
            spins = at_best(lines, arm="layer of spins", strength=strength, **start)
            assert sum(spins[split] < there[split] - 0.5 for split in there) == lost
            assert lost or min(spins[split] - there[split] for split in there) > -0.05


@pytest.mark.claim("B10d")
def test_couplings_that_are_numbers_by_hand():
    lines = csv_lines(grids.TABLES["digits"].path)
    for start in ("0.3", "0.6", "2"):
        cell = {"strength": start, "updates": "200", "seen": "200"}
        trained, frozen = (at_best(lines, arm=arm, **cell) for arm in ("numbers", "frozen numbers"))
        gains = [trained[split] - frozen[split] for split in trained]
        assert np.median(gains) > 0
        # From weak couplings every pair gains; from strong ones five cannot tell it from nothing.
        assert (min(gains) > 0) == (start == "0.3")


@pytest.mark.claim("B8b")
def test_the_meter_on_pairs_by_brute_force():
    """Pairs of three components by sums over a grid of both spheres, and what must be refused."""
    generator = torch.Generator().manual_seed(3)
    cosine, weight = np.polynomial.legendre.leggauss(24)
    angle = 2 * np.pi * np.arange(40) / 40
    sine = np.sqrt(1 - cosine**2)[:, None]
    points = np.stack(
        [sine * np.cos(angle), sine * np.sin(angle), np.repeat(cosine[:, None], 40, 1)], -1
    ).reshape(-1, 3)
    measure = np.repeat(weight, 40)
    judged = []
    for strength, solver in (
        (0.3, "saddle"),
        (1.0, "saddle"),
        (1.0, "fixed point"),
        (2.0, "saddle"),
    ):
        options = {"strength": strength, "normalize": False, "dtype": torch.float64}
        module = SpinTransformerModule(3, heads=1, solver=solver, **options)
        module.warned = True
        tokens = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            _, parts = module(tokens, return_parts=True)
        trusted = parts.validity().trusted()[:, 0]
        for place in range(4):
            pair = float(parts.couplings[place, 0].sum())
            first, second = (np.sqrt(3) * points @ tokens[place].numpy().T).T
            power = first[:, None] + second + 3 * pair * points @ points.T
            chance = np.exp(power - power.max()) * measure[:, None] * measure
            chance /= chance.sum()
            truth = np.sqrt(3) * np.stack([chance.sum(1) @ points, chance.sum(0) @ points])
            off = np.linalg.norm(parts.spins[place].numpy() - truth) / np.linalg.norm(truth)
            judged.append((bool(trusted[place]), off))
    assert sum(trusted for trusted, _ in judged) >= 6
    assert max(off for trusted, off in judged if trusted) < 0.2
    # One component: nothing is trusted, however weak the couplings.
    ising = SpinTransformerModule(1, heads=1, solver="saddle", strength=0.01, normalize=False)
    with torch.no_grad():
        ising(torch.randn(5, 3, 1, generator=generator))
    assert not ising.validity().trusted().any()
    table = METER.read()
    assert (table["value"] > 0).all()


@pytest.mark.claim("B11")
def test_correlations_along_depth():
    """Live, untrained and at weak couplings, then the table with an interval of scipy's own."""
    task = digit_task(2)
    tokens, labels = (part[:30] for part in task.test)
    grown = {}
    for strength in (0.01, 0.6):
        stack = _digits("saddle", seed=3, depth=4, strength=strength)
        layers = probe_layers(stack, tokens, labels=labels)
        grown[strength] = layers[-1].correlation - layers[0].correlation
    # Free spins hand their own fields on, and build nothing.
    assert abs(grown[0.01]) < 0.05
    assert grown[0.6] > 0.2

    lines = csv_lines(grids.TABLES["depth"].path)
    shares = {}
    for start in ("0.2", "0.3", "0.45", "0.6"):
        first, last, undriven = (
            at_best(lines, name=name, strength=start, updates="120", seen="120")
            for name in ("first", "last", "undriven")
        )
        assert all(last[split] > first[split] + 0.2 for split in last)
        shares[start] = [undriven[split] / last[split] for split in last]
    assert max(shares["0.2"] + shares["0.3"]) < 0.5 < min(shares["0.6"])
    assert np.all(np.diff([np.median(share) for share in shares.values()]) > 0.05)


@pytest.mark.nightly
def test_tables_hold_what_the_command_gives():
    """One arm of one start again, alone; the references of one split; the choice by hand."""
    rate, strength = choice("recall", arm="attention")
    tuning = TUNING.read()
    here = (tuning["experiment"] == "recall") & (tuning["arm"] == "attention")
    losses = tuning["loss"][here].reshape(len(RATES), len(TUNING_SPLITS)).mean(1)
    assert rate == RATES[losses.argmin()]
    assert not set(tuning["split"]) & set(RECALL.read()["split"])
    chosen = EXPERIMENTS["recall"]
    task = chosen.task(1)
    model = build_classifier("attention", seed=1001, depth=1, strength=strength, **task.shape)
    look = fit([model], tasks=[task], steps=chosen.steps, rates=[rate], seeds=[1001], looks=(200,))
    table = RECALL.read()
    stored = values_of(table, arm="attention", name="accuracy")[3]
    assert abs(look[0][0].accuracy - stored) < 0.03
    assert look[0][0].layers[0].residual == pytest.approx(
        values_of(table, arm="attention", name="residual")[3], abs=0.05
    )
    references = REFERENCES.read()
    for row in REFERENCES.rows(split=2):
        stored = references["accuracy"][
            (references["split"] == 2) & (references["method"] == row["method"])
        ]
        assert abs(row["accuracy"] - stored[0]) < 0.01


def test_couplings_that_are_numbers_and_layers_with_any_mixer():
    """The saddle by scipy's root finder; what a layer adds to its mixer, by hand."""
    model = build_classifier("numbers", seed=1, tokens=4, features=2, dim=6, heads=2, depth=1)
    layer = model.layers[0].double()
    tokens = torch.randn(1, 4, 6, generator=torch.manual_seed(1)).double()
    with torch.no_grad():
        found = layer(tokens)[0].numpy()
    for head in range(2):
        h = tokens[0].numpy() / np.sqrt((tokens[0].numpy() ** 2).mean(1, keepdims=True))
        h = h[:, 3 * head : 3 * head + 3] / np.sqrt(3)
        both = layer.couplings[head].detach().numpy()
        both = (both + both.T) / 2
        np.fill_diagonal(both, 0.0)

        def lengths(t, both=both, h=h):
            inverse = np.linalg.inv(np.diag(t) - both)
            return np.diag(inverse) / 2 + ((inverse @ h / 2) ** 2).sum(1) - 1

        t = optimize.root(lengths, np.full(4, 2.0)).x
        want = np.sqrt(3) * np.linalg.inv(np.diag(t) - both) @ h / 2
        np.testing.assert_allclose(found[:, 3 * head : 3 * head + 3], want, atol=1e-6)
    trained = {
        arm: {n.rpartition(".")[2] for n, p in _digits(arm).named_parameters() if p.requires_grad}
        for arm in ("numbers", "frozen numbers", "answers only")
    }
    assert trained["numbers"] - trained["frozen numbers"] == {"couplings", "log_beta"}
    assert trained["answers only"] == {"map_out", "weight", "bias"}
    tokens = torch.randn(2, 8, 32)
    whole = _digits("layer of averaging").layers[0]
    mixed = whole.mixer(whole.before(tokens))
    torch.testing.assert_close(mixed, mixed[:, :1].expand_as(mixed))
    after = tokens + mixed
    torch.testing.assert_close(whole(tokens), after + whole.forward_network(after))
    alone = _digits("identity").layers[0]
    torch.testing.assert_close(alone(tokens)[:, 3:4], alone(tokens[:, 3:4]))


@pytest.mark.nightly
def test_a_grid_holds_every_rate_and_both_looks(monkeypatch):
    small = grids.Grid(
        task=digit_task, depth=2, splits=(0, 1), rates={"saddle": (0.01, 0.03)}, cells=[], probed=5
    )
    monkeypatch.setitem(grids.GRIDS, "small", small)
    rows = grids.grid_rows("small", arm="saddle", strength=0.5, updates=2)
    assert len(rows) == 2 * 2 * 2
    assert {(row["rate"], row["seen"]) for row in rows} == {
        (r, s) for r in (0.01, 0.03) for s in (1, 2)
    }
    model = _digits("saddle", seed=1000, depth=2, strength=0.5)
    given = {"steps": 2, "rates": [0.03], "seeds": [1000], "looks": (2,), "probed": 0}
    look = fit([model], tasks=[digit_task(1)], **given)[0][0]
    (row,) = (r for r in rows if (r["rate"], r["split"], r["seen"]) == (0.03, 1, 2))
    assert row["bits"] == pytest.approx(look.loss / np.log(2), rel=1e-3)
    assert row["held"] == pytest.approx(look.held / np.log(2), rel=1e-3)
    assert row["held"] != row["bits"]
    assert 0 < row["undriven"] < 1
