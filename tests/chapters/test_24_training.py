"""Tasks, arms, probes, Monte Carlo of a module, the training loop, and the stored tables."""

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from grid_trainings import at_best
from open_cells import run_open_cells
from scipy import stats
from scipy.special import log_softmax
from torch.nn.functional import cosine_similarity, normalize

from compendium.c24_training import settings as study_settings, study
from compendium.c24_training.settings import GRIDS
from compendium.common.images import digit_labels, digits
from compendium.common.rows import groupby
from compendium.common.spin_modules import sample_module
from compendium.common.token_classifiers import ARMS, COUPLINGS, TokenClassifier, build_classifier
from compendium.common.token_tasks import (
    MARKS,
    SYMBOLS,
    TOKENS,
    copy_task,
    crowd_share,
    digit_rows,
    digit_task,
    recall_task,
)
from compendium.common.token_training import fit, probe_layers, score, train_arm
from compendium.common.training_grids import (
    FRESH_SPLITS,
    Cell,
    accuracy_lead,
    difference_intervals,
)
from spinformer.core.special import mean_alignment
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.solvers import solve_saddle_point

SHAPE = digit_task(0).shape


def _digits(arm, seed=0, **shape):
    return build_classifier(arm, seed=seed, **{**SHAPE, **shape})


def test_splits_share_no_image_and_all_the_validation():
    parts = [[rows.numpy() for rows in digit_rows(split)] for split in (0, 1)]
    for split in parts:
        assert [len(rows) for rows in split] == [1000, 297, 500]
        assert len(np.unique(np.concatenate(split))) == 1797
    assert np.array_equal(parts[0][1], parts[1][1])
    assert not np.array_equal(parts[0][2], parts[1][2])
    # Patches of two rows and four columns, cut by slices; the fourth is a right one.
    task = digit_task(1)
    images = digits()
    (train, _, test) = parts[1]
    assert task.test[1].tolist() == digit_labels()[test].tolist()
    want = images[test].reshape(-1, 8, 8)[:, 2:4, 4:] - images[train].mean()
    fourth = task.test[0][:, 3].reshape(-1, 2, 4)
    np.testing.assert_allclose(fourth, want / images[train].std(), atol=1e-4)
    drawn, _ = task.sample(5, torch.Generator().manual_seed(0))
    assert all((token != task.test[0]).flatten(1).any(1).all() for token in drawn)


def test_recall_asks_for_the_value_of_a_key_that_is_there():
    (tokens, labels) = recall_task(0).test
    other = recall_task(1)
    assert not torch.equal(labels, other.test[1])
    assert torch.equal(recall_task(0).validation[0], other.validation[0])
    for sample, label in zip(tokens[:50].numpy(), labels[:50].tolist(), strict=True):
        keys = sample[:, :8].argmax(-1)
        (holder,) = np.flatnonzero(keys[:-1] == keys[-1])
        assert sample[holder, 8:16].argmax() == label
        assert sample[:, 16].tolist() == [0] * 7 + [3]
        assert not sample[-1, 8:16].any()
        assert len(set(keys[:-1])) == 7


def test_a_copy_is_the_content_that_bears_the_same_mark():
    tokens, labels = copy_task(0).test
    for sample, asked in zip(tokens[:60].numpy(), labels[:60].numpy(), strict=True):
        contents = sample[:, :SYMBOLS]
        marks = sample[:, SYMBOLS:-1]
        masked = asked >= 0
        assert ((sample[:, -1] > 0) == masked).all()
        assert (contents.any(1) == ~masked).all()
        for bearers in marks.T > 0:
            (source,) = np.flatnonzero(bearers & ~masked)
            (target,) = np.flatnonzero(bearers & masked)
            assert contents[source].argmax() == asked[target]
    # Sources and masked tokens stand anywhere, alike.
    assert (labels >= 0).double().mean(0).sub(MARKS / TOKENS).abs().max() < 0.07


def test_the_share_of_a_crowd():
    for count in (2, MARKS):
        draws = itertools.product(range(SYMBOLS), repeat=count)
        best = [max(Counter(draw).values()) / count for draw in draws]
        assert crowd_share(count, kinds=SYMBOLS) == pytest.approx(np.mean(best))


