"""Demonstrations: the memory of two patterns, the few-shot reader, what is measured in it."""

import numpy as np
import pytest
import torch
from open_cells import run_open_cells

from compendium.c15_demonstrations import boundary as study, inner_steps, model
from compendium.c15_demonstrations.model import WORDS, draw_episodes, read, split_digits, train
from compendium.common.images import digit_labels
from spinformer.core.statistics import student_interval
from spinformer.hopfield.continuous import attention_weights, retrieve

# Of the distance between the two patterns of `_answer`.
SQUARE = 1.2**2 + 2 * 0.8**2


@pytest.fixture(scope="module")
def trained():
    """Two trainings, long enough for the held-out images."""
    return train([100, 101], steps=200)


def draw_lines(pools, *, count, seed, copies=1, share_a=0.5):
    return draw_episodes(
        pools,
        part="valid",
        count=count,
        shown=(copies, copies),
        seeds=model.streams(pools, seed),
        share_a=share_a,
    )


def _answer(copies, beta, m, *, rest):
    """Weight of A in one step of the package's memory, or where it rests; copies as rows."""
    a = torch.tensor([0.6, 0.8, 0.0]).double()
    b = torch.tensor([-0.6, 0.0, 0.8]).double()
    patterns = torch.stack([a] * copies[0] + [b] * copies[1])
    aside = torch.linalg.cross(a - b, a + b)
    state = ((a + b) / 2 + m * (a - b) / 2 + 0.3 * aside).unsqueeze(0)
    if rest:
        end = retrieve(patterns, queries=state, beta=beta, tolerance=1e-12, max_steps=100000)
        return float((end.states @ (a - b))[0])
    weights = attention_weights(patterns, states=state, beta=beta)[0]
    return float(weights[: copies[0]].sum() - 0.5)


@pytest.mark.parametrize("copies", [(1, 1), (3, 2), (1, 2)])
def test_the_boundary_of_stored_copies(copies):
    strength = 5.0 * SQUARE / 4
    ratio = np.log(copies[0] / copies[1])
    for position, rest in ((study.boundary_position, False), (study.edge_position, True)):
        m = position(ratio, strength=strength)
        below = _answer(copies, 5.0, m - 1e-3, rest=rest)
        above = _answer(copies, 5.0, m + 1e-3, rest=rest)
        assert below < 0 < above


def test_the_weaker_basin_vanishes_at_the_spinodal():
    most = int(np.exp(study.spinodal(SQUARE)))
    assert np.isfinite(study.edge_position(np.log(most), strength=SQUARE))
    assert np.isnan(study.edge_position(np.log(most + 1), strength=SQUARE))
    kept = _answer((most, 1), 4.0, -1.0, rest=True)
    lost = _answer((most + 1, 1), 4.0, -1.0, rest=True)
    assert kept < 0 < lost
    assert study.spinodal(0.9) == 0.0


def test_episodes_hold_what_they_say():
    pools = [split_digits(seed) for seed in (0, 1)]
    for pool in pools:
        rows = [np.concatenate(pool[part]) for part in ("train", "valid", "test")]
        train, valid, test = [set(digit_labels()[part]) for part in rows]
        assert (train, len(train), len(train | test)) == (valid, 6, 10)
        assert sorted(np.concatenate(rows)) == list(range(1797))
        assert len(rows[0]) > 2.9 * len(rows[1])
    found = draw_episodes(pools, part="train", count=200, shown=(3, 2), seeds=[5, 6], share_a=0.8)
    kinds = digit_labels()[found.rows.numpy()]
    a = kinds[..., :1]
    b = kinds[..., 3:4]
    assert (a != b).all()
    assert (kinds[..., :5] == np.concatenate([a, a, a, b, b], -1)).all()
    one = found.words[..., :1].numpy()
    other = found.words[..., 3:4].numpy()
    asked = kinds[..., -1:]
    last = np.full_like(one, WORDS)
    assert (found.words.numpy() == np.concatenate([one, one, one, other, other, last], -1)).all()
    assert (one != other).all()
    assert ((asked == a) | (asked == b)).all()
    assert (found.target.numpy() == np.where(asked == a, one, other)[..., 0]).all()
    assert abs((asked == a).mean() - 0.8) < 0.08
    pools = [split_digits(seed, labelings=3) for seed in (0, 1)]
    found = draw_episodes(pools, part="train", count=50, shown=(1, 1), seeds=[5, 6])
    for place, pool in enumerate(pools):
        table = np.array(pool["labelings"])
        for pair, shown in zip(found.words[place, :, :2].tolist(), found.rows[place], strict=True):
            classes = [[row in rows for rows in pool["train"]].index(True) for row in shown[:2]]
            assert pair in table[:, classes].tolist()


