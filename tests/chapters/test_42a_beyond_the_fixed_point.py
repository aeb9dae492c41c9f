"""Beyond the fixed point: exponents against dense products, streams against exact derivatives, the
tables against distances that grow between two orbits of the real model."""

import numpy as np
import pytest
import torch
from known_generators import (
    Toy,
    dense_derivative,
    example_decoder,
    installed_decoder,
    separation_rate,
    word_windows,
)
from open_cells import run_open_cells
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from bookmaker.tables import read_columns
from compendium.c42a_beyond_the_fixed_point import conventions, edges, motions
from compendium.common import soft_tokens
from compendium.common.decoder import encode, run_decoder
from compendium.common.models import next_token_distribution
from compendium.common.rows import groupby
from spinformer.core.statistics import student_interval
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts


@pytest.mark.claim("R3b")
def test_exponents_are_those_of_the_dense_product():
    model = example_decoder(seed=1)
    betas = torch.tensor([[3.0], [20.0]], dtype=torch.float64)
    orbit = soft_tokens.follow(model, word_windows(model, span=2, count=2), beta=betas, steps=8)
    found = soft_tokens.exponents(model, orbit, span=2, beta=betas, align=3)
    drawn = torch.randn(2, 2, 16, generator=torch.Generator().manual_seed(0)).double()
    for b, beta in enumerate((3.0, 20.0)):
        vector, sizes = drawn[b].flatten().numpy(), []
        for step in reversed(range(8)):
            vector = vector @ dense_derivative(model, orbit[b, step : step + 2], beta=beta)
            sizes.append(np.linalg.norm(vector))
        # Counted is what the steps do that are left when three have turned the covector.
        assert found[b] == pytest.approx(np.log(sizes[-1] / sizes[2]) / 5, rel=1e-6)


def test_returns_tell_rests_cycles_and_curves():
    turns = 2 * np.pi * np.arange(400) / np.array([[7.0], [20 * 2**0.5], [np.inf]])
    orbit = torch.as_tensor(np.stack((np.cos(turns), np.sin(turns)), -1))
    lags, gaps = soft_tokens.returns(orbit, longest=48)
    assert lags.tolist()[::2] == [7, 1]
    assert (gaps < 1e-6).tolist() == [True, False, True]


# Torch loads its forward derivatives in a way that it deprecates itself.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_stream_and_its_twin_are_the_map_and_its_derivative():
    model = example_decoder(seed=10)
    betas = torch.tensor([2.0, 5.0, 9.0], dtype=torch.float64)
    start = word_windows(model, span=1, count=3)
    found = edges.stream(model, start, betas=betas, steps=12, settle=12)[0]
    expected = soft_tokens.follow(model, start, beta=betas[:, None], steps=12)[:, 1:]
    torch.testing.assert_close(found, expected)
    # Kept keys of three tokens: the twin's growth against exact forward derivatives.
    start, betas = word_windows(model, span=3, count=3), torch.tensor([3.0, 9.0, 30.0]).double()
    orbit, growth = edges.stream(model, start, betas=betas, steps=40, settle=5)
    memory = []
    with sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        states = run_decoder(model, start, memory=memory, span=3)[:, -1]
        sizes = []
        for step in range(40):
            if step == 5:
                noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
                states = forward_ad.make_dual(states, noise.double())
            token = torch.softmax(betas[:, None] * (states @ model.embedding.T), -1)
            token = (token @ model.embedding)[:, None]
            torch.testing.assert_close(forward_ad.unpack_dual(token).primal[:, 0], orbit[:, step])
            states = run_decoder(model, token, memory=memory, span=3, start=3 + step)[:, -1]
            if step >= 5:
                parts = [*(one for pair in memory for one in pair), states]
                found = [forward_ad.unpack_dual(one).tangent for one in parts]
                sizes.append(sum(one.square().flatten(1).sum(1) for one in found).sqrt().log())
    expected = torch.stack(sizes).diff(dim=0)
    assert expected.abs().max() > 0.5
    np.testing.assert_allclose(growth[1:].mean(0), expected.mean(0), atol=0.05)
    # The twin begins beside the stream in its state alone.
    np.testing.assert_allclose(growth[0], sizes[0] + np.log(0.01 / edges.TWIN), atol=0.2)


