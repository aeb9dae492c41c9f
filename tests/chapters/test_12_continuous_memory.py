"""The experiments of the continuous memory against plain loops, definitions and the library."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.special import softmax

from compendium.c12_continuous_memory import study
from compendium.common import images
from spinformer.core.statistics import student_interval
from spinformer.hopfield import continuous
from spinformer.hopfield.continuous import jacobian, update
from spinformer.hopfield.discrete import CLASSICAL, EXPONENTIAL, retrieve
from spinformer.hopfield.fixed_points import KINDS, find_fixed_points, mean_critical_beta


@pytest.mark.claim("A19")
def test_faces_return_where_plain_loops_say():
    faces = images.faces()
    seen = np.arange(625) < 313
    wanted = {}
    for centring, equal in product(study.INVARIANT, (False, True)):
        memory = faces - faces.mean(0 if centring == "mean face" else None)
        norms = np.linalg.norm(memory, axis=1, keepdims=True)
        memory, norms = (25.0 * memory / norms, 25.0) if equal else (memory, norms)
        state = memory * seen * np.mean(norms)
        state /= np.linalg.norm(memory * seen, axis=1, keepdims=True)
        for _ in range(150):
            state = softmax(625 / np.mean(norms**2) * state @ memory.T, axis=1) @ memory
        near = np.linalg.norm(state - memory, axis=1, keepdims=True) < 0.05 * norms
        wanted[centring, equal] = near.sum()
        memory, queries = study.prepare_faces(
            torch.as_tensor(faces),
            seen=torch.as_tensor(seen),
            centring=centring,
            equal_norm=equal,
            scaled_query=True,
        )
        assert study.faces_recalled(memory, queries=queries, coldness=1.0) == near.sum()
    # Of ±1 a query ends at m = tanh βm: nearer than 5 % to its pattern at β = 2, not at 1.8.
    pair = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert [study.faces_recalled(pair, queries=pair, coldness=beta) for beta in (1.8, 2.0)] == [
        0,
        2,
    ]
    assert wanted["mean face", True] == 100
    assert 90 < wanted["brightness", True] < 100
    assert wanted["brightness", False] < wanted["mean face", False] < 90
    spins = images.binarize(faces)

    def recalled(stored, separation):
        queries = images.mask(stored, fraction=0.5)
        found = retrieve(stored, queries=queries, separation=separation, seed=3).states
        return (found == stored).all(axis=1).mean()

    # The memory of spins itself is held flip by flip in its own tests.
    rng = np.random.default_rng(3)

    def fractions(count):
        return [
            recalled(spins[rng.choice(100, count, replace=False)], CLASSICAL) for _ in range(60)
        ]

    assert min(fractions(1)) == 1.0
    assert np.mean(fractions(2)) > 0.5
    assert student_interval(fractions(6))[1] < 0.25
    assert recalled(spins, EXPONENTIAL) == 1.0


def test_image_sets_are_disjoint_and_equal_norms_gain_where_plain_loops_say():
    rows = [study.image_set(name)[0].numpy() for name in study.IMAGE_SETS]
    assert [one.shape for one in rows[:3]] == [(100, 625), (100, 625), (100, 64)]
    # No digit is twice in the file, so that twelve hundred distinct rows share none.
    assert len(np.unique(np.concatenate(rows[2:]), axis=0)) == 1200
    assert not (rows[0][:, None] == rows[1]).all(-1).any()
    memory = rows[4] - rows[4].mean()
    returned = {}
    for equal in (True, False):
        norms = np.linalg.norm(memory, axis=1, keepdims=True)
        patterns = 8.0 * memory / norms if equal else memory
        lengths = np.linalg.norm(patterns, axis=1, keepdims=True)
        states = patterns * (np.arange(64) < 32)
        states *= lengths.mean() / np.linalg.norm(states, axis=1, keepdims=True)
        for _ in range(300):
            scores = 64 / np.mean(lengths**2) * states @ patterns.T
            states = softmax(scores, axis=1) @ patterns
        returned[equal] = np.linalg.norm(states - patterns, axis=1) < 0.05 * lengths[:, 0]
    line = study.settings_A19.rows("digits 3", half="lower", centring="brightness")[0]
    gained = returned[True].astype(float) - returned[False]
    assert line["value"] == pytest.approx(gained.mean(), abs=0.011)
    assert line["low"] == pytest.approx(student_interval(gained)[0], abs=0.011)


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
        prepare = partial(
            study.prepare_faces, faces, seen=seen, centring=centring, equal_norm=equal
        )
        memory, queries = prepare()
        # Of a face of its own mean only the visible part is known, and its norm.
        shifts = {"none": 0.0, "brightness": faces.mean(), "mean face": faces.mean(0)}
        shift = shifts.get(centring, faces.mean(1, keepdim=True))
        own = faces[:, seen].mean(1, keepdim=True) if centring == "each image" else shift
        scale = 25.0 / (faces - shift).norm(dim=1, keepdim=True) if equal else 1.0
        torch.testing.assert_close(memory, scale * (faces - shift))
        torch.testing.assert_close(queries, scale * (faces - own) * seen)
        _, scaled = prepare(scaled_query=True)
        norms = memory.norm(dim=1).mean().expand(100)
        torch.testing.assert_close(scaled.norm(dim=1), norms, rtol=1e-12, atol=0)
        assert float(torch.cosine_similarity(scaled, queries).min()) == pytest.approx(1.0)


def test_counts_of_the_chapter_do_not_hang_on_the_grey_that_is_called_zero():
    """The same vector added to all faces changes nothing, unless nothing is subtracted."""
    faces = torch.as_tensor(images.faces())
    seen = study.visible_half("lower")

    def recalled(grey, *, equal_norm, centring="none"):
        memory, queries = study.prepare_faces(
            faces - grey, seen=seen, centring=centring, equal_norm=equal_norm, scaled_query=True
        )
        return study.faces_recalled(memory, queries=queries, coldness=1.0)

    for centring, equal in product(study.CENTRINGS[1:], (False, True)):
        counts = {recalled(grey, centring=centring, equal_norm=equal) for grey in (-1.0, 0.0, 1.0)}
        assert len(counts) == 1
    # Black as zero: every pixel is positive, and one bright face attracts most queries.
    assert recalled(-1.0, equal_norm=True) < 40 < 90 < recalled(0.0, equal_norm=True)


def test_bound_cases_measure_what_the_definitions_say():
    cases = study.bound_cases(1, seed=5)
    rng = np.random.default_rng(5)
    size = int(rng.integers(2, 20))
    width = int(rng.integers(2, 40))
    beta = float(np.exp(rng.uniform(-2, 1.5)))
    radius = float(rng.uniform(0, 0.6))
    patterns = rng.standard_normal((size, width))
    aside = rng.standard_normal((size, width))
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
    patterns = torch.stack([x, -x])
    norm = 3.0
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
    largest = float(patterns.norm(dim=-1).max())
    own = patterns @ patterns.T
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


def test_open_cells_take_the_steps_of_the_package():
    cells = run_open_cells("12_continuous_memory")
    patterns = torch.as_tensor(cells["random_patterns"])
    path = torch.as_tensor(np.array(cells["path"]))
    steps = update(patterns, states=path[:-1], beta=0.5)
    torch.testing.assert_close(path[1:], steps, rtol=1e-12, atol=1e-12)
    energies = continuous.energy(patterns, states=path, beta=0.5)
    np.testing.assert_allclose(cells["path_energies"], energies, rtol=1e-12)
    assert np.diff(cells["path_energies"])[0] < -1
    assert cells["path_distances"][0] > 0.5
    assert cells["path_distances"][1] < 0.01