def test_controls_change_what_they_name():
    plain, dealt, other = [
        study.draw_queries([split_digits(0)], count=60, copies=4, control=control, seed=2)
        for control in study.CONTROLS
    ]
    assert torch.equal(dealt.rows, plain.rows)
    assert torch.equal(dealt.words.sort(-1)[0], plain.words.sort(-1)[0])
    assert 0.3 < float((dealt.words != plain.words)[..., :-1].double().mean()) < 0.7
    assert torch.equal(other.words, plain.words)
    shown = digit_labels()[other.rows[0].numpy()]
    asked = digit_labels()[plain.rows[0].numpy()]
    for one, two in zip(shown[:, :-1], asked, strict=True):
        assert not set(one) & set(two)
        assert len(set(one[:4])) == len(set(one[4:])) == 1


def _plain_read(weights, images, words, *, kind, copies):
    """The model of one training and one episode in NumPy; demonstrations repeated as tokens."""
    w = {name: value[0].numpy() for name, value in weights.items()}
    order = [*np.repeat(range(len(copies)), copies), len(images) - 1]
    hidden = images.numpy()[order] @ w["image"] + w["word"][words.numpy()[order]]
    # Demonstrations do not see the query.
    seen = np.ones((len(order), len(order)))
    seen[:-1, -1] = 0

    def norm(x):
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

    for layer in (0, 1):
        seen_as = norm(hidden)
        value = seen_as @ w[f"value{layer}"]
        scores = (seen_as @ w[f"query{layer}"]) @ (seen_as @ w[f"key{layer}"]).T / 8
        weight = seen * (np.exp(scores) if kind == "softmax" else scores)
        weight /= (weight if kind == "softmax" else seen).sum(1, keepdims=True)
        hidden = hidden + weight @ value @ w[f"mix{layer}"]
        hidden = hidden + np.maximum(norm(hidden) @ w[f"up{layer}"], 0) @ w[f"down{layer}"]
    return norm(hidden)[-1] @ w["out"]


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_fields_are_copies(kind):
    """Against NumPy in which every demonstration is repeated as often as it counts."""
    weights = {name: weight.double() for name, weight in model.initial_weights([4]).items()}
    images = torch.randn(1, 1, 4, 64, generator=torch.Generator().manual_seed(0)).double()
    words = torch.tensor([[[0, 3, 0, WORDS]]])
    field = torch.log(torch.tensor([[[3.0, 1.0, 2.0]]]).double())
    found, _ = read(weights, images=images, words=words, field=field, kind=kind)
    plain = _plain_read(weights, images[0, 0], words[0, 0], kind=kind, copies=[3, 1, 2])
    np.testing.assert_allclose(found[0, 0].numpy(), plain, atol=1e-10)


@pytest.mark.nightly
def test_trainings_side_by_side_are_those_alone(trained):
    alone, _ = train([100], steps=3)
    pair, _ = train([100, 101], steps=3)
    for name in alone:
        torch.testing.assert_close(alone[name][0], pair[name][0], atol=2e-4, rtol=0)
    assert not torch.allclose(pair["out"][0], pair["out"][1], atol=0.1)
    weights, pools = trained
    for copies, low, high in ((4, 0.85, 1.0), (0, 0.0, 0.25)):
        drawn = draw_lines(pools, copies=copies, count=200, seed=1)
        told = read(weights, images=drawn.images, words=drawn.words)[0].argmax(-1)
        right = (told == drawn.target).double().mean(1)
        assert ((low <= right) & (right <= high)).all()