def test_arms_are_as_big_and_train_what_they_say():
    counts = {}
    moved = {}
    for arm in ARMS:
        named = dict(_digits(arm).named_parameters())
        counts[arm] = sum(p.numel() for p in named.values())
        moved[arm] = {name for name, p in named.items() if p.requires_grad}
    for arm in ("limited", "one step", "no response", "attention", "transformer"):
        assert abs(counts[arm] / counts["saddle"] - 1) < 0.06
    last = {"readout.weight", "readout.bias"}
    couplings = {name for name in moved["saddle"] if name.rpartition(".")[2] in COUPLINGS}
    assert len(couplings) == 8
    assert moved["read-out only"] == last
    assert moved["couplings only"] == last | couplings
    assert moved["frozen couplings"] == moved["saddle"] - couplings
    words = {arm: {name.rpartition(".")[2] for name in names} for arm, names in moved.items()}
    assert words["numbers"] - words["frozen numbers"] == {"couplings", "log_beta"}
    assert words["answers only"] == {"map_out", "weight", "bias"}
    # Of places: the table, beta, g and the maps, not the queries and keys that it replaces.
    assert {"scores", "log_beta", "log_strength", "map_in"} < words["positions"]
    assert not {"query", "key"} & words["positions"]


def test_layers_do_what_the_names_of_their_arms_say():
    layer = {arm: _digits(arm).layers[0] for arm in ARMS}
    spins = layer["saddle"].solver, layer["one step"].solver, layer["limited"]
    assert (spins[0].kind, spins[1].steps, spins[2].coupling_limit) == ("saddle", 1, 0.9)
    assert layer["transformer"].norm_first
    tokens = torch.randn(2, 8, 32)
    skip = layer["attention with skip"](tokens) - layer["attention"](tokens)
    torch.testing.assert_close(skip, tokens)
    # A free spin points along its own field.
    heads = (x.unflatten(-1, (2, 16)) for x in (layer["free spins"](tokens), tokens))
    assert cosine_similarity(*heads, dim=-1).min() > 1 - 1e-4
    whole = layer["layer of averaging"]
    mixed = whole.mixer(whole.before(tokens))
    torch.testing.assert_close(mixed, mixed[:, :1].expand_as(mixed))
    after = tokens + mixed
    torch.testing.assert_close(whole(tokens), after + whole.forward_network(after))
    alone = layer["identity"]
    torch.testing.assert_close(alone(tokens)[:, 3:4], alone(tokens[:, 3:4]))


@pytest.mark.parametrize("arm", ["positions", "numbers"])
def test_couplings_that_see_no_tokens_are_those_of_a_plain_system(arm):
    layer = build_classifier(arm, seed=1, tokens=4, features=2, dim=6, heads=2, depth=1).layers[0]
    layer = layer.double()
    map_in = layer.spins.map_in if arm == "positions" else layer.map_in
    map_in.data += 0.3 * torch.randn(6, 6, generator=torch.manual_seed(0)).double()
    tokens = torch.randn(2, 4, 6, generator=torch.manual_seed(1)).double()
    with torch.no_grad():
        found = layer(tokens)
        fields = 6**0.5 * normalize(tokens @ map_in, dim=-1)
        if arm == "positions":
            couplings = layer.scores.exp() * (1 - torch.eye(4))
            couplings = 0.6 * couplings / couplings.sum(-1, keepdim=True)
        else:
            couplings = layer.couplings * (1 - torch.eye(4))
    for pair, own, mean in zip(couplings, fields.split(3, -1), found.split(3, -1), strict=True):
        want = solve_saddle_point(
            pair.expand(2, 4, 4), fields=own.contiguous(), beta=1.0
        ).magnetization
        torch.testing.assert_close(mean, want, rtol=0, atol=1e-7)


