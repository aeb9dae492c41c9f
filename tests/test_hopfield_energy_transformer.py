"""The energy transformer against plain loops, autograd, SciPy, a kernel and its theorem."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.autograd.functional import hessian, jacobian

from compendium.c18_energy_transformer.energy_transformer import (
    EnergyTransformer,
    _least_spread,
    attention_energy,
    attention_gradient,
    lagrangian,
    memory_energy,
    memory_gradient,
    metric,
    normalize,
    spread,
)


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def make(seed=0, **options):
    options = {"heads": 2, "head_width": 3, "patterns": 7, **options}
    model = EnergyTransformer(5, seed=seed, dtype=torch.float64, **options)
    with torch.no_grad():
        model.log_gain.fill_(0.3)
        model.shift.copy_(draw(5, seed=9, scale=0.4))
    return model


def repelling(model):
    """Keys opposite to queries and a faint memory: the case that curves upwards most."""
    with torch.no_grad():
        model.key_map.copy_(-model.query_map)
        model.patterns.mul_(0.1)
    return model


def loop_energy(model, tokens, mask=None):
    """The energy written out in NumPy, token by token and head by head."""
    gain, shift = math.exp(float(model.log_gain.detach())), model.shift.detach().numpy()
    rows = tokens.detach().numpy()
    seen = [gain * (x - x.mean()) / math.sqrt(x.var() + 1e-5) + shift for x in rows]
    total = 0.0
    for head, (query, key) in enumerate(
        zip(model.query_map.detach().numpy(), model.key_map.detach().numpy(), strict=True)
    ):
        for asking in range(len(seen)):
            scores = [
                model.beta * float((query @ seen[asking]) @ (key @ other))
                for told, other in enumerate(seen)
                if mask is None or mask[head, asking, told]
            ]
            if scores:
                total -= logsumexp(scores) / model.beta
    for pattern in model.patterns.detach().numpy():
        total -= 0.5 * sum(max(0.0, float(pattern @ g)) ** 2 for g in seen)
    return total


@pytest.mark.parametrize("masked", [False, True])
def test_the_energy_is_the_sum_written_out(masked):
    model, tokens = make(), draw(3, 6, 5, seed=1)
    mask = torch.as_tensor(np.random.default_rng(2).random((2, 6, 6)) < 0.6) if masked else None
    if masked:
        mask[:, 4] = False
    found = model.energy(tokens, mask=mask).detach().numpy()
    wanted = [loop_energy(model, x, None if mask is None else mask.numpy()) for x in tokens]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_mask_may_differ_between_the_batch_and_unbatched_tokens_work():
    model, tokens = make(), draw(3, 6, 5, seed=1)
    mask = torch.as_tensor(np.random.default_rng(2).random((3, 1, 6, 6)) < 0.6)
    together = model.energy(tokens, mask=mask)
    alone = torch.stack([model.energy(x, mask=m) for x, m in zip(tokens, mask, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)
    steps = torch.stack([model(x, mask=m) for x, m in zip(tokens, mask, strict=True)])
    torch.testing.assert_close(model(tokens, mask=mask), steps, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_that_of_autograd(masked):
    model, tokens = make(), draw(2, 6, 5, seed=3)
    mask = torch.as_tensor(np.random.default_rng(4).random((2, 6, 6)) < 0.5) if masked else None
    if masked:
        mask[:, 1] = False
    seen = model.normalize(tokens).detach().requires_grad_()
    value = attention_energy(
        seen, query_map=model.query_map, key_map=model.key_map, beta=model.beta, mask=mask
    ) + memory_energy(seen, patterns=model.patterns)
    automatic = torch.autograd.grad(value.sum(), seen)[0]
    torch.testing.assert_close(model.gradient(tokens, mask=mask), automatic, rtol=1e-11, atol=1e-12)
    assert (make(key_side=False).gradient(tokens, mask=mask) - automatic).norm() > 0.1


def test_the_parts_of_the_gradient_are_those_with_keys_or_queries_held():
    maps = {"query_map": draw(2, 3, 5, seed=5), "key_map": draw(2, 3, 5, seed=6)}
    seen = draw(6, 5, seed=7)

    def held(asking, told):
        queries = torch.einsum("hyd,nd->hny", maps["query_map"], asking)
        keys = torch.einsum("hyd,nd->hny", maps["key_map"], told)
        return -torch.logsumexp(0.4 * queries @ keys.mT, -1).sum() / 0.4

    as_query, as_key = attention_gradient(seen, **maps, beta=0.4)
    torch.testing.assert_close(as_query, jacobian(lambda g: held(g, seen), seen))
    torch.testing.assert_close(as_key, jacobian(lambda g: held(seen, g), seen))


def test_the_query_side_is_attention_with_keys_as_values():
    maps = {"query_map": draw(1, 4, 5, seed=5), "key_map": draw(1, 4, 5, seed=6)}
    seen = draw(6, 5, seed=7)
    queries, keys = (seen @ maps[name][0].mT for name in maps)
    kernel = torch.nn.functional.scaled_dot_product_attention(queries, keys, keys)
    as_query, _ = attention_gradient(seen, **maps)
    torch.testing.assert_close(-as_query, kernel @ maps["query_map"][0], rtol=1e-12, atol=1e-12)


def test_the_memory_is_a_sum_of_rectified_squares():
    seen, patterns = draw(3, 4, 5, seed=8), draw(6, 5, seed=9)
    automatic = jacobian(lambda g: memory_energy(g, patterns=patterns).sum(), seen)
    torch.testing.assert_close(memory_gradient(seen, patterns=patterns), automatic)
    curvature = hessian(lambda g: memory_energy(g[None], patterns=patterns), seen[0, 0])
    assert float(torch.linalg.eigvalsh(curvature).max()) < 1e-12


def test_the_normalisation_is_the_gradient_of_its_lagrangian():
    x, shift = draw(5, seed=10, scale=0.7), draw(5, seed=11)
    options = {"gain": 1.7, "shift": shift, "epsilon": 0.1}
    torch.testing.assert_close(
        normalize(x, **options), jacobian(lambda y: lagrangian(y, **options), x)
    )
    curvature = hessian(lambda y: lagrangian(y, **options), x)
    torch.testing.assert_close(metric(x, gain=1.7, epsilon=0.1), curvature, rtol=1e-10, atol=1e-12)
    values = torch.linalg.eigvalsh(curvature)
    sigma = float(spread(x, epsilon=0.1))
    expected = [0.0, 1.7 * 0.1 / sigma**3, *[1.7 / sigma] * 3]
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_a_gain_for_each_component_is_no_gradient():
    x, gain = draw(5, seed=10), draw(5, seed=12)
    slopes = jacobian(lambda y: gain * normalize(y), x)
    assert (slopes - slopes.mT).norm() > 0.1 * slopes.norm()


def test_a_small_step_changes_the_energy_by_the_metric():
    model, tokens = make(step_size=1e-5), draw(6, 5, seed=13)
    force = model.gradient(tokens).detach()
    slope = metric(tokens, gain=math.exp(0.3))
    expected = -1e-5 * float(torch.einsum("ni,nij,nj->", force, slope, force))
    change = float(model.descend(tokens, steps=1).energies.diff())
    assert change == pytest.approx(expected, rel=1e-3)
    assert change < 0


@pytest.mark.parametrize("seed", range(4))
def test_no_safe_step_raises_the_energy_and_no_change_exceeds_its_bound(seed):
    """Random maps, temperatures and sizes of tokens; the bound holds at any step size."""
    generator = np.random.default_rng(seed)
    for trial in range(25):
        model = make(seed=trial, beta=float(np.exp(generator.uniform(-2, 3))), steps=8)
        model = repelling(model) if trial % 2 else model
        tokens = draw(4, 6, 5, seed=100 * seed + trial, scale=float(generator.uniform(0.2, 3)))
        model.step_size = 0.999 * float(model.safe_step(tokens).min())
        start = model.descend(tokens, steps=1)
        assert bool((start.energies.diff(dim=0) <= 1e-12 * start.energies[:1].abs()).all())
        assert bool((start.bounds <= 0).all())
        model.step_size *= float(np.exp(generator.uniform(0, 5)))
        wide = model.descend(tokens)
        change = wide.energies.diff(dim=0)
        slack = 1e-11 * (1 + wide.energies.abs().max())
        assert bool((change <= wide.bounds + slack).all())


def test_large_steps_can_go_uphill_and_the_bound_says_so():
    model = repelling(make(steps=4, step_size=50.0))
    found = model.descend(draw(20, 6, 5, seed=14))
    rising = found.energies.diff(dim=0) > 0
    assert bool(rising.any())
    assert bool((found.bounds[rising] > 0).all())


def test_descent_is_the_forward_pass():
    model, tokens = make(steps=3, step_size=0.2), draw(2, 6, 5, seed=15)
    found = model.descend(tokens)
    torch.testing.assert_close(found.states[-1], model(tokens).detach())
    torch.testing.assert_close(found.energies[-1], model.energy(found.states[-1]).detach())
    assert (found.energies.shape, found.bounds.shape) == ((4, 2), (3, 2))
    assert len(model.descend(tokens, steps=5).states) == 6


def test_tokens_may_be_permuted_and_absent_ones_change_nothing():
    model, tokens = make(), draw(6, 5, seed=16)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(model(tokens[order]), model(tokens)[order])
    present = torch.tensor([True] * 4 + [False] * 2)
    mask = present[:, None] & present[None, :]
    alone = model(tokens[:4])
    torch.testing.assert_close(model(tokens, mask=mask)[:4], alone)


def test_with_a_causal_mask_the_past_still_feels_the_future():
    """The key-side term sends what a later query finds back to the earlier key."""
    mask, tokens = torch.ones(6, 6, dtype=torch.bool).tril(), draw(6, 5, seed=17)
    changed = tokens.clone()
    changed[-1, 0] += 1.0
    for key_side in (True, False):
        model = make(key_side=key_side)
        with torch.no_grad():
            moved = float((model(changed, mask=mask) - model(tokens, mask=mask))[:-1].norm())
        assert (moved > 1e-3) is key_side


def test_vmap_trains_many_models_at_once():
    models = [make(seed=seed) for seed in range(3)]
    weights, _ = torch.func.stack_module_state(models)
    tokens = draw(3, 2, 6, 5, seed=18)
    together = torch.func.vmap(lambda w, x: torch.func.functional_call(models[0], w, (x,)))(
        weights, tokens
    )
    for model, x, found in zip(models, tokens, together, strict=True):
        torch.testing.assert_close(found, model(x))


def test_the_least_spread_is_that_of_a_fine_grid_and_the_safe_step_is_its_formula():
    start, end = draw(5, 4, 6, seed=20), draw(5, 4, 6, seed=21)
    end[0] = -2.0 * start[0]  # a parabola with its minimum inside, one beyond the end, one before
    end[1], end[2] = 0.3 * start[1], 2.0 * start[2]
    share = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None, None, None]
    grid = spread((1 - share) * start + share * end).amin(0)
    torch.testing.assert_close(_least_spread(start, end), grid, rtol=1e-5, atol=2e-4)
    model, tokens = make(), draw(6, 5, seed=22)
    slope = model.gradient(tokens).detach().numpy()
    steep = sum(
        np.linalg.norm(q.T @ k, 2)
        for q, k in zip(
            model.query_map.detach().numpy(), model.key_map.detach().numpy(), strict=True
        )
    )
    pull = math.exp(0.3) * math.sqrt(6) * steep
    force = np.linalg.norm(slope, axis=1).max() / math.sqrt(5)
    sigma = np.sqrt(tokens.numpy().var(axis=1) + 1e-5).min()
    assert float(model.safe_step(tokens)) == pytest.approx(sigma / (pull + force), rel=1e-12)
