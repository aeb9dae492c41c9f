"""The experiments of the continuous memory against plain loops, definitions and the library."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import approx_fprime
from scipy.special import logsumexp, softmax

from compendium.c12_continuous_memory import hidden_neurons, study
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


BETA = 1.5


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def downhill(patterns, v):
    """−∇E of attention."""
    slope = continuous.gradient(torch.as_tensor(patterns), states=torch.as_tensor(v), beta=BETA)
    return -slope.numpy()


@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
def test_the_neurons_are_a_particle_with_friction(ratio):
    """ρ ü + (1 + ρ) u̇ = −∇E(u) from rest, h = Xu, v = u + ρ u̇; ρ and 1/ρ give one path."""
    patterns = draw(7, 4)
    query = draw(1, 4, seed=1)

    def neurons(ratio, duration):
        times = hidden_neurons.Times(duration=duration, points=13, accuracy=1e-11)
        return hidden_neurons.flow(patterns, queries=query, beta=BETA, ratio=ratio, times=times)

    visible, hidden = neurons(ratio, 6.0)

    def newton(_, state):
        u, speed = np.split(state, 2)
        return np.concatenate([speed, (downhill(patterns, u) - (1 + ratio) * speed) / ratio])

    path = solve_ivp(
        newton,
        (0, 6),
        np.concatenate([query[0], np.zeros(4)]),
        t_eval=np.linspace(0, 6, 13),
        rtol=1e-11,
        atol=1e-11,
    ).y.T
    np.testing.assert_allclose(hidden[0], path[:, :4] @ patterns.T, atol=1e-7)
    np.testing.assert_allclose(visible[0], path[:, :4] + ratio * path[:, 4:], atol=1e-7)
    _, mirrored = neurons(1 / ratio, 6.0 / ratio)
    np.testing.assert_allclose(hidden, mirrored, atol=1e-7)


@pytest.mark.parametrize("ratio", [0.05, 20.0])
def test_the_energy_of_both_kinds_falls_from_an_empty_start(ratio):
    """E = v²/2 + h·f − L_h − f·Xv, written out here; attention's where hidden neurons follow."""
    patterns = draw(7, 4)
    query = draw(1, 4, seed=1)

    def energy(v, h):
        f = hidden_neurons.softmax(BETA * h)
        own = 0.5 * (v**2).sum(-1) + (h * f).sum(-1) - logsumexp(BETA * h, axis=-1) / BETA
        return own - (f * (v @ patterns.T)).sum(-1)

    times = hidden_neurons.Times(duration=4.0, points=400, accuracy=1e-11)
    v, h = hidden_neurons.flow(
        patterns, queries=query, beta=BETA, ratio=ratio, times=times, empty=True
    )
    assert not h[:, 0].any()
    assert np.diff(energy(v, h), axis=1).max() < 1e-9
    plain = continuous.energy(torch.as_tensor(patterns), states=torch.as_tensor(query), beta=BETA)
    np.testing.assert_allclose(energy(query, query @ patterns.T), plain)


def test_the_slow_flow_descends_the_energy_of_attention():
    patterns = draw(7, 4)
    queries = draw(3, 4, seed=1)
    times = hidden_neurons.Times(duration=2.0, points=11, accuracy=1e-11)
    paths = hidden_neurons.slow_flow(patterns, queries=queries, beta=BETA, times=times)
    for query, path in zip(queries, paths, strict=True):
        other = solve_ivp(
            lambda _, v: downhill(patterns, v),
            (0, 2),
            query,
            t_eval=np.linspace(0, 2, 11),
            rtol=1e-11,
            atol=1e-11,
        )
        np.testing.assert_allclose(path, other.y.T, atol=1e-8)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 7.0])
def test_relaxation_rates_are_eigenvalues_of_the_whole_network(ratio):
    patterns = draw(7, 4)
    values = draw(7, 4, seed=1)
    slope = approx_fprime(draw(7, seed=2), lambda h: hidden_neurons.softmax(BETA * h), 1e-8)
    slope = 0.5 * (slope + slope.T)
    for given, real in ((patterns, True), (values, False)):
        whole = np.block([[-np.eye(4), given.T @ slope], [patterns / ratio, -np.eye(7) / ratio]])
        rates = hidden_neurons.relaxation_rates(
            np.linalg.eigvals(given.T @ slope @ patterns), ratio=ratio
        )
        spectrum = np.linalg.eigvals(whole)
        for rate in rates.ravel():
            assert np.abs(spectrum - rate).min() < 1e-6
        if real:
            assert np.abs(rates.imag).max() < 1e-6
    # However fast the hidden neurons are, the slow rate is that of the slow flow, a − 1.
    slow = hidden_neurons.relaxation_rates([0.5, 0.9, 1.2], ratio=1e-15)[:, 1]
    np.testing.assert_allclose(slow, [-0.5, -0.1, 0.2], rtol=1e-8)
    # The edge of stability for complex slopes: a parabola.
    for imaginary in (0.5, 1.5, 3.0):
        edge = 1 - ratio * imaginary**2 / (1 + ratio) ** 2 + 1j * imaginary
        assert abs(hidden_neurons.relaxation_rates(edge, ratio=ratio).real.max()) < 1e-12


@pytest.mark.claim("A9b")
def test_hidden_neurons_may_be_eliminated_if_they_start_where_they_belong():
    drawn = hidden_neurons.memories(2, queries=3, seed=11)
    ratios = [1e-3, 1e-2]
    first = hidden_neurons.distances(drawn[:1], beta=0.8, ratios=ratios)
    second = hidden_neurons.distances(drawn[1:], beta=0.8, ratios=ratios)
    errors = hidden_neurons.distances(drawn, beta=0.8, ratios=ratios)
    assert (errors == np.maximum(first, second)).all()
    assert (abs(np.log10(errors[:, 1] / errors[:, 0]) - [1, 2]) < [0.1, 0.2]).all()
    # Other memories than those of the chapter.
    drawn = hidden_neurons.memories(5, queries=8, seed=12)
    reference = hidden_neurons.ends(drawn, beta=0.8, ratio=0.0)
    matched = hidden_neurons.elsewhere(
        reference, other=hidden_neurons.ends(drawn, beta=0.8, ratio=1.0)
    )
    fresh = hidden_neurons.elsewhere(
        reference, other=hidden_neurons.ends(drawn, beta=0.8, ratio=10.0, empty=True)
    )
    assert matched["tried"] == fresh["tried"] == 40
    assert matched["count"] / matched["tried"] < 0.1
    assert fresh["low"] > 0.3
    # A query that rests in one of the two only is not counted, nor tried.
    moved = hidden_neurons.elsewhere(reference, other=(reference[0] + 1.0, np.arange(40) >= 3))
    assert moved["count"] == moved["tried"] == 37
