"""Attention by its formula against the framework's kernel; its cheap relatives at their limits."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from compendium.c10_attention.relatives import (
    kernel_attention,
    low_rank_attention,
    recurrent_attention,
    sparse_attention,
    streaming_attention,
)
from compendium.c10_attention.study import (
    FIXED,
    SETTINGS,
    budget,
    budget_call,
    budget_exponent,
    count_cost,
    family_call,
    family_errors,
    family_operations,
)
from compendium.common import images
from spinformer.hopfield.attention import attention, multi_head_attention

EXACT = {"rtol": 0, "atol": 1e-12}


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def triple(length, width=6):
    return tuple(draw(2, length, width, seed=seed) for seed in (1, 2, 3))


@pytest.mark.claim("A1")
def test_attention_is_the_framework_kernel_and_a_plain_loop():
    q, k, v = draw(3, 5, 4, seed=1), draw(3, 7, 4, seed=2), draw(3, 7, 9, seed=3)
    mask = draw(5, 7, seed=4) > -0.5
    torch.testing.assert_close(
        attention(q, keys=k, values=v), scaled_dot_product_attention(q, k, v), **EXACT
    )
    torch.testing.assert_close(
        attention(q, keys=k, values=v, beta=0.3, mask=mask),
        scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3),
        **EXACT,
    )
    result = attention(q, keys=k, values=v)
    for b in range(3):
        for s in range(5):
            raw = [math.exp(sum(q[b, s] * k[b, n]).item() / 2.0) for n in range(7)]
            row = sum(w * v[b, n] for n, w in enumerate(raw)) / sum(raw)
            torch.testing.assert_close(result[b, s], row, **EXACT)


@pytest.mark.claim("A2")
def test_heads_are_chunks_of_the_vector_space():
    q, k, v = draw(2, 5, 12, seed=1), draw(2, 7, 12, seed=2), draw(2, 7, 12, seed=3)
    split = [t.unflatten(-1, (3, 4)).transpose(1, 2) for t in (q, k, v)]
    wanted = scaled_dot_product_attention(*split).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(multi_head_attention(q, keys=k, values=v, heads=3), wanted, **EXACT)
    torch.testing.assert_close(
        multi_head_attention(q, keys=k, values=v, heads=1), attention(q, keys=k, values=v), **EXACT
    )
    # A head sees its own chunk only.
    k[..., 4:] = 0.0
    torch.testing.assert_close(
        multi_head_attention(q, keys=k, values=v, heads=3)[..., :4], wanted[..., :4], **EXACT
    )


@pytest.mark.claim("A3")
def test_attention_acts_on_sets():
    x = draw(8, 6, seed=5)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    permuted = attention(x[order], keys=x[order], values=x[order])
    torch.testing.assert_close(permuted, attention(x, keys=x, values=x)[order], **EXACT)
    torch.testing.assert_close(
        attention(x[:2], keys=x[order], values=x[order]),
        attention(x[:2], keys=x, values=x),
        **EXACT,
    )


def test_each_relative_is_exact_at_its_limit():
    q, k, v = triple(24)
    full, band = attention(q, keys=k, values=v), torch.ones(24, 24, dtype=torch.bool)
    causal = scaled_dot_product_attention(q, k, v, is_causal=True)
    for block in (1, 7, 24, 100):
        torch.testing.assert_close(
            streaming_attention(q, keys=k, values=v, block=block), full, **EXACT
        )
    torch.testing.assert_close(
        low_rank_attention(q, keys=k, values=v, landmarks=24), full, rtol=0, atol=1e-8
    )
    torch.testing.assert_close(sparse_attention(q, keys=k, values=v, window=23), full, **EXACT)
    for window in (0, 1, 5):
        mask = band.tril(window).triu(-window)
        torch.testing.assert_close(
            sparse_attention(q, keys=k, values=v, window=window),
            attention(q, keys=k, values=v, mask=mask),
            **EXACT,
        )
    for block in (1, 6, 24):
        torch.testing.assert_close(
            recurrent_attention(q, keys=k, values=v, block=block), causal, **EXACT
        )


def test_a_bounded_memory_sees_its_block_and_the_latest_means_only():
    q, k, v = (t[0] for t in triple(24))
    found = recurrent_attention(q, keys=k, values=v, block=6, compression=3, slots=3, beta=0.7)
    for place in range(24):
        start = place - place % 6
        means = [(k[i : i + 3].mean(0), v[i : i + 3].mean(0)) for i in range(0, start, 3)][-3:]
        keys = torch.stack([m[0] for m in means] + list(k[start : place + 1]))
        values = torch.stack([m[1] for m in means] + list(v[start : place + 1]))
        weights = torch.exp(0.7 * keys @ q[place])
        weights[: len(means)] *= 3.0
        torch.testing.assert_close(found[place], weights @ values / weights.sum(), **EXACT)
    whole, none = (
        recurrent_attention(q, keys=k, values=v, block=6, compression=3, slots=slots)
        for slots in (99, None)
    )
    assert torch.equal(whole, none)


def test_families_cost_and_miss_what_their_functions_do():
    x = draw(64, 5, seed=8)
    exact, mean = attention(x, keys=x, values=x, beta=0.4), x.mean(0)
    unit = float((exact - mean).norm())
    counted = count_cost(sparse_attention, x, keys=x, values=x, window=4).flops
    assert family_operations(x, family="sparse")[1] == counted / (4 * 64 * 64 * 5)
    for ratio, share in zip(
        SETTINGS["recurrent"], family_operations(x, family="recurrent"), strict=True
    ):
        # Of dense causal attention's operations, half of those of the formula.
        assert share == pytest.approx(2 * (16 + 48 / (2 * ratio)) / 64)
    errors = family_errors(x, family="low rank", beta=0.4)
    for setting, error in zip(SETTINGS["low rank"], errors, strict=True):
        result = low_rank_attention(x, keys=x, values=x, landmarks=setting, beta=0.4)
        assert error == pytest.approx(float((result - exact).norm()) / unit)
    assert errors[-1] < 1e-6
    generator = torch.Generator().manual_seed(3)
    wrong = [
        kernel_attention(x, keys=x, values=x, features=16, beta=0.4, seed=generator) - exact
        for _ in range(3)
    ]
    wanted = math.sqrt(sum(float(w.norm()) ** 2 for w in wrong) / 3) / unit
    assert family_errors(x, family="kernel", beta=0.4, seed=3)[0] == pytest.approx(wanted)
    causal = scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.4)
    running = torch.stack([x[: t + 1].mean(0) for t in range(64)])
    errors = family_errors(x, family="recurrent", beta=0.4)
    for setting, error in zip(SETTINGS["recurrent"], errors, strict=True):
        pooled = recurrent_attention(x, keys=x, values=x, block=16, compression=setting, beta=0.4)
        wanted = float((pooled - causal).norm() / (running - causal).norm())
        assert error == pytest.approx(wanted)
    band = (torch.arange(64)[:, None] - torch.arange(64)).abs() <= 8
    wanted = attention(x, keys=x, values=x, beta=0.4, mask=band)
    torch.testing.assert_close(
        family_call(x, family="sparse", setting=8, beta=0.4)(), wanted, **EXACT
    )


def test_the_weights_of_a_face_have_no_low_rank():
    """What chapter 10 says of its first picture: six numbers carry the scores, 180 the weights."""
    picture = torch.as_tensor(images.faces()[3]).view(images.FACE_SHAPE)
    windows = picture.unfold(0, 10, 1).unfold(1, 10, 1).reshape(256, 100)
    tokens = torch.nn.functional.layer_norm(windows, (100,), eps=0.0)
    scores = 0.1 * tokens @ tokens.mT
    counts = []
    for matrix in (scores, torch.softmax(scores, -1)):
        spectrum = torch.linalg.svdvals(matrix).square().cumsum(0)
        counts.append(int((spectrum < 0.9 * spectrum[-1]).sum()) + 1)
    assert counts[0] == pytest.approx(6, abs=2)
    assert counts[1] == pytest.approx(180, abs=25)


def test_random_features_converge_as_the_inverse_root():
    # The variance of one feature grows as exp(β‖q + k‖²): the law needs that below the features.
    q, k, v = triple(10, 4)
    exact, generator = attention(q, keys=k, values=v, beta=0.1), torch.Generator().manual_seed(0)
    errors = []
    for features in (100, 1_600, 25_600):
        squares = [
            (
                kernel_attention(q, keys=k, values=v, features=features, beta=0.1, seed=generator)
                - exact
            )
            .square()
            .mean()
            for _ in range(12)
        ]
        errors.append(float(torch.stack(squares).mean().sqrt()))
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    np.testing.assert_allclose(ratios, 4.0, rtol=0.35)


@pytest.mark.claim("A4")
def test_families_are_linear_at_a_fixed_budget_and_quadratic_at_a_fixed_share():
    """Against the sums written out; one that stored the matrix would fail."""
    for family in FIXED:
        kept, shared = (budget(family, length=1024, fixed=fixed) for fixed in (True, False))
        for share in (kept, shared):
            operations = {
                "low rank": 8 * 1024 * share * 5 + 4 * share**2 * 5,
                "sparse": 4 * 5 * 1024 * (2 * share + 1),
                "kernel": 8 * 1024 * share * 5 + 2 * 1024 * share,
                "recurrent": 4 * 5 * sum(32 * (32 + min(share, 2 * k)) for k in range(32)),
            }[family]
            x = draw(1024, 5, seed=8)
            found = count_cost(budget_call(x, family=family, budget=share, beta=0.4)).flops
            assert found == pytest.approx(operations, rel=1e-3)
        assert budget_exponent(family, length=4096, fixed=True) < 1.15
    for family in ("low rank", "sparse", "kernel"):
        assert budget_exponent(family, length=1024, fixed=False) > 1.9
    assert budget_exponent("recurrent", length=8192, fixed=False) > 1.7
    dense = [count_cost(attention, q, keys=k, values=v) for q, k, v in map(triple, (128, 256))]
    assert dense[1].flops == 4 * dense[0].flops


def test_variance_of_an_estimated_weight_is_what_chapter_10_says():
    """Of the product of two features, in units of the squared weight: exp(β|q + k|²) − 1."""
    generator = np.random.default_rng(2)
    q, k, beta = np.array([0.5, -0.2]), np.array([0.3, 0.4]), 0.7
    w = generator.standard_normal((400_000, 2)) * beta**0.5
    product = np.exp(w @ (q + k) - 0.5 * beta * (q @ q + k @ k))
    weight = np.exp(beta * q @ k)
    assert product.mean() == pytest.approx(weight, rel=0.01)
    expected = np.exp(beta * (q + k) @ (q + k)) - 1
    assert product.var() / weight**2 == pytest.approx(expected, rel=0.03)