@pytest.mark.parametrize("goal", ["balanced", "matched"])
def test_goals_of_training_show_and_ask_what_they_say(goal, monkeypatch):
    given = []

    def drawn(pools, **how):
        given.append((*how["shown"], how["share_a"]))
        return draw_episodes(pools, **how)

    monkeypatch.setattr(model, "draw_episodes", drawn)
    found = [train([0], steps=9, goal=goal, kind=kind)[0]["out"] for kind in ("softmax", "linear")]
    assert not torch.equal(*found)
    first, second, share = np.array(given).T
    assert (first == second).all() == (goal == "balanced")
    np.testing.assert_allclose(share * (first + second), first)
    assert len(set(first)) > 3


def test_slopes_against_finite_differences(trained):
    weights, pools = trained
    lines = draw_lines(pools, count=6, copies=2, seed=1)
    t = torch.full((2, 6), 0.1, dtype=torch.float64)
    step = 1e-5
    found = study.stiffness(weights, lines, position=t.numpy())

    def change(*, position=lambda e: t, reading=lambda e: study.PLAIN):
        up = study.lead(weights, lines, position=position(step), reading=reading(step))
        down = study.lead(weights, lines, position=position(-step), reading=reading(-step))
        return ((up - down) / (2 * step)).numpy()

    def counts(e):
        return torch.tensor([e / 2, e / 2, -e / 2, -e / 2]).double().expand(2, 6, 4)

    torch.testing.assert_close(study.count_field((2.0, 0.5), lines=lines), counts(2 * np.log(2)))
    whole = change(position=lambda e: t + e)
    at_query = change(reading=lambda e: study.Reading(counts(e), context_field=counts(0 * e)))
    both = change(reading=lambda e: study.Reading(counts(e)))
    np.testing.assert_allclose(found["in context"], 1 - at_query / both, atol=1e-5)
    np.testing.assert_allclose(
        found["stiffness"] * at_query, whole * (1 - found["past attention"]), rtol=1e-4, atol=1e-6
    )
    # With attention that cannot tell A from B (no query weights) all of ∂L/∂t is beside it.
    blind = weights | {"query0": 0 * weights["query0"], "query1": 0 * weights["query1"]}
    past = study.stiffness(blind, lines, position=t.numpy())["past attention"]
    np.testing.assert_allclose(past, 1.0, atol=1e-10)


def test_the_boundary_is_where_the_words_are_level(trained):
    weights, pools = trained
    lines = draw_lines(pools, count=20, seed=3)
    field = study.count_field((4, 2), lines=lines)
    reading = study.Reading(field)
    found = study.boundary(weights, lines, reading)
    there = np.isfinite(found)
    assert there.mean() > 0.8
    for sign in (-1, 1):
        t = torch.as_tensor(np.where(there, found, 0.0) + sign * 1e-3)
        leads = study.lead(weights, lines, position=t, reading=reading).detach().numpy()
        assert (np.sign(leads[there]) == sign).all()
    many = study.Reading(study.count_field((1e9, 1), lines=lines))
    far = study.boundary(weights, lines, many)
    assert (far == -np.inf).mean() > 0.9


@pytest.mark.claim("A16b")
def test_softmax_readers_saturate_as_a_memory_and_linear_ones_do_not(trained):
    """Readers trained here, line by line, and the stored ones without the exponential."""
    weights, pools = trained
    lines = draw_lines(pools, count=40, seed=5)
    two = study.shifts(weights, lines, shown=(2, 1))
    four = study.shifts(weights, lines, shown=(4, 1))
    start = study.boundary(weights, lines)
    both = np.isfinite(two) & np.isfinite(four) & np.isfinite(start)
    slopes = study.stiffness(weights, lines, position=np.where(both, start, 0.0))["stiffness"]
    # Of so many copies the boundary moves by log 2 over the stiffness.
    assert np.median((two * slopes)[both]) == pytest.approx(np.log(2), rel=0.1)
    memory, regression = study.laws(4)
    assert both.sum() > 30
    assert np.median(four[both] / two[both]) > (memory + regression) / 2
    found = study.saturation(
        study.boundary_table.read(), training="linear", first_seed=0, part="valid"
    )
    assert student_interval(found)[1] < sum(study.laws(8)) / 2


