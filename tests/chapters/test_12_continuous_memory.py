"""The experiments of the continuous memory against plain loops, definitions and the library."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import softmax

from compendium.c12_continuous_memory import study
from compendium.common import images
from spinformer.core.statistics import mean_interval
from spinformer.hopfield.continuous import jacobian, update
from spinformer.hopfield.discrete import CLASSICAL, EXPONENTIAL, retrieve
from spinformer.hopfield.fixed_points import KINDS, find_fixed_points, mean_critical_beta


@pytest.mark.claim("A19")
def test_faces_return_where_plain_loops_say():
    faces, seen, wanted = images.faces(), np.arange(625) < 313, {}
    given = {"seen": torch.as_tensor(seen), "scaled_query": True}
    for centring, equal in product(("none", "mean face"), (False, True)):
        memory = faces if centring == "none" else faces - faces.mean(0)
        norms = np.linalg.norm(memory, axis=1, keepdims=True)
        memory, norms = (25.0 * memory / norms, 25.0) if equal else (memory, norms)
        state = memory * seen * np.mean(norms)
        state /= np.linalg.norm(memory * seen, axis=1, keepdims=True)
        for _ in range(150):
            state = softmax(625 / np.mean(norms**2) * state @ memory.T, axis=1) @ memory
        near = np.linalg.norm(state - memory, axis=1, keepdims=True) < 0.05 * norms
        wanted[centring, equal] = near.sum()
        given |= {"centring": centring, "equal_norm": equal}
        memory, queries = study.prepare_faces(torch.as_tensor(faces), **given)
        assert study.faces_recalled(memory, queries=queries, coldness=1.0) == near.sum()
    # Of ±1 a query ends at m = tanh βm: nearer than 5 % to its pattern at β = 2, not at 1.8.
    pair = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert [study.faces_recalled(pair, queries=pair, coldness=beta) for beta in (1.8, 2.0)] == [
        0,
        2,
    ]
    assert wanted["mean face", True] == 100
    assert 90 < wanted["none", True] < 100
    assert wanted["none", False] < wanted["mean face", False] < 90
    spins = images.binarize(faces)

    def recalled(stored, separation):
        queries = images.mask(stored, fraction=0.5)
        found = retrieve(stored, queries=queries, separation=separation, seed=3).states
        return (found == stored).all(axis=1).mean()

    # The memory of spins itself is held flip by flip in its own tests.
    rng = np.random.default_rng(3)
    alone, two, six = (
        [recalled(spins[rng.choice(100, count, replace=False)], CLASSICAL) for _ in range(60)]
        for count in (1, 2, 6)
    )
    assert min(alone) == 1.0
    assert np.mean(two) > 0.5
    assert mean_interval(six)[1] < 0.25
    assert recalled(spins, EXPONENTIAL) == 1.0


def test_prepared_faces_are_what_their_names_say():
    faces = torch.as_tensor(images.faces())
    assert {int((~study.visible_half(half)).sum()) for half in study.HALVES} == {312}
    assert torch.equal(study.visible_half("upper"), study.visible_half("lower").flip(0))
    lower = faces * study.visible_half("lower", hidden=0.3)
    torch.testing.assert_close(lower, torch.as_tensor(images.mask(faces.numpy(), fraction=0.3)))
    picture = study.visible_half("right", hidden=0.2).view(images.FACE_SHAPE)
    assert torch.equal(picture, (torch.arange(25) < 20).expand(25, 25))
    seen = study.visible_half("upper")
    for centring, equal in product(study.CENTRINGS, (False, True)):
        given = {"seen": seen, "centring": centring, "equal_norm": equal}
        memory, queries = study.prepare_faces(faces, **given)
        # Of a face of its own mean only the visible part is known, and its norm.
        shift = {"none": 0.0, "mean face": faces.mean(0)}.get(centring, faces.mean(1, keepdim=True))
        own = faces[:, seen].mean(1, keepdim=True) if centring == "each image" else shift
        scale = 25.0 / (faces - shift).norm(dim=1, keepdim=True) if equal else 1.0
        torch.testing.assert_close(memory, scale * (faces - shift))
        torch.testing.assert_close(queries, scale * (faces - own) * seen)
        scaled = study.prepare_faces(faces, scaled_query=True, **given)[1]
        norms = memory.norm(dim=1).mean().expand(100)
        torch.testing.assert_close(scaled.norm(dim=1), norms, rtol=1e-12, atol=0)
        assert float(torch.cosine_similarity(scaled, queries).min()) == pytest.approx(1.0)


def test_bound_cases_measure_what_the_definitions_say():
    cases = study.bound_cases(1, seed=5)
    rng = np.random.default_rng(5)
    size, width = int(rng.integers(2, 20)), int(rng.integers(2, 40))
    beta, radius = float(np.exp(rng.uniform(-2, 1.5))), float(rng.uniform(0, 0.6))
    patterns, aside = (rng.standard_normal((size, width)) for _ in range(2))
    states = patterns + radius * aside / np.linalg.norm(aside, axis=1, keepdims=True)
    moved = update(torch.as_tensor(patterns), states=torch.as_tensor(states), beta=beta).numpy()
    np.testing.assert_allclose(cases["error"], np.linalg.norm(moved - patterns, axis=1), atol=1e-12)
    weights = softmax(beta * states @ patterns.T, axis=1)
    for row, slope in zip(weights, cases["slope"], strict=True):
        covariance = np.cov(patterns.T, aweights=row, ddof=0)
        assert slope == pytest.approx(beta * np.linalg.eigvalsh(covariance)[-1], abs=1e-10)
    many = study.bound_cases(60, seed=6)
    slack = 1 + 1e-12
    assert (many["error"] <= slack * many["error_bound"]).all()
    assert (many["slope"] <= slack * many["sharp_bound"]).all()
    assert (many["distance"] < many["radius"]).all()
    assert many["distance"].size >= 100
    assert (many["error"] > 0).all()
    assert many["error"].min() < 1e-20  # far below the rounding of a pattern


@pytest.mark.parametrize("beta", [0.2, 0.6])
def test_opposite_patterns_all_but_reach_the_bounds(beta):
    """Patterns ±x: the competitor is as far as can be, so each estimate in the proofs is tight."""
    x = torch.tensor([2.0, 1.0, -2.0], dtype=torch.float64)
    patterns, norm = torch.stack([x, -x]), 3.0
    for radius in (0.0, 0.5):
        states = (1.0 - radius / norm) * patterns
        rest = 1.0 + math.exp(-2.0 * beta * norm * (norm - radius))
        error = (update(patterns, states=states, beta=beta) - patterns).norm(dim=-1)
        slope = torch.linalg.eigvalsh(jacobian(patterns, states=states, beta=beta))[:, -1]
        bound = study.guarantees(patterns, beta=beta, radius=radius)
        # The two bounds of the slope are equal for two patterns.
        found = {"error": error * rest, "slope": slope * rest**2, "sharp": slope * rest**2}
        for name, value in found.items():
            torch.testing.assert_close(value, bound[name], rtol=1e-6, atol=0)
    assert mean_critical_beta(patterns) == pytest.approx(1.0 / norm**2)


def test_the_threshold_is_where_the_ball_just_maps_into_itself():
    patterns = 3.0 * torch.as_tensor(np.random.default_rng(3).standard_normal((6, 5)))
    largest, own = float(patterns.norm(dim=-1).max()), patterns @ patterns.T
    others = own.masked_fill(torch.eye(6) > 0, -math.inf).amax(1)
    for beta in (0.2, 1.0):
        radius = 1.0 / (beta * 6 * largest)
        bound = study.guarantees(patterns, beta=beta, radius=radius)
        assert bound["ball"] == pytest.approx(radius)
        torch.testing.assert_close(bound["separation"], own.diagonal() - others)
        wanted = radius * torch.exp(-beta * (bound["separation"] - bound["stored"]))
        torch.testing.assert_close(bound["error"], wanted, rtol=1e-10, atol=0)
        # Published over sharper: 2N over 4.
        torch.testing.assert_close(bound["slope"], 3.0 * bound["sharp"])
        torch.testing.assert_close(bound["sharp"], 2.0 * beta * largest * bound["error"])


def test_kinds_are_those_of_the_fixed_points():
    memories = study.grouped_patterns(3, clusters=3, members=4, dim=10, seed=2)
    assert float(memories.mean(1).abs().max()) < 1e-14
    factors = np.array([0.5, 2.0, 60.0])
    found = study.shares_of_kinds(memories, factors=factors)
    for (row, index), factor in zip(np.ndindex(3, 3), factors.repeat(3), strict=True):
        beta = float(factor) * mean_critical_beta(memories[index])
        points = find_fixed_points(memories[index], beta=beta, starts=memories[index])
        ends = np.repeat(points.kinds, points.basin)
        shares = [np.mean(ends == kind) for kind in KINDS]
        assert found[row, :, index] == pytest.approx(shares)
    assert found[0, 2].tolist() == [1.0] * 3
    assert found[1, 1].mean() > 0.5
    assert found[2, 0].tolist() == [1.0] * 3