@pytest.mark.claim("R5")
def test_greedy_loops_are_those_of_a_list_of_words():
    model = example_decoder(seed=5)
    starts = torch.randint(32, (6, 2), generator=torch.Generator().manual_seed(0))
    loops, ways = motions.greedy_loops(model, model.embedding[starts], horizon=400)

    def moved(pair):
        logits = next_token_distribution(model, model.embedding[torch.tensor([pair])], beta=1.0)
        return pair[1], int(logits.argmax())

    for start, loop, way in zip(starts.tolist(), loops, ways, strict=True):
        seen, pair = [], tuple(start)
        while pair not in seen:
            seen.append(pair)
            pair = moved(pair)
        assert way == seen.index(pair)
        assert loop == len(seen) - way
    assert motions.greedy_loops(model, model.embedding[starts], horizon=1)[0].max() == 0
    # So cold the map says whole words.
    said = soft_tokens.follow(model, model.embedding[starts], beta=1e6, steps=1)[:, 2]
    words = [moved(tuple(start))[1] for start in starts.tolist()]
    torch.testing.assert_close(said, model.embedding[words])


@pytest.mark.claim("R3c")
def test_chaos_lies_where_the_multipliers_say_that_the_fixed_point_is_stable():
    ways = dict(groupby(edges.branch_table.read(), "span", "beta", "way"))
    texts = dict(groupby(motions.motion_table.read(), "span", "beta"))[4, 0.6]["exponent"]
    assert student_interval(texts)[0] > 0
    # The multipliers lose the fixed point above 0.61.
    assert max(ways[span, 0.59, "up"]["away"].max() for span in (4, 8)) < 3e-4
    # Above, what came up is as far as the oscillation that chapter 42 began elsewhere.
    cycle = read_columns(edges.CHAPTER_42 / "cycle.csv")["away"]
    np.testing.assert_allclose(ways[4, 0.63, "up"]["away"], cycle.mean(), rtol=0.05)
    # Lives grow with β beyond their errors.
    lives = [edges.mean_lives(span)[beta] for span, beta in ((4, 0.54), (4, 0.56), (4, 0.58))]
    assert lives[0].high < lives[1].low < lives[1].high < lives[2].low


def test_a_life_ends_at_its_last_token_far_away_or_is_cut_off(monkeypatch):
    """Starts by a script, each at its number: far from the fixed point for so many tokens."""
    lives, clock = 3 * np.arange(16) + 1, [0]

    def scripted(model, windows, *, beta, steps):
        places = clock[0] + 1 + torch.arange(steps)
        numbers = windows[:, :1, 1].expand(-1, steps)
        far = places <= torch.tensor(lives)[numbers.long()]
        clock[0] += steps
        return torch.cat([windows, torch.stack([10.0 * soft_tokens.FAR * far, numbers], -1)], 1)

    starts = torch.stack([torch.zeros(16, 4), torch.arange(16.0)[:, None].expand(-1, 4)], -1)
    monkeypatch.setattr(edges, "decoder", lambda: None)
    monkeypatch.setattr(edges, "find_rests", lambda *_: torch.zeros(1, 2))
    monkeypatch.setattr(edges, "text_starts", lambda *_, span: starts)
    monkeypatch.setattr(edges, "distances", lambda orbit, _: orbit[..., 0])
    monkeypatch.setattr(edges, "follow", scripted)
    rows = edges.life_table.rows(4, beta=0.5, horizon=60)
    assert [row["ended"] for row in rows] == (lives <= 40).astype(int).tolist()
    assert [row["time"] for row in rows] == np.where(lives <= 40, lives, 60).tolist()