def test_probes_against_plain_loops():
    model = _digits("saddle", dim=16, strength=1.0)
    tokens = digit_task(0).test[0][:20]
    labels = digit_task(0).test[1][:20]
    probe = probe_layers(model, tokens, labels=labels)[0]
    with torch.no_grad():
        after, parts = model.layers[0](model.embed(tokens), return_parts=True)
        physical = parts.validity().physical
    pairs = list(itertools.permutations(range(8), 2))
    spins = parts.spins.reshape(20, 8, 2, 8) / 8**0.5
    turned = spins.transpose(1, 2).numpy()
    covariance = parts.correlation.numpy() - turned @ turned.swapaxes(-1, -2)
    whole = parts.magnetization.flatten(1)
    response = parts.response.flatten(1)
    pooled = after.mean(1).numpy()
    groups = (pooled[labels == k] for k in range(10))
    within = sum(((group - group.mean(0)) ** 2).sum() for group in groups)
    largest = np.linalg.norm(covariance, 2, (-2, -1))
    want = {
        "correlation": np.mean([parts.correlation[:, :, i, j].mean() for i, j in pairs]),
        "collective": np.mean(largest / covariance.trace(0, -2, -1) * 8),
        "response": float(((response * whole).sum(1) / (whole * whole).sum(1)).mean()),
        "residual": np.mean([np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x) for x in after]),
        "separation": 1 - within / ((pooled - pooled.mean(0)) ** 2).sum(),
        "physical": float(physical.double().mean()),
    }
    for name, value in want.items():
        assert probe[name] == pytest.approx(value, abs=1e-4, rel=0), name
    silent = probe_layers(_digits("no response", dim=16), tokens, labels=labels)[0]
    other = probe_layers(_digits("attention", dim=16), tokens, labels=labels)[0]
    assert silent["response"] == 0.0
    assert np.isnan(other["correlation"])


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
    assert probe["correlation"] > 0.3
    assert abs(probe["undriven"]) < 0.06
    shared = probe_layers(model, torch.ones(60, 4, 2), labels=labels)[0]
    assert shared["undriven"] == pytest.approx(shared["correlation"], rel=1e-4)


def test_drawn_spins_of_a_module():
    """One free spin exactly; the output at many components, where the saddle is exact."""
    torch.manual_seed(0)
    module = SpinTransformerModule(3, heads=1, coupling_strength=1e-9)
    field = torch.tensor([1.0, 2.0, 2.0])
    found = sample_module(module, field[None, None], sweeps=2000)
    exact = mean_alignment(3.0, dim=3) * field[None].numpy() / 3**0.5
    np.testing.assert_allclose(found["spins"][0].numpy(), exact, atol=0.06)
    module = SpinTransformerModule(128, heads=2, coupling_strength=1.5, channel_maps=True)
    with torch.no_grad():
        module.map_in.copy_(torch.randn(128, 128) / 8)
        module.map_out.zero_()
        inputs = torch.randn(1, 4, 128)
        _, parts = module(inputs, return_parts=True)
    assert float(parts.response.norm() / parts.magnetization.norm()) > 0.2
    found = {name: float(x.mean()) for name, x in sample_module(module, inputs, sweeps=320).items()}
    assert max(found["off_output"], found["off_spins"]) < 1.5 * found["noise"] < 0.1
    silent = SpinTransformerModule(8, heads=1, response=False)
    same = torch.randn(1, 3, 8)
    found = sample_module(silent, same, sweeps=64)
    long = sample_module(silent, same, sweeps=1600)
    assert torch.equal(found["output"], found["spins"])
    assert 2.5 < float(found["noise"] / long["noise"]) < 10


@pytest.mark.parametrize(("arm", "task"), [("saddle", digit_task), ("positions", copy_task)])
def test_runs_side_by_side_are_those_one_by_one(arm, task):
    """Each with its own split, start, rate and strength; one answer a sample, and several."""
    cells = [
        {"split": 1, "start": 0, "rate": 0.01, "strength": 0.6},
        {"split": 2, "start": 1, "rate": 0.003, "strength": 2.0},
    ]
    given = {"steps": 4, "probed": 0}
    found = train_arm(arm, task, cells, looks=(0, 4), **given)
    for cell, (_, _, own, (start, end)) in zip(cells, found, strict=True):
        shape = {"seed": 1000 * cell["split"] + cell["start"], "strength": cell["strength"]}
        fresh = build_classifier(arm, depth=1, **shape, **own.shape)
        test = task(cell["split"]).test
        assert start.loss == pytest.approx(score(fresh, *test)[1], rel=1e-5)
        ((_, _, _, (alone,)),) = train_arm(arm, task, [cell], looks=(4,), **given)
        assert alone.loss == pytest.approx(end.loss, rel=2e-3)
        assert abs(end.loss - start.loss) > 0.001