def test_kicks_and_their_radius(trained, monkeypatch):
    weights, pools = trained
    drawn = study.draw_queries(pools, count=40, copies=2, seed=1)
    shares, moved = study.return_shares(weights, drawn)
    assert (moved[:, 0] < moved[:, -1]).all()
    assert (shares[:, 0] > shares[:, -1]).all()
    monkeypatch.setattr(study, "KICKS", (0.0, 1.0))
    shares, moved = study.return_shares(weights, drawn)
    assert (shares[:, 0] == 1).all()
    assert (moved[:, 0] == 0).all()
    # Copies of the answer's side alone hold it against any kick.
    held, _ = study.return_shares(weights, drawn, copies=1e6, own_only=True)
    assert (held > 0.95).all()
    assert (shares[:, 1] < held[:, 1]).all()
    monkeypatch.undo()
    falling = np.array([[0.9, 0.85, 0.65, 0.7, 0.6, 0.5, 0.4, 0.3]])
    assert study.radius(falling)[0] == pytest.approx(0.75)
    assert study.radius(np.ones((1, 8)))[0] == study.KICKS[-1]


@pytest.mark.claim("A16")
def test_a_kick_is_left_in_the_reader_and_undone_by_a_memory(trained):
    """More than half of a kick is left by the layers; two steps of a memory leave less."""
    weights, pools = trained
    drawn = study.draw_queries(pools, count=40, copies=8, seed=1)
    assert (study.return_shares(weights, drawn)[1][:, study.KICKS.index(0.5)] / 0.5 > 0.5).all()
    patterns = torch.eye(8, dtype=torch.float64)
    aside = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).double()
    starts = torch.stack([patterns, patterns + 0.5 * torch.nn.functional.normalize(aside, dim=1)])
    ends = retrieve(patterns, queries=starts.flatten(0, 1), beta=8.0, steps=2).states
    left = (ends[8:] - ends[:8]).norm(dim=1) / ends[:8].norm(dim=1)
    assert left.mean() / 0.5 < 0.4


def test_demonstrations_against_memory(trained, monkeypatch):
    """A reader that copies takes the shown word; one whose attention is cut never sees it."""
    weights, pools = trained
    shown = []

    def reading(*weights, words, **options):
        shown.append(words)
        return read(*weights, words=words, **options)

    monkeypatch.setattr(model, "read", reading)
    shares = study.conflict_shares(weights, pools, count=50)
    assert (shares[:, study.NUMBERS.index(1.0)] > 0.8).all()
    assert (np.diff(shares, axis=1) >= 0).all()
    # Counted 1/256 times the word is hardly seen, and neither is the other.
    assert (abs(shares[:, 0] - 0.5) < 0.25).all()
    # The shown word belongs to neither class, the other is that of B.
    lines = draw_lines(pools, count=50, seed=1, share_a=1.0)
    assert not (shown[0][:, :, :1] == lines.words[:, :, :2]).any()
    assert torch.equal(shown[0][:, :, 1], lines.words[:, :, 1])


def test_slopes_go_through_zero_and_up_to_a_ratio():
    x, y = np.repeat(study.COUNTS, 2, axis=0).T
    seed = np.arange(len(x)) % 2
    h = np.log(x / y)
    value = np.where(x / y > 4, 9.0, (1.0 + seed) * h)
    table = {"measure": np.full(len(x), "scaled shift"), "x": x, "y": y, "seed": seed}
    table["value"] = value
    assert study.law_slopes(table, most=4) == pytest.approx([1.0, 2.0])
    assert study.law_slopes(table, most=8).min() > 2.1


def test_the_open_cells_do_what_the_package_does():
    """Boundaries of one step, by the exponential and without it, and the edge of the basin."""
    cells = run_open_cells("15_demonstrations")
    for copies, (memory, regression) in cells["boundaries"].items():
        # β = 4 and |A − B|² = 2, so that κ = 2.
        position = study.boundary_position(np.log(copies), strength=2.0)
        assert memory == pytest.approx(position, abs=1e-4)
        assert regression == pytest.approx(-np.tanh(0.5 * np.log(copies)), abs=1e-4)
    assert cells["growth_of_memory"] == pytest.approx(3.0, abs=1e-3)
    assert cells["growth_of_regression"] == pytest.approx(7 / 3, abs=1e-3)
    edge = study.edge_position(np.log(2), strength=2.0)
    assert cells["basin_edge"] == pytest.approx(edge, abs=2e-3)
    assert cells["basin_of_b_with_three_copies"] == 0.0
    assert np.log(3) > study.spinodal(2.0) > np.log(2)