def test_other_weights_are_what_they_say():
    model = example_decoder()

    def matrices(changed):
        layer = changed.model.model.layers[1]
        return {path.split(".")[-2]: matrix for path, matrix in layer.named_parameters()}

    one = matrices(motions.changed(model, "trained"))
    other = matrices(motions.changed(model, "shuffled attention"))
    assert all(torch.equal(matrix, one[name]) for name, matrix in matrices(model).items())
    assert torch.equal(one["gate_proj"], other["gate_proj"])
    for name in ("q_proj", "v_proj"):
        assert not torch.equal(one[name], other[name])
        torch.testing.assert_close(one[name].flatten().sort()[0], other[name].flatten().sort()[0])
    fresh = motions.changed(model, "fresh")
    assert float(fresh.embedding.std()) == pytest.approx(0.25, rel=0.1)
    every = motions.changed(model, "shuffled")
    for name in ("gate_proj", "q_proj"):
        assert not torch.equal(matrices(every)[name], one[name])
    assert torch.equal(every.embedding, model.embedding)
    # Without attention no token knows of another one; without the rest nothing but attention acts.
    alone = motions.changed(model, "trained", "feed-forward")
    inputs = word_windows(model, span=5)
    torch.testing.assert_close(run_decoder(alone, inputs)[:, 4:], run_decoder(alone, inputs[:, 4:]))
    silent = matrices(motions.changed(model, "trained", "attention"))
    assert not silent["down_proj"].any()
    assert torch.equal(silent["o_proj"], one["o_proj"])


@pytest.mark.nightly
@pytest.mark.claim("R3")
def test_small_distances_grow_between_texts_where_the_table_says():
    model = installed_decoder()
    stored = dict(groupby(motions.motion_table.read(), "span", "beta"))
    start = model.embedding[encode(model, sample_texts()["essay"])[:8]]
    with torch.no_grad():
        for beta, sign in ((0.5, -1), (1.0, 1)):
            rate = separation_rate(model, start, beta=beta, steps=45, size=1e-6)
            assert np.sign(rate) == sign == np.sign(stored[8, beta]["exponent"].mean())


@pytest.mark.nightly
def test_behind_its_first_token_small_distances_shrink():
    """A token in front of every window, and no derivative."""
    model = installed_decoder()
    front = model.embedding[encode(model, "<|im_start|>")].double()
    start = model.embedding[encode(model, sample_texts()["essay"])[:4]].double()
    rates = {}
    with torch.no_grad():
        for name, prefix in (("none", front[:0]), ("first token", front)):
            pair = torch.stack((start, start + 1e-4 * torch.ones_like(start)))
            gaps = []
            for _ in range(60):
                inputs = torch.cat((prefix.expand(2, -1, -1), pair), 1)
                token = next_token_distribution(model, inputs, beta=1.0) @ model.embedding
                pair = torch.cat((pair[:, 1:], token[:, None]), 1)
                gaps.append(float((pair[0] - pair[1]).norm()))
                pair[1] = pair[0] + (pair[1] - pair[0]) * 1e-4 / gaps[-1]
            rates[name] = float(np.log(np.array(gaps[40:]) / 1e-4).mean())
    stored = dict(groupby(conventions.settings_R3.read(), "prefix"))
    assert rates["first token"] == pytest.approx(stored["first token"]["value"].mean(), abs=0.1)
    assert rates["none"] > 0.1
    assert set(stored["first token"]["regime"]) == {"fixed point"}


@pytest.mark.claim("R4")
def test_one_voice_is_not_what_the_map_says():
    for _, rows in groupby(motions.samples_table.read(), "beta"):
        distance = rows["distance"][rows["step"] == 1]
        # More samples are nearer to the map, from one to a hundred thousand, and many as 1/√N.
        assert (np.diff(distance) < 0).all()
        assert distance[5] / distance[3] == pytest.approx(0.1, rel=0.5)


def test_a_text_is_judged_by_its_own_samples(monkeypatch):
    """Laws by a script: one sample is 0.4 from the map, many 0.1 more with every token."""

    def scripted(model, windows, *, beta, steps, samples=None, seed=0):
        clock = torch.arange(1.0, steps + 1).expand(len(windows), -1)
        # A token is its own distance from the map and the number of its text.
        far = {None: 0.0 * clock, 1: 0.4 + 0.0 * clock, 10_000: 0.1 * clock}[samples]
        said = torch.stack([far, windows[:, :1, 1].expand(-1, steps)], -1)
        return torch.cat([windows, said], 1)

    def laws(model, windows, *, beta):
        far = windows[:, -1, 0] * (1 + 0.5 * windows[:, -1, 1])
        return torch.stack([1 - far, far], -1)

    begin = torch.zeros(2, 4, 2)
    begin[1, :, 1] = 1.0
    monkeypatch.setattr(conventions, "decoder", lambda: None)
    monkeypatch.setattr(conventions, "follow", scripted)
    monkeypatch.setattr(conventions, "next_token_distribution", laws)
    rows = conventions.crowd_rows(begin, beta=1.0, tokens=(1, 2), settle=3, first=7)
    assert [(row["data"], row["tokens"]) for row in rows] == [(7, 1), (7, 2), (8, 1), (8, 2)]
    found = [row["value"] for row in rows]
    assert found == pytest.approx([0.15, 0.05, 0.1, -0.05], abs=1e-6)
    assert [row["low"] for row in rows] == pytest.approx(found, abs=1e-6)