def test_a_step_that_is_not_finite_is_left_out():
    given = {"tasks": [digit_task(0)], "rates": [1e-2], "seeds": [0]}
    fresh = _digits("one step", dim=8)
    with torch.no_grad():
        fresh.readout.weight[0] = torch.inf
    start = {name: value.clone() for name, value in fresh.state_dict().items()}
    fit([fresh], steps=2, **given)
    assert all(torch.equal(value, start[name]) for name, value in fresh.state_dict().items())


def test_every_token_is_read_and_only_what_is_asked_counts():
    task = copy_task(0)
    model = build_classifier("attention", seed=2, dim=8, depth=1, **task.shape)
    tokens = task.test[0][:20]
    labels = task.test[1][:20]
    with torch.no_grad():
        logits = model(tokens)
        states = model.layers[0](model.embed(tokens))
        torch.testing.assert_close(logits[3, 7], model.readout(states[3, 7]))
    rows = logits[labels >= 0].double().numpy()
    wanted = labels[labels >= 0].numpy()
    assert len(rows) == 20 * MARKS
    right = np.mean(rows.argmax(1) == wanted)
    loss = -np.mean(log_softmax(rows, axis=1)[np.arange(len(rows)), wanted])
    assert score(model, tokens, labels) == pytest.approx((right, loss), rel=1e-5)


@pytest.mark.claim("B10d")
def test_couplings_that_are_numbers_by_hand():
    """What tables of settings read of the grids, B10d's and others, line by line."""
    numbers = ("numbers", "frozen numbers")
    for grid, arms, strength, updates in (
        *(("digits", numbers, strength, 200) for strength in (0.3, 0.6, 2.0)),
        ("recall", ("saddle", "answers only"), 0.6, 200),
        ("recall_longer", ("saddle", "frozen couplings"), 0.6, 400),
    ):
        first = at_best(GRIDS[grid].table, arm=arms[0], strength=strength, updates=updates)
        second = at_best(GRIDS[grid].table, arm=arms[1], strength=strength, updates=updates)
        gains = [first[split] - second[split] for split in first]
        cells = [Cell(arm, strength, updates) for arm in arms]
        lead = accuracy_lead(GRIDS[grid], *cells, seen=updates)
        assert lead == pytest.approx(gains, abs=1e-12)
        # From weak couplings every pair gains; from strong ones five cannot tell it.
        assert grid != "digits" or (min(gains) > 0) == (strength == 0.3)


@pytest.mark.nightly
@pytest.mark.claim("B10")
def test_couplings_alone_carry_the_digits():
    """Live; spins without couplings fail the same probe; then the interval of the table."""
    options = {"steps": 60, "looks": (60,), "probed": 0}
    arms = ("couplings only", "read-out only")
    gaps = []
    for strength in (2.0, 1e-6):
        cells = [{"split": 3, "rate": 0.03, "strength": strength}]
        found = [train_arm(arm, digit_task, cells, **options)[0][3][0].accuracy for arm in arms]
        gaps.append(found[0] - found[1])
    assert gaps[0] > 0.1
    assert abs(gaps[1]) < 0.08
    pairs = (study.values_of(study.DIGITS.read(), arm=arm, name="accuracy") for arm in arms)
    assert stats.ttest_rel(*pairs).confidence_interval(0.95).low > 0.05


def test_values_are_those_of_the_layer_and_of_the_look():
    for layer, look, wanted in ((1, 0, [1, 0]), (2, -1, [2, 200]), (-1, 1, [2, 50])):
        given = {"arm": "saddle", "layer": layer, "look": look}
        told = [
            study.values_of(study.DIGITS.read(), name=name, **given) for name in ("layer", "step")
        ]
        assert np.array_equal(np.unique(told, axis=1)[:, 0], wanted)


