"""The layer with an energy against loops, autograd and its own theorem."""

import numpy as np
import torch
from scipy.special import logsumexp
from torch.autograd.functional import hessian, jacobian

from compendium.c14_real_transformer.energy_transformer import (
    KINDS,
    EnergyLayer,
    energy,
    gradient,
    normalize,
    safe_step,
    spread,
    uphill_shares,
)


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def layer(seed=0, beta=0.7):
    maps = [draw(2, 3, 5, seed=[seed, n]) for n in (1, 2)]
    return EnergyLayer(
        query_map=maps[0], key_map=maps[1], patterns=draw(7, 5, seed=[seed, 3]), beta=beta
    )


def test_energy_and_gradient_are_the_sum_written_out_and_its_derivative():
    model, seen = layer(), draw(6, 5, seed=4)
    total = 0.0
    for query, key in zip(model.query_map.numpy(), model.key_map.numpy(), strict=True):
        for asking in seen.numpy():
            scores = [0.7 * float((query @ asking) @ (key @ other)) for other in seen.numpy()]
            total -= logsumexp(scores) / 0.7
    for pattern in model.patterns.numpy():
        total -= 0.5 * sum(max(0.0, float(pattern @ g)) ** 2 for g in seen.numpy())
    assert abs(float(energy(model, seen)) - total) < 1e-10 * abs(total)
    slope = jacobian(lambda g: energy(model, g), seen)
    torch.testing.assert_close(gradient(model, seen), slope, rtol=1e-10, atol=1e-11)


def test_the_normalisation_is_the_gradient_of_a_convex_function():
    x = draw(1, 5, seed=5)
    torch.testing.assert_close(normalize(x), jacobian(lambda y: 5 * spread(y).sum(), x))
    curvature = hessian(lambda y: 5 * spread(y).sum(), x).reshape(5, 5)
    assert float(torch.linalg.eigvalsh(curvature).min()) > -1e-12


def test_no_safe_step_raises_the_energy_and_large_ones_do():
    for trial in range(40):
        model = layer(trial, beta=float(np.exp(trial / 8 - 2)))
        if trial % 2:
            opposed = {"key_map": -model.query_map, "patterns": 0.1 * model.patterns}
            model = EnergyLayer(query_map=model.query_map, beta=model.beta, **opposed)
        tokens = draw(4, 6, 5, seed=[trial, 9])
        size = 0.999 * safe_step(model, tokens)[:, None, None]
        after = tokens - size * gradient(model, normalize(tokens))
        change = energy(model, normalize(after)) - energy(model, normalize(tokens))
        assert float(change.max()) < 1e-10
    for kind in KINDS:
        shares = uphill_shares(kind, factors=[1.0, 64.0])
        assert shares[0] == 0.0
    assert shares[1] > 0.1