def test_a_loop_must_have_closed_in_time():
    found = conventions.loop_rows(np.array([9, 0, 9]), np.array([391, 400, 392]))
    assert [row["data"] for row in found] == [0, 1, 2]
    assert [row["value"] for row in found] == [1, -1, -1]


def test_the_open_cells_are_what_the_package_computes():
    names = run_open_cells("42a_beyond_the_fixed_point")
    mixing = torch.as_tensor(names["mixing"])
    width = names["width"]
    toy = Toy(names["words"], lambda h, words: width * torch.tanh(h @ mixing.T) @ words.T)
    soft = SoftTokenMap(toy, window=1)
    betas = torch.tensor([0.3, 0.5, 0.7]).double()
    start = soft.embed([0]).expand(3, 1, -1)
    spectrum = soft.lyapunov_spectrum(start, steps=1000, transient=1000, beta=betas)
    # In chaos two orbits of the same length differ by their fluctuations.
    np.testing.assert_allclose(names["toy_exponents"], spectrum.exponents.value[:, 0], atol=0.03)
    cycles = soft.greedy_cycles(soft.embed([0])[None], horizon=400)
    assert names["greedy_cycle"] == cycles.period[0]


def test_rows_of_motions_pair_every_start_with_every_temperature(monkeypatch):
    begin = torch.arange(3.0)[:, None, None] * torch.ones(3, 4, 2)

    def follow(model, windows, *, beta, steps):
        # Orbits that remember their start, their β and the step.
        step = torch.arange(float(steps))[:, None]
        return (windows[:, :1, :1] + 100 * beta[:, :, None]) + 0 * step + 1e-3 * step

    def exponents(model, orbit, *, span, beta, align):
        assert orbit.shape[1] == 40
        assert span == 4
        assert align == 10
        assert float(orbit[0, 0, 0] % 1) == pytest.approx(0.006, abs=1e-4)  # after six steps
        np.testing.assert_allclose(orbit[:, 0, 0] // 100, beta[:, 0])
        return (orbit[:, 0, 0] % 100).floor().numpy()

    def returns(orbit, *, longest):
        assert longest == 5
        return np.arange(len(orbit)), (orbit[:, 0, 0] // 100).numpy()

    monkeypatch.setattr(motions, "follow", follow)
    monkeypatch.setattr(motions, "exponents", exponents)
    monkeypatch.setattr(motions, "returns", returns)
    rows = motions.motion_rows(None, begin, (2.0, 5.0), settle=6, measure=40, last=5)
    assert [(row["beta"], row["start"]) for row in rows] == [
        (beta, start) for beta in (2.0, 5.0) for start in range(3)
    ]
    for number, row in enumerate(rows):
        assert row["exponent"] == row["start"]
        assert row["gap"] == row["beta"]
        assert row["lag"] == number


class Letters:
    """A model with two channels, the names of whose words are their numbers."""

    width = 2
    embedding = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0], [1.0, 0.0]])


@pytest.fixture
def letters(monkeypatch):
    model = Letters()
    for module in (edges, motions):
        monkeypatch.setattr(module, "decoder", lambda: model)
        monkeypatch.setattr(module, "find_rests", lambda model, betas: torch.ones(len(betas), 2))
    starts = torch.arange(16.0)[:, None, None]
    monkeypatch.setattr(
        edges, "text_starts", lambda model, *, span, count=16: starts[:count].expand(-1, span, 2)
    )
    monkeypatch.setattr(edges, "distances", lambda orbit, rest: (orbit - rest[:, None])[..., 0])
    return model