@pytest.mark.claim("B10b")
def test_copies_are_learned_in_front_of_frozen_couplings():
    """Sooner with trained couplings, with frozen ones beyond the crowd."""
    task = copy_task(11)
    crowd = crowd_share(MARKS, kinds=SYMBOLS)
    right = {}
    tokens = task.test[0][:200]
    labels = task.test[1][:200]
    for arm in ("saddle", "frozen couplings", "positions"):
        network = build_classifier(arm, seed=3, depth=1, strength=0.6, **task.shape)
        drawn = [p.detach().clone() for p in network.parameters() if not p.requires_grad]
        fit([network], tasks=[task], rates=[0.018], seeds=[3], steps=50, probed=0)
        right[arm] = score(network, tokens, labels)[0]
        kept = [p for p in network.parameters() if not p.requires_grad]
        assert all(torch.equal(*pair) for pair in zip(drawn, kept, strict=True))
    assert right["saddle"] > right["frozen couplings"] + 0.05
    assert right["frozen couplings"] > 1.3 * crowd
    # Couplings that see no tokens lack the property.
    assert right["positions"] < 1.2 * crowd


@pytest.mark.claim("B8b")
@torch.no_grad()
def test_the_meter_on_pairs_by_monte_carlo():
    """Pairs of three components by drawn spins, and what must be refused."""
    generator = torch.Generator().manual_seed(3)
    believed = []
    cases = ((0.3, "saddle"), (1.0, "saddle"), (1.0, "fixed point"), (2.0, "saddle"))
    for strength, solver in cases:
        options = {"coupling_strength": strength, "normalize": False, "dtype": torch.float64}
        module = SpinTransformerModule(3, heads=1, solver=solver, **options)
        module.warned = True
        tokens = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64)
        _, parts = module(tokens, return_parts=True)
        with torch.enable_grad():
            off = sample_module(module, tokens, sweeps=4000)["off_spins"]
        believed += off[parts.validity().trusted()[:, 0]].tolist()
    assert len(believed) >= 6
    assert max(believed) < 0.2
    # One component: nothing is trusted, however weak the couplings.
    ising = SpinTransformerModule(
        1, heads=1, solver="saddle", coupling_strength=0.01, normalize=False
    )
    _, parts = ising(torch.randn(5, 3, 1, generator=generator), return_parts=True)
    assert not parts.validity().trusted().any()


def test_the_choices_are_those_of_the_tuning():
    tuning = study.tuning_table.read()
    assert not set(tuning["split"]) & set(study.RECALL.read()["split"])
    for (experiment, arm), found in groupby(tuning, "experiment", "arm"):
        losses = {cell: np.mean(rows["loss"]) for cell, rows in groupby(found, "rate", "strength")}
        assert study.EXPERIMENTS[experiment][-1][arm] == min(losses, key=losses.get)


def test_intervals_of_a_difference_of_shares_cover_it():
    """Exact coverage by all outcomes of two binomial counts, near the ends and between."""
    asked = 40
    counts = np.arange(asked + 1)
    for first, second in ((0.5, 0.5), (0.95, 0.8), (0.99, 0.97), (0.2, 0.1)):
        grid = np.stack(np.meshgrid(counts, counts, indexing="ij")).reshape(2, -1) / asked
        low, high = difference_intervals(*grid, asked=asked).T
        chance = np.outer(
            stats.binom.pmf(counts, asked, first), stats.binom.pmf(counts, asked, second)
        ).ravel()
        covered = (low <= first - second) & (first - second <= high)
        assert 0.93 < chance[covered].sum() <= 1.0
        # The value is inside, and two networks without a mistake leave a width.
        assert (low <= grid[0] - grid[1]).all()
        assert (grid[0] - grid[1] <= high).all()
    ((low, high),) = difference_intervals(np.ones(1), np.ones(1), asked=asked)
    assert low < -0.02
    assert high > 0.02


