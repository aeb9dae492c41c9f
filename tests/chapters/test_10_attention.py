"""Attention by its formula against the framework's kernel; its cheap relatives at their limits."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from torch.nn.functional import scaled_dot_product_attention

from compendium.c10_attention import study
from compendium.c10_attention.forgetting import confirm_a21, recalled_pairs, settings_a21
from compendium.common import images
from spinformer.hopfield.attention import attention


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def assert_same(found, wanted, atol=1e-12):
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol)


@pytest.mark.claim("A1")
def test_attention_is_the_framework_kernel_and_a_plain_loop():
    q = draw(3, 5, 4, seed=1)
    k = draw(3, 7, 4, seed=2)
    v = draw(3, 7, 9, seed=3)
    mask = draw(5, 7, seed=4) > -0.5
    assert_same(
        attention(q, keys=k, values=v, beta=0.3, mask=mask),
        scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3),
    )
    weights = [math.exp(sum(q[1, 2] * k[1, n]).item() / 2.0) for n in range(7)]
    row = sum(w * v[1, n] for n, w in enumerate(weights)) / sum(weights)
    assert_same(attention(q, keys=k, values=v)[1, 2], row)


@pytest.mark.claim("A2")
def test_heads_are_chunks_of_the_vector_space():
    q = draw(2, 5, 12, seed=1)
    k = draw(2, 7, 12, seed=2)
    v = draw(2, 7, 12, seed=3)
    split = [t.unflatten(-1, (3, 4)).transpose(1, 2) for t in (q, k, v)]
    wanted = scaled_dot_product_attention(*split).transpose(1, 2).flatten(-2)
    assert_same(study.multi_head_attention(q, keys=k, values=v, heads=3), wanted)


@pytest.mark.claim("A3")
def test_attention_acts_on_sets():
    x = draw(8, 6, seed=5)
    order, other = np.random.default_rng(1).permuted([range(8)] * 2, axis=1)
    found = attention(x[order], keys=x[other], values=x[other])
    assert_same(found, attention(x, keys=x, values=x)[order])


def test_each_relative_is_exact_at_its_limit():
    x = draw(2, 24, 6, seed=1)
    full = scaled_dot_product_attention(x, x, x, scale=0.4)
    for block in (1, 7, 24, 100):
        assert_same(study.streaming_attention(x, block, beta=0.4), full)
    assert_same(study.low_rank_attention(x, 24, beta=0.4), full, atol=1e-8)
    for window in (0, 1, 5, 23):
        mask = torch.ones(24, 24, dtype=torch.bool).tril(window).triu(-window)
        wanted = scaled_dot_product_attention(x, x, x, attn_mask=mask, scale=0.4)
        assert_same(study.sparse_attention(x, window, beta=0.4), wanted)
    causal = scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.4)
    assert_same(study.recurrent_attention(x, 1, block=6, beta=0.4), causal)


def test_low_rank_is_its_formula():
    x = draw(24, 6, seed=1)
    few = torch.stack([run.mean(0) for run in x.split(4)])
    core = torch.softmax(0.4 * few @ few.T, -1)
    right = torch.linalg.solve(core, scaled_dot_product_attention(few, x, x, scale=0.4))
    wanted = scaled_dot_product_attention(x, few, right, scale=0.4)
    assert_same(study.low_rank_attention(x, 6, beta=0.4), wanted)


@pytest.mark.parametrize(("each", "block", "slots"), [(3, 6, 3), (1, 8, None), (4, 4, 99)])
def test_a_bounded_memory_sees_its_block_and_the_latest_means_only(each, block, slots):
    x = draw(24, 6, seed=1)
    found = study.recurrent_attention(x, each, block=block, slots=slots, beta=0.7)
    for place in range(24):
        start = place - place % block
        means = [x[i : i + each].mean(0) for i in range(0, start, each)][-(slots or 99) :]
        seen = torch.stack([*means, *x[start : place + 1]])
        weights = torch.exp(0.7 * seen @ x[place])
        weights[: len(means)] *= each
        assert_same(found[place], weights @ seen / weights.sum())


@pytest.mark.parametrize("family", study.SETTINGS)
def test_families_cost_and_miss_what_their_functions_do(family):
    x = draw(64, 5, seed=8)
    causal = family == "recurrent"
    exact = scaled_dot_product_attention(x, x, x, is_causal=causal, scale=0.4)
    mean = torch.stack([x[: t + 1].mean(0) for t in range(64)]) if causal else x.mean(0)
    costs = study.family_operations(x, family=family)
    errors = study.family_errors(x, family=family, beta=0.4, seed=3)
    for setting, cost, error in zip(study.SETTINGS[family], costs, errors, strict=True):
        approximate = partial(study.FAMILIES[family], x, setting, beta=0.4)
        if family == "kernel":
            approximate = partial(approximate, seed=torch.Generator().manual_seed(3))
        wrong = [approximate() - exact for _ in range(3)]
        wanted = torch.stack(wrong).norm() / 3**0.5 / (exact - mean).norm()
        assert error == pytest.approx(float(wanted), abs=1e-12)
        found = study.count_cost(study.FAMILIES[family], x, setting)[0]
        assert cost == found / (2 * 64 * 64 * 5 if causal else 4 * 64 * 64 * 5)


def test_the_weights_of_a_face_have_no_low_rank():
    """What chapter 10 says of its first picture: six numbers carry the scores, 180 the weights."""
    picture = torch.as_tensor(images.faces()[3]).view(images.FACE_SHAPE)
    windows = picture.unfold(0, 10, 1).unfold(1, 10, 1).reshape(256, 100)
    tokens = torch.nn.functional.layer_norm(windows, (100,), eps=0.0)
    scores = 0.1 * tokens @ tokens.mT
    for matrix, told, within in ((scores, 6, 2), (scores.softmax(-1), 180, 25)):
        carried = torch.linalg.svdvals(matrix).square().cumsum(0)
        assert int((carried < 0.9 * carried[-1]).sum()) + 1 == pytest.approx(told, abs=within)


def test_random_features_converge_as_the_inverse_root():
    # The variance of one feature grows as exp(β‖q + k‖²): the law needs that below the features.
    x = draw(10, 4, seed=1)
    generator = torch.Generator().manual_seed(0)
    exact = scaled_dot_product_attention(x, x, x, scale=0.1)
    errors = []
    for features in (100, 1_600, 25_600):
        found = [study.kernel_attention(x, features, beta=0.1, seed=generator) for _ in range(24)]
        errors.append(float((torch.stack(found) - exact).square().mean().sqrt()))
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 4.0, rtol=0.35)


def operations(length, *, width, family, fixed):
    """Those of the matrix products, written out; one that stored the matrix would have more."""
    budget = study.FIXED[family] if fixed else length // study.TOKENS_EACH[family]
    return {
        "low rank": 8 * length * budget * width + 4 * budget**2 * width,
        "sparse": 4 * width * length * (2 * budget + 1),
        "kernel": 8 * length * budget * width + 2 * length * budget,
        "recurrent": 128 * width * sum(32 + min(budget, 2 * k) for k in range(length // 32)),
    }[family]


@pytest.mark.claim("A4")
def test_families_are_linear_at_a_fixed_budget_and_quadratic_at_a_fixed_share():
    for family, kind, exponent in zip(*study.exponents_table.read().values(), strict=True):
        fixed = kind == "fixed"
        longest = 8192 if fixed or family == "recurrent" else 2048
        full = operations(longest, width=32, family=family, fixed=fixed)
        half = operations(longest // 2, width=32, family=family, fixed=fixed)
        assert exponent == pytest.approx(math.log2(full / half), abs=0.002)
        counted, _ = study.count_cost(
            study.budgeted, draw(1024, 5), family=family, fixed=fixed, beta=0.4
        )
        wanted = operations(1024, width=5, family=family, fixed=fixed)
        assert counted == pytest.approx(wanted, rel=1e-3)
    for length in (128, 256):
        x = draw(length, 6)
        assert study.count_cost(attention, x, keys=x, values=x) == (24 * length**2, length**2)


def test_open_cells_give_the_heads_of_the_package():
    cells = run_open_cells("10_attention")
    tokens = torch.as_tensor(cells["token_vectors"])
    wanted = study.multi_head_attention(tokens, keys=tokens, values=tokens, heads=2)
    assert_same(torch.as_tensor(cells["outputs_in_order"]), wanted)
    assert cells["permutation_error"] < 1e-14
    keys = torch.eye(2, dtype=torch.float64)
    values = torch.tensor([[10.0], [20.0]], dtype=torch.float64)
    assert cells["example"] == pytest.approx(attention(keys[:1], keys=keys, values=values).item())


@pytest.mark.claim("A21")
def test_recurrent_memories_are_sums_over_the_past():
    """Linear attention as a sum over the text, the delta rule as sweeps of Kaczmarz's method."""
    dim, pairs = 8, 12
    for codebook in ("endless", "sixteen"):
        rng = np.random.default_rng(3)
        rng.standard_normal((1, 1, dim))
        keys = rng.standard_normal((1, pairs, dim))[0]
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        words = rng.standard_normal((1, 16 if codebook == "sixteen" else pairs, dim))[0]
        spoken = rng.integers(len(words), size=(1, pairs))[0]
        values = words[spoken] if codebook == "sixteen" else words
        answers = {"sum": (keys @ keys.T) @ values}
        state = np.zeros((dim, dim))
        for key, value in zip(keys, values, strict=True):
            # The nearest matrix to the last one that answers this key without error.
            state = state @ (np.eye(dim) - np.outer(key, key)) + np.outer(value, key)
            np.testing.assert_allclose(state @ key, value, atol=1e-12)
        answers["delta"] = keys @ state.T
        for memory, given in answers.items():
            if codebook == "sixteen":
                apart = np.linalg.norm(given[:, None] - words, axis=-1)
                expected = apart.argmin(1) == spoken
            else:
                apart = np.linalg.norm(given - values, axis=1)
                expected = apart < 0.5 * np.linalg.norm(values, axis=1)
            found = recalled_pairs(
                dim,
                memory=memory,
                codebook=codebook,
                overlap=0.0,
                pairs=pairs,
                texts=1,
                seed=3,
            )
            np.testing.assert_array_equal(found[0], expected[::-1])
    table = settings_a21.read()
    assert (table["low"] > 0).all()
    assert (confirm_a21.read()["low"] > 0).all()
    words = (table["codebook"] == "sixteen") & (table["overlap"] == 0)
    assert (table["recalled"][words] > 0.9 * table["dim"][words]).all()