def test_streams_are_measured_after_they_were_settled_and_aligned(letters, monkeypatch):
    asked = []

    def stream(model, windows, *, betas, steps, settle):
        asked.append((windows.shape, betas, steps, settle))
        count = len(windows)
        time = torch.arange(float(steps))
        orbit = 1.0 + time[None, :, None] * torch.ones(count, 1, 2)
        growth = np.arange(steps - settle)[:, None] + 100.0 * np.arange(count)
        return orbit, growth

    monkeypatch.setattr(edges, "stream", stream)
    rows = edges.stream_table.rows(8, beta=0.6, settle=30, align=10, measure=5)
    shape, betas, steps, settle = asked[-1]
    assert (tuple(shape), steps, settle) == ((16, 8, 2), 45, 30)
    assert betas.tolist() == pytest.approx([0.6] * 16)
    for number, row in enumerate(rows):
        assert row["start"] == number
        assert row["exponent"] == pytest.approx(12.0 + 100 * number)  # tokens 10 to 14
        assert row["away"] == pytest.approx(34.5)  # of the last 20 of 45


def test_a_diagram_shows_places_between_the_mean_word_and_two_words(letters, monkeypatch):
    mean = letters.embedding.mean(0)
    monkeypatch.setattr(edges, "encode", lambda model, word: [{" the": 0, "\n": 1}[word]])
    ends = {"the": letters.embedding[0], "line": letters.embedding[1]}

    def stream(model, windows, *, betas, steps, settle):
        assert (steps, settle, len(windows)) == (9, 9, 3)
        assert betas.tolist() == pytest.approx([0.4, 0.42, 0.44])
        # The last two tokens: a word, then the mean of all.
        orbit = torch.full((3, steps, 2), torch.nan)
        orbit[:, -2] = torch.stack([ends["the"], ends["line"], mean])
        orbit[:, -1] = mean
        return orbit, None

    monkeypatch.setattr(edges, "stream", stream)
    rows = edges.diagram_table.rows(8, steps=9, streams=3, last=2)
    assert [row["beta"] for row in rows] == [0.4, 0.4, 0.42, 0.42, 0.44, 0.44]
    assert (rows[0]["the"], rows[2]["line"]) == pytest.approx((1.0, 1.0), abs=1e-4)
    for row in (rows[1], rows[3], rows[4], rows[5]):
        assert (row["the"], row["line"]) == pytest.approx((0.0, 0.0), abs=1e-4)


def test_prompts_are_followed_until_their_last_token_away_from_the_fixed_point(
    letters, monkeypatch
):
    letters.embedding = torch.arange(200.0)[:, None].expand(-1, 2)
    letters.embedding = torch.cat([letters.embedding, letters.embedding])
    tail = torch.arange(150, 153)
    words = {kind: torch.arange(10 * k, 10 * k + 9) for k, kind in enumerate(motions.KINDS)}
    monkeypatch.setattr(motions, "sample_texts", lambda: {kind: kind for kind in motions.KINDS})
    monkeypatch.setattr(
        motions, "encode", lambda model, text: tail if text == motions.TEMPLATE else words[text]
    )
    seen = []

    def follow(model, windows, *, beta, steps):
        seen.append(windows[..., 0])
        orbit = torch.ones(len(windows), 8 + steps, 2)
        for number in range(len(windows)):
            orbit[number, 8 : 8 + number] = 5.0  # text k leaves the fixed point for k tokens
        return orbit

    monkeypatch.setattr(motions, "follow", follow)
    monkeypatch.setattr(motions, "distances", lambda orbit, rest: (orbit - rest[:, None])[..., 0])
    monkeypatch.setattr(motions, "exponents", lambda model, ends, **given: np.arange(10) / 10)
    rows = motions.prompt_table.rows(1.0, steps=60)
    assert [row["kind"] for row in rows] == [*motions.KINDS] * 2
    assert [row["template"] for row in rows] == ["no"] * 5 + ["yes"] * 5
    assert [row["way"] for row in rows] == list(range(10))
    assert [row["exponent"] for row in rows] == pytest.approx(np.arange(10) / 10)
    for k, kind in enumerate(motions.KINDS):
        assert seen[0][k].tolist() == words[kind][:8].tolist()
        # Before a template, the end of which is the end of the window.
        assert seen[0][5 + k].tolist() == [*words[kind][:8].tolist()[3:], *tail.tolist()]
    assert np.isnan([row["exponent"] for row in motions.prompt_table.rows(0.58, steps=60)]).all()