def test_the_open_cells_give_the_answer_and_the_gradient_of_the_module():
    """The module differentiates by the logarithm of its strength."""
    told = run_open_cells("24_training")
    tokens = torch.ones(1, 2, 1, dtype=torch.float64)

    def module(strength):
        options = {"solver": "saddle", "normalize": False, "dtype": torch.float64}
        return SpinTransformerModule(1, heads=1, coupling_strength=strength, **options)

    half = module(0.5)
    answer = half(tokens)[0, 0, 0]
    answer.backward()
    assert told["paired_answer"] == pytest.approx(answer.item(), abs=1e-7)
    assert told["slope_by_theorem"] == pytest.approx(half.log_strength.grad.item() / 0.5, abs=1e-6)
    assert told["slope_by_difference"] == pytest.approx(told["slope_by_theorem"], abs=1e-7)
    reached = module(told["trained_coupling"])(tokens)[0, 0, 0].item()
    assert reached == pytest.approx(0.75, abs=1e-3)


def test_confirming_lines_train_the_cells_of_their_claim_on_fresh_splits(monkeypatch):
    asked = []
    grids = []

    def leads(grid, first, second, *, task, looks, splits=FRESH_SPLITS):
        asked.append((task, first, second, tuple(looks)))
        grids.append(grid.name)
        assert grid.task is {"recall": recall_task, "copies": copy_task, "digits": digit_task}[task]
        # No split of the trainings that led to the claim.
        assert not {*splits} & {*grid.splits}
        # The grid has trained both arms.
        assert {first.arm, second.arm} <= {*grid.rates}
        return []

    monkeypatch.setattr(study_settings, "fresh_leads", leads)
    study_settings.confirm_b10.rows("answers only", updates=200)
    study_settings.confirm_b10b.rows(2.0, updates=60)
    study_settings.confirm_b10d.rows(0.2)
    study_settings.confirm_b10d.rows(0.3)
    numbers = [Cell(arm, 0.2, 200) for arm in ("numbers", "frozen numbers")]
    assert asked[0] == (
        "recall",
        Cell("saddle", 0.6, 200),
        Cell("answers only", 0.6, 200),
        (100, 200),
    )
    assert asked[1] == (
        "copies",
        Cell("saddle", 2.0, 60),
        Cell("frozen couplings", 2.0, 60),
        (30, 60),
    )
    assert asked[2] == ("digits", *numbers, (100, 200))
    assert asked[3][1].strength == 0.3
    # The trainings of the claim at this strength chose the rate.
    assert grids == ["recall", "copies", "digits_weaker", "digits"]


@pytest.mark.parametrize("arm", ["saddle", "limited", "attention"])
def test_rates_are_tuned_on_the_validation_part_of_other_splits(arm, monkeypatch):
    seen = []

    def train(which, task, cells, **chosen):
        made = task(cells[0]["split"])
        plain = study.EXPERIMENTS["recall"].task(cells[0]["split"])
        for got, wanted in zip(made.test, plain.validation, strict=True):
            assert torch.equal(got, wanted)
        assert not all(
            torch.equal(*pair) for pair in zip(plain.test, plain.validation, strict=True)
        )
        seen.append((which, chosen["depth"], chosen["steps"], tuple(chosen["looks"])))
        losses = [np.nan if cell["rate"] == study.RATES[-1] else cell["rate"] for cell in cells]
        return [
            SimpleNamespace(cell=cell, looks=[SimpleNamespace(loss=loss)])
            for cell, loss in zip(cells, losses, strict=True)
        ]

    monkeypatch.setattr(study, "train_arm", train)
    rows = study.tuning_table.rows("recall", arm=arm)
    chosen = study.EXPERIMENTS["recall"]
    assert seen == [(arm, chosen.depth, chosen.updates, (chosen.updates,))]
    # What sets its own strength has none to choose; a training that fails is the worst.
    strengths = study.STRENGTHS if arm == "saddle" else (0.6,)
    wanted = itertools.product(study.RATES, strengths, study.TUNING_SPLITS)
    assert [(row["rate"], row["strength"], row["split"]) for row in rows] == list(wanted)
    for row in rows:
        assert row["loss"] == (np.inf if row["rate"] == study.RATES[-1] else row["rate"])
