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
    uphill_shares,
)


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def layer(seed=0, beta=0.7):
    maps = [draw(3, 5, seed=[seed, n]) for n in (1, 2)]
    return EnergyLayer(*maps, patterns=draw(7, 5, seed=[seed, 3]), beta=beta)


def test_energy_is_the_sum_written_out():
    model, seen = layer(), draw(6, 5, seed=4)
    total = 0.0
    for asking in seen.numpy():
        query = model.query_map.numpy() @ asking
        scores = [0.7 * float(query @ (model.key_map.numpy() @ other)) for other in seen.numpy()]
        total -= logsumexp(scores) / 0.7
    for pattern in model.patterns.numpy():
        total -= 0.5 * sum(max(0.0, float(pattern @ g)) ** 2 for g in seen.numpy())
    assert abs(float(energy(model, seen)) - total) < 1e-10 * abs(total)


def test_the_normalisation_is_the_gradient_of_a_convex_function():
    def spreads(y):
        return 5 * (y.var(-1, correction=0) + 1e-5).sqrt().sum()

    x = draw(1, 5, seed=5)
    torch.testing.assert_close(normalize(x), jacobian(spreads, x))
    curvature = hessian(spreads, x).reshape(5, 5)
    assert float(torch.linalg.eigvalsh(curvature).min()) > -1e-12


def test_no_safe_step_raises_the_energy_and_large_ones_do():
    for trial in range(40):
        model = layer(trial, beta=float(np.exp(trial / 8 - 2)))
        if trial % 2:
            model = model._replace(key_map=-model.query_map, patterns=0.1 * model.patterns)
        tokens = draw(4, 6, 5, seed=[trial, 9])
        size = 0.999 * safe_step(model, tokens)[:, None, None]
        after = tokens - size * gradient(model, normalize(tokens))
        change = energy(model, normalize(after)) - energy(model, normalize(tokens))
        assert float(change.max()) < 1e-10
    for kind in KINDS:
        shares = uphill_shares(kind, factors=[1.0, 64.0])
        assert shares[0] == 0.0
    assert shares[1] > 0.1
