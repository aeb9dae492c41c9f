"""Attention by its formula against the framework's kernel; its cheap relatives at their limits."""

import math
from functools import partial

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
    family_errors,
    family_operations,
    multi_head_attention,
)
from compendium.common import images
from spinformer.hopfield.attention import attention

EXACT = {"rtol": 0, "atol": 1e-12}


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def triple(length, width=6):
    return tuple(draw(2, length, width, seed=seed) for seed in (1, 2, 3))


def assert_same(found, wanted, **within):
    torch.testing.assert_close(found, wanted, **(EXACT | within))


@pytest.mark.claim("A1")
def test_attention_is_the_framework_kernel_and_a_plain_loop():
    q, k, v = draw(3, 5, 4, seed=1), draw(3, 7, 4, seed=2), draw(3, 7, 9, seed=3)
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
    q, k, v = draw(2, 5, 12, seed=1), draw(2, 7, 12, seed=2), draw(2, 7, 12, seed=3)
    split = [t.unflatten(-1, (3, 4)).transpose(1, 2) for t in (q, k, v)]
    wanted = scaled_dot_product_attention(*split).transpose(1, 2).flatten(-2)
    assert_same(multi_head_attention(q, keys=k, values=v, heads=3), wanted)


@pytest.mark.claim("A3")
def test_attention_acts_on_sets():
    x = draw(8, 6, seed=5)
    order, other = (np.random.default_rng(seed).permutation(8) for seed in (1, 2))
    found = attention(x[order], keys=x[other], values=x[other])
    assert_same(found, attention(x, keys=x, values=x)[order])


def test_each_relative_is_exact_at_its_limit():
    q, k, v = triple(24)
    given, full = {"keys": k, "values": v}, attention(q, keys=k, values=v)
    causal = scaled_dot_product_attention(q, k, v, is_causal=True)
    for block in (1, 7, 24, 100):
        assert_same(streaming_attention(q, block=block, **given), full)
    assert_same(low_rank_attention(q, landmarks=24, **given), full, atol=1e-8)
    for window in (0, 1, 5, 23):
        mask = torch.ones(24, 24, dtype=torch.bool).tril(window).triu(-window)
        assert_same(sparse_attention(q, window=window, **given), attention(q, mask=mask, **given))
    for block in (1, 6, 24):
        assert_same(recurrent_attention(q, block=block, **given), causal)


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
        assert_same(found[place], weights @ values / weights.sum())
    given = {"keys": k, "values": v, "block": 6, "compression": 3}
    assert torch.equal(*(recurrent_attention(q, slots=slots, **given) for slots in (99, None)))


def test_families_cost_and_miss_what_their_functions_do():
    x = draw(64, 5, seed=8)
    given = {"keys": x, "values": x, "beta": 0.4}
    exact, generator = attention(x, **given), torch.Generator()
    causal = scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.4)
    running = torch.stack([x[: t + 1].mean(0) for t in range(64)])
    dense, half = (exact, x.mean(0), 64), (causal, running, 32)
    # What a family gives, what it replaces, the mean of that and its operations.
    for family, call, name, (full, mean, keys) in (
        ("low rank", partial(low_rank_attention, x, **given), "landmarks", dense),
        ("sparse", partial(sparse_attention, x, **given), "window", dense),
        ("recurrent", partial(recurrent_attention, x, block=16, **given), "compression", half),
        ("kernel", partial(kernel_attention, x, seed=generator, **given), "features", dense),
    ):
        costs = family_operations(x, family=family)
        errors = family_errors(x, family=family, beta=0.4, seed=3)
        for setting, cost, error in zip(SETTINGS[family], costs, errors, strict=True):
            generator.manual_seed(3)
            wrong = torch.stack([call(**{name: setting}) - full for _ in range(3)])
            wanted = wrong.norm() / 3**0.5 / (full - mean).norm()
            assert error == pytest.approx(float(wanted), abs=1e-12)
            assert cost == count_cost(call, **{name: setting}).flops / (4 * keys * 64 * 5)


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
    q, k, v = triple(10, 4)
    exact, generator = attention(q, keys=k, values=v, beta=0.1), torch.Generator().manual_seed(0)
    given = {"keys": k, "values": v, "beta": 0.1, "seed": generator}
    errors = []
    for features in (100, 1_600, 25_600):
        found = [kernel_attention(q, features=features, **given) for _ in range(12)]
        errors.append(float((torch.stack(found) - exact).square().mean().sqrt()))
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
