"""What left the window: pairs with one noise against their chances, words that come back."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from known_generators import example_decoder, two_words
from open_cells import run_open_cells

from compendium.c42c_what_left_the_window import memory, study
from compendium.c42c_what_left_the_window.study import pairs_apart, recurrence
from compendium.common.models import next_token_distribution
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.traces import output_matrix


def test_discrepancies_are_unbiased():
    chances = torch.softmax(torch.randn(11, 5, generator=torch.Generator().manual_seed(0)), 1)
    one, other = chances[:5], chances[5:10]

    def kernel(p, q):
        return float((p * q).sqrt().sum())

    within = [
        np.mean([kernel(p, q) for i, p in enumerate(group) for j, q in enumerate(group) if i != j])
        for group in (one, other)
    ]
    across = np.mean([kernel(p, q) for p in one for q in other])
    found = memory.unbiased_discrepancy(one, other)
    assert found == pytest.approx(sum(within) - 2 * across, abs=1e-6)


@pytest.mark.claim("R9")
def test_a_window_is_forgotten_as_fast_as_a_chain_of_two_words_forgets():
    """Memory of a chain that changes its word with the chance ε decays as (1 − 2ε)ⁿ."""
    flip, lags = 0.1, (0, 1, 4, 8)
    soft = SoftTokenMap(two_words(flip), window=1)
    pair = torch.tensor([[0], [1]])
    options = {"beta": 1.0, "copies": 40, "lags": lags}
    runs = [memory.what_windows_tell(soft, pair, seed=seed, **options) for seed in range(100)]
    first = 2 - 4 * (flip * (1 - flip)) ** 0.5
    expected = first * (1 - 2 * flip) ** (2 * np.array(lags))
    error = np.std(runs, axis=0, ddof=1) / 10 + 1e-9
    assert (abs(np.mean(runs, 0) - expected) < 4 * error).all()
    # Windows that are the same tell nothing, on average.
    same = [
        memory.what_windows_tell(soft, pair[[0, 0]], seed=seed, **options) for seed in range(100)
    ]
    error = np.std(same, axis=0, ddof=1) / 10 + 1e-9
    assert (abs(np.mean(same, 0)) < 4 * error).all()


def test_pairs_with_one_noise_agree_as_often_as_gumbel_says():
    model, count = example_decoder(seed=1), 4000
    words = torch.randint(32, (2, 1), generator=torch.Generator().manual_seed(3))
    one, other = (word.expand(count, 1) for word in words)
    distance, apart = pairs_apart(model, one, other, beta=1.0, lags=(0, 1), seed=0)
    p, q = next_token_distribution(model, model.embedding[words], beta=1.0).numpy()
    assert distance[0] == pytest.approx(0.5 * abs(p - q).sum(), rel=1e-9)
    assert apart[0].all()
    # With one noise both say v with the chance 1 / Σ_u max(p_u/p_v, q_u/q_v).
    same = sum(1 / np.maximum(p / p[v], q / q[v]).sum() for v in range(32))
    error = 4 * (same * (1 - same) / count) ** 0.5
    assert 1 - apart[1].mean() == pytest.approx(same, abs=error)
    assert 0.05 < same < 0.95
    # Windows that are the same stay so, and say each word as often as its law has it.
    assert not pairs_apart(model, one, one, beta=1.0, lags=(0, 5), seed=0)[1].any()


def test_a_change_that_no_later_word_sees_is_forgotten_at_once():
    model = example_decoder(seed=2)
    # Without values to bring, a token says what it alone says: the oldest of two is not heard.
    for number in range(2):
        output_matrix(model.model, number).zero_()
    one = torch.randint(32, (50, 2), generator=torch.Generator().manual_seed(0))
    other = torch.cat((31 - one[:, :1], one[:, 1:]), 1)
    distance, apart = pairs_apart(model, one, other, beta=3.0, lags=(0, 1), seed=0)
    assert apart[0].mean() > 0.9
    assert distance[0].max() < 1e-12
    assert not apart[1].any()


@pytest.mark.claim("R10")
@pytest.mark.parametrize("null", ["unrelated", "shuffled"])
def test_words_that_come_back_are_counted_over_chance(null):
    rng = np.random.default_rng(0)
    words = rng.integers(20, size=(30, 3000))
    # Half of the words are those seven places before: twenty times chance, half of the time.
    for place in range(7, 3000):
        again = rng.random(30) < 0.5
        words[again, place] = words[again, place - 7]
    found = [recurrence(words, distance=n, null=null) for n in (5, 7, 14)]
    assert found == pytest.approx([1.0, 0.5 * 20 + 0.5, 0.25 * 20 + 0.75], rel=0.03)


def test_what_is_spoken_follows_the_law_of_the_last_words(monkeypatch):
    # One block keeps nothing of older words.
    model = example_decoder(blocks=1, seed=3)
    start = torch.randint(32, (200, 2), generator=torch.Generator().manual_seed(0))
    for begin, beta, steps in ((start, 1e6, 3), (start[:1].expand(3000, -1), 3.0, 1)):
        monkeypatch.setattr(study, "text_windows", lambda *_, now=begin, **__: (now, now[:, 0]))
        said = study.spoken(model, span=2, beta=beta, count=len(begin), steps=steps, seed=0)
        words = torch.cat((begin, said), 1)
        for step in range(steps):
            expected = next_token_distribution(
                model, model.embedding[words[:, step : step + 2]], beta=beta
            )
            # So cold it says the likeliest word.
            if beta > 1e3:
                assert torch.equal(said[:, step], expected.argmax(1))
            shares = torch.bincount(said[:, step], minlength=32) / len(begin)
            assert float((shares - expected.mean(0)).abs().max()) < 4 * (0.25 / 3000) ** 0.5


def test_words_of_one_topic_are_beyond_chance_in_no_order_of_their_own():
    # Each text has ten words of its own: twenty times chance between texts, none within.
    words = np.random.default_rng(1).integers(10, size=(20, 3000)) + 10 * np.arange(20)[:, None]
    words[1::2] -= 10
    # Two words of a text are two: of four, each has one like it among the other three.
    assert recurrence(np.array([[0, 1, 0, 1]]), distance=2, null="shuffled") == pytest.approx(3.0)
    assert recurrence(words, distance=9, null="shuffled") == pytest.approx(1.0, abs=0.03)
    assert recurrence(words, distance=9, null="unrelated") == pytest.approx(19.0, rel=0.03)


def test_the_open_cells_are_what_the_package_computes():
    names = run_open_cells("42c_what_left_the_window")
    soft = SoftTokenMap(two_words(names["flip"]), window=1)
    # One row a word: the chances of the two that follow it.
    chances = soft.next_token_distribution(soft.embed([0, 1])[:, None], beta=1.0).numpy()
    for number, found in enumerate(names["toy_memory"], 1):
        after = np.linalg.matrix_power(chances, number)
        assert found == pytest.approx(after[1, 1] - after[0, 1], abs=0.03)
    assert names["toy_damage"] == 1.0


def test_what_is_left_of_a_window_is_a_ratio_of_means_with_its_error(monkeypatch):
    rng = np.random.default_rng(0)
    # Pairs that tell more at first tell more in the end, too.
    given = rng.uniform(0.8, 1.2, (400, 1)) * rng.uniform(0.95, 1.05, (400, 2)) * [1.0, 0.04]
    asked = []

    def tell(soft, pair, *, beta, copies, lags, seed):
        asked.append((pair, beta, copies, lags, seed))
        return given[pair]

    found = SimpleNamespace(model=None, tokenizer=None)
    monkeypatch.setattr(memory, "load_checkpoint", lambda: found)
    monkeypatch.setattr(memory, "SoftTokenMap", lambda model, tokenizer, window: window)
    monkeypatch.setattr(memory, "what_windows_tell", tell)
    monkeypatch.setattr(
        memory,
        "window_pairs",
        lambda soft, corpus, *, count, seed: range(count * seed, count * (seed + 1)),
    )
    chosen = {"window": 3, "beta": 0.7, "corpus": "texts"}
    rows = [memory.settings_R9.rows(data, **chosen, pairs=20)[0] for data in range(20)]
    values = np.array([row["value"] for row in rows])
    assert values.mean() == pytest.approx(memory.FORGOTTEN - 0.04, abs=5e-4)
    assert rows[0]["before"] == pytest.approx(given[:20, 0].mean())
    # The error of a ratio, two of them each way, against the scatter over other pairs.
    errors = np.array([row["high"] - row["value"] for row in rows]) / 2
    assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.35)
    assert rows[0]["value"] - rows[0]["low"] == pytest.approx(2 * errors[0])
    assert {one[1:4] for one in asked} == {(0.7, 12, (0, 3))}
    assert len({one[4] for one in asked}) == len(asked)
    (fresh,) = memory.confirm_R9.rows(5, **chosen)
    assert fresh["runs"] == 6


def test_lines_of_recurrence_leave_out_sevenths_of_the_texts(monkeypatch):
    """Of a mean over texts that is the jackknife's error, beside that of the model."""
    stored = {"null": [], "distance": [], "source": [], "ratio": [], "error": []}
    for null in ("unrelated", "shuffled"):
        for distance in (16, 32, 64):
            for source, ratio in (("text", 9.0), ("window 8", 1.5)):
                line = (null, distance, source, ratio + distance, 0.02)
                for name, value in zip(stored, line, strict=True):
                    stored[name].append(value)
    columns = {name: np.array(column) for name, column in stored.items()}
    monkeypatch.setattr(memory, "recurrence_table", SimpleNamespace(read=lambda: columns))
    monkeypatch.setattr(
        memory,
        "recurrence",
        lambda words, *, null, distance: words.mean() + distance + (null == "shuffled"),
    )
    words = np.random.default_rng(0).normal(size=(7, 1)) * np.ones(400)
    rows = memory.recurrence_rows(words)
    assert len(rows) == 6
    half = 1.96 * np.hypot(words[:, 0].std(ddof=1) / 7**0.5, 0.02)
    for row in rows:
        wanted = words.mean() + (row["null"] == "shuffled") - 1.5
        assert row["value"] == pytest.approx(wanted)
        assert row["low"] == pytest.approx(wanted - half)
        assert row["high"] == pytest.approx(wanted + half)
        assert row["runs"] == 7