def test_the_best_inner_loop_is_chosen_on_other_tasks(monkeypatch):
    """The second is best by the means of the first half, the third where it is judged."""
    judged = np.array([[0.9, 0.9], [0.5, 0.5], [0.1, 0.1]])
    halves = {"look-up": (np.array([3.0, 1.0, 2.0]), judged)}
    monkeypatch.setattr(inner_steps, "errors_of_halves", lambda *_, **__: halves)
    (line,) = inner_steps.lead_of_steps(0, "line")
    assert line["value"] == pytest.approx(0.45 - 0.5)


@pytest.mark.claim("A16c")
def test_inner_loops_against_closed_forms(monkeypatch):
    x, y = inner_steps.draw_tasks("line", count=3, dim=2, shown=6, seed=1)
    # By decay 2 the second coordinate is half of what it is without a preferred direction.
    even, _ = inner_steps.draw_tasks("line", count=3, dim=2, shown=6, seed=1, decay=0.0)
    np.testing.assert_allclose(x, even * [1.0, 0.5])
    shown = x[:, :-1]
    scale = (shown**2).sum((1, 2))
    monkeypatch.setattr(inner_steps, "STEPS", (1, 2, 2_000))
    errors = inner_steps.answer_errors(x, y, loop="regression", rate=1.0)
    for task in range(3):
        # One step is a correlation with the labels; very many are least squares.
        first = shown[task].T @ y[task, :-1] / scale[task]
        best = np.linalg.lstsq(shown[task], y[task, :-1], rcond=None)[0]
        for weights, error in ((first, errors[0, task]), (best, errors[2, task])):
            assert error == pytest.approx((weights @ x[task, -1] - y[task, -1]) ** 2, abs=1e-9)
    # Labels on a line are known to least squares as soon as there are enough of them.
    assert errors[2].max() < 1e-9
    monkeypatch.setattr(inner_steps, "STEPS", (1, 2))
    errors = inner_steps.answer_errors(x, y, loop="look-up", rate=0.7)
    query = x[1, -1]
    for step in range(2):
        weights = [np.exp(0.7 * one @ query) for one in shown[1]]
        answer = sum(w * label for w, label in zip(weights, y[1], strict=False)) / sum(weights)
        assert errors[step, 1] == pytest.approx((answer - y[1, -1]) ** 2, rel=1e-9)
        query = sum(w * one for w, one in zip(weights, shown[1], strict=True)) / sum(weights)
    # The memory of the package takes the same steps.
    told = retrieve(torch.tensor(shown[1]), queries=torch.tensor(x[1, -1:]), beta=0.7, max_steps=2)
    np.testing.assert_allclose(told.value[0], query, atol=1e-12)
    table = inner_steps.settings_a16c.read()
    line = table["labels"] == "line"
    # Labels are determined by as many demonstrations as directions, or by a few large directions.
    determined = line & ((table["shown"] >= table["dim"]) | (table["decay"] == 2))
    assert (table["low"][determined] > 0).all()
    assert (table["high"][line & ~determined] < 0).all()
    assert (table["high"][~line] < 0).all()


def test_saturation_is_the_ratio_of_medians_where_both_are_known(monkeypatch):
    """Of three trainings; one has no boundary at 8 : 1, in another an episode is far away."""
    found = {8: [[3.0, 4.0, 9.0], [np.nan] * 3, [1.0, 2.0, 6.0]], 2: [[1.0, 2.0, 90.0]] * 3}
    monkeypatch.setattr(study, "draw_episodes", lambda pools, **_: None)
    monkeypatch.setattr(study, "shifts", lambda *_, shown: np.array(found[shown[0]]))
    ratios = study.boundary_saturation({}, [], part="test", ratio=8)
    np.testing.assert_allclose(ratios, [2.0, 1.0])
