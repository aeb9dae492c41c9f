"""Discrete memories against enumeration, plain loops, closed forms and mean-field theory."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf
from scipy.stats import binom

from spinformer.core.solve import Status
from spinformer.core.states import hebbian_couplings, overlaps
from spinformer.hopfield.capacity import (
    ags_capacity,
    ags_overlap,
    birthday_law,
    bit_error,
    bit_error_at_finite_size,
    capacity_at_error,
    exponential_rate,
)
from spinformer.hopfield.discrete import (
    energy,
    fields,
    log_energy,
    retrieve,
)
from spinformer.hopfield.reference import retrieve_reference
from spinformer.hopfield.relaxation import retrieve_with_couplings
from spinformer.hopfield.separation import CLASSICAL, EXPONENTIAL, Separation, polynomial
from spinformer.studies.discrete_memories import (
    all_fixed_probability,
    capacity_exponent,
    crossing,
    curve,
    exponential_recall,
    half_capacity,
    one_step_error,
    retrieval_overlap,
)
from spinformer.studies.images import FACE_SHAPE, binarize, digit_labels, digits, faces, mask

MEMORIES = [CLASSICAL, polynomial(2), polynomial(3), polynomial(4), EXPONENTIAL]
SCALAR = {
    "classical": lambda x: x * x / 2,
    "exponential": lambda x: float(np.exp(x)),
    "polynomial of degree 2": lambda x: x**2,
    "polynomial of degree 3": lambda x: x**3,
    "polynomial of degree 4": lambda x: x**4,
}


def spins(rng, *shape):
    return rng.choice([-1.0, 1.0], shape)


def loop_energy(patterns, state, memory):
    """−Σ F by the definition, in Python numbers."""
    value = SCALAR[memory.name]
    return -sum(
        value(sum(int(a) * int(b) for a, b in zip(x, state, strict=True))) for x in patterns
    )


# -- energies and fields ---------------------------------------------------------------------


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_energy_and_fields_equal_their_definitions(memory):
    rng = np.random.default_rng(1)
    patterns, states = spins(rng, 4, 9), spins(rng, 5, 9)
    states[0, 2] = states[1, :4] = 0  # unknown spins
    np.testing.assert_allclose(
        energy(patterns, states=states, separation=memory),
        [loop_energy(patterns, s, memory) for s in states],
        rtol=1e-13,
    )
    expected = np.empty_like(states)
    for q, i in product(range(5), range(9)):
        up, down = states[q].copy(), states[q].copy()
        up[i], down[i] = 1, -1
        expected[q, i] = (
            loop_energy(patterns, down, memory) - loop_energy(patterns, up, memory)
        ) / 2
    if memory == EXPONENTIAL:
        expected /= np.exp((states @ patterns.T).max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        fields(patterns, states=states, separation=memory), expected, rtol=1e-11, atol=1e-13
    )


def test_classical_energy_is_the_quadratic_form_of_the_document():
    rng = np.random.default_rng(2)
    patterns, states, bias = spins(rng, 6, 20), spins(rng, 8, 20), rng.normal(size=20)
    weights = sum(np.outer(x, x) for x in patterns)
    expected = [-0.5 * s @ weights @ s + s @ bias for s in states]
    np.testing.assert_allclose(energy(patterns, states=states, bias=bias), expected, atol=1e-11)
    np.testing.assert_allclose(
        fields(patterns, states=states, diagonal=True, bias=bias),
        states @ weights - bias,
        atol=1e-11,
    )
    np.testing.assert_allclose(  # what the diagonal adds: N times the spin itself
        fields(patterns, states=states, bias=bias), states @ weights - 6 * states - bias, atol=1e-11
    )
    assert (np.diag(hebbian_couplings(patterns)) == 0).all()
    assert (hebbian_couplings(patterns, diagonal=True) == weights).all()


def test_gradient_rule_is_minus_the_gradient():
    rng = np.random.default_rng(3)
    patterns, state, step = spins(rng, 5, 12), spins(rng, 1, 12), 1e-5
    for memory in MEMORIES:
        shift = step * np.eye(12)
        up, down = patterns @ (state + shift).T, patterns @ (state - shift).T
        slope = (memory(up) - memory(down)).sum(axis=0) / (2 * step)
        if memory == EXPONENTIAL:
            slope /= np.exp((patterns @ state[0]).max())
        got = fields(patterns, states=state, separation=memory, diagonal=True)[0]
        np.testing.assert_allclose(got, slope, rtol=1e-6, atol=1e-6 * np.abs(slope).max())


def test_log_energy_orders_states_as_the_energy_and_survives_large_dimension():
    rng = np.random.default_rng(4)
    patterns, states = spins(rng, 5, 30), spins(rng, 9, 30)
    np.testing.assert_allclose(
        log_energy(patterns, states=states),
        -np.log(-energy(patterns, states=states, separation=EXPONENTIAL)),
        rtol=1e-13,
    )
    wide = spins(rng, 3, 2000)
    np.testing.assert_allclose(log_energy(wide, states=wide), -2000.0, atol=1e-12)
    with pytest.raises(ValueError, match="use log_energy"):
        energy(wide, states=wide, separation=EXPONENTIAL)
    assert (
        retrieve(wide, queries=mask(wide, fraction=0.5), separation=EXPONENTIAL).states == wide
    ).all()


# -- dynamics --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(MEMORIES), st.booleans(), st.booleans())
def test_kernels_follow_the_plain_reference_flip_by_flip(seed, memory, diagonal, biased):
    rng = np.random.default_rng(seed)
    patterns, queries = spins(rng, 5, 17), rng.choice([-1.0, 0.0, 1.0], (4, 17))
    bias = rng.normal(size=17) * 5 if biased and memory != EXPONENTIAL else None
    options = {"diagonal": diagonal, "bias": bias, "seed": seed, "max_steps": 4}
    plain = retrieve_reference(patterns, queries=queries, separation=memory, **options)
    kernels = ["overlaps", "couplings"] if memory == CLASSICAL else ["overlaps"]
    for kernel in kernels:
        fast = retrieve(patterns, queries=queries, separation=memory, kernel=kernel, **options)
        assert (fast.states == plain.states).all()
        assert (fast.flips == plain.flips).all()
        assert (fast.status == plain.status).all()
        np.testing.assert_allclose(fast.energies, plain.energies, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_asynchronous_retrieval_ends_in_a_minimum_found_by_enumeration(memory):
    rng = np.random.default_rng(5)
    patterns = spins(rng, 4, 10)
    cube = np.array(list(product([-1.0, 1.0], repeat=10)))
    level = dict(
        zip(map(tuple, cube), energy(patterns, states=cube, separation=memory), strict=True)
    )
    found = retrieve(patterns, queries=cube, separation=memory, seed=6)
    assert found.converged.all()
    for state in np.unique(found.states, axis=0):
        for i in range(10):
            other = state.copy()
            other[i] *= -1
            assert level[tuple(other)] >= level[tuple(state)] * (1 + 1e-12)
    assert (np.diff(found.energies, axis=1) <= 1e-12 * np.abs(found.energies[:, :-1])).all()


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_no_asynchronous_flip_raises_the_energy(memory):
    rng = np.random.default_rng(7)
    flips = 0
    while flips < 25_000:
        patterns = spins(rng, 30, 150)
        found = retrieve(
            patterns, queries=spins(rng, 60, 150), separation=memory, kernel="overlaps", seed=flips
        )
        assert found.rises.sum() == 0
        flips += int(found.flips.sum())


def test_synchronous_updates_cycle_only_without_the_diagonal():
    rng = np.random.default_rng(8)
    cycles = 0
    for _ in range(20):
        patterns, queries = spins(rng, 12, 60), spins(rng, 40, 60)
        found = retrieve(patterns, queries=queries, schedule="synchronous")
        assert (
            found.status != Status.STEP_LIMIT
        ).all()  # symmetric couplings: fixed points and 2-cycles, no more
        cycles += int((found.status == Status.CYCLE).sum())
        start = found.states[found.status == Status.CYCLE]
        field = start @ hebbian_couplings(patterns)
        once = np.where(field == 0, start, np.sign(field))
        field = once @ hebbian_couplings(patterns)
        assert (once != start).any(axis=1).all()
        assert (np.where(field == 0, once, np.sign(field)) == start).all()
        kept = retrieve(patterns, queries=queries, schedule="synchronous", diagonal=True)
        assert kept.converged.all()  # W is then positive semi-definite
        assert (np.diff(kept.energies, axis=1) <= 0).all()
    assert cycles > 30


def test_degree_two_is_the_classical_network():
    rng = np.random.default_rng(9)
    patterns, queries = spins(rng, 9, 50), spins(rng, 20, 50)
    for schedule, diagonal in product(("asynchronous", "synchronous"), (False, True)):
        options = {"schedule": schedule, "diagonal": diagonal, "seed": 1}
        one = retrieve(patterns, queries=queries, separation=CLASSICAL, **options)
        two = retrieve(patterns, queries=queries, separation=polynomial(2), **options)
        assert (one.states == two.states).all()
        np.testing.assert_allclose(2 * one.energies, two.energies, rtol=1e-13)


def test_exponential_memory_decides_ties_as_exact_arithmetic_does():
    """Two patterns one spin apart share a minimum; a third, e^{−58} lighter, chooses it."""
    d = 60
    patterns = np.ones((3, d))
    patterns[1, 0] = -1
    patterns[2, :30] = -1
    found = retrieve(patterns, queries=patterns[:2], separation=EXPONENTIAL, seed=2)
    assert (found.states == patterns[1]).all()


def test_a_separation_of_ones_own_is_retrieved_like_the_built_in_ones():
    """Rectified cube (integers, counted directly), x^2.5 (rounded) and cosh (two-sided, huge)."""
    powers = Separation(
        name="rectified 2.5",
        function=lambda x: np.maximum(x, 0.0) ** 2.5,
        derivative=lambda x: 2.5 * np.maximum(x, 0.0) ** 1.5,
    )
    even = Separation(
        name="cosh", function=np.cosh, log=lambda x: np.logaddexp(x, -x) - np.log(2.0)
    )
    cube = Separation(name="rectified cube", function=lambda x: np.maximum(x, 0.0) ** 3)
    rng = np.random.default_rng(25)
    for memory in (powers, even, cube):
        for seed in range(20):
            patterns, queries = spins(rng, 6, 19), rng.choice([-1.0, 0.0, 1.0], (5, 19))
            options = {"separation": memory, "seed": seed, "queries": queries}
            if memory is powers:
                options |= {"diagonal": bool(seed % 2), "bias": 3.0 * rng.normal(size=19)}
            fast, plain = retrieve(patterns, **options), retrieve_reference(patterns, **options)
            assert (fast.states == plain.states).all()
            assert (fast.flips == plain.flips).all()
            assert fast.rises.sum() == 0
            np.testing.assert_allclose(fast.energies, plain.energies, rtol=1e-11, atol=1e-9)
    wide = spins(rng, 4, 1500)  # cosh overflows at 710: both signs come back, each its own
    kept = retrieve(wide, queries=np.concatenate([wide, -wide]), separation=even)
    assert (kept.states == np.concatenate([wide, -wide])).all()
    with pytest.raises(ValueError, match="log_derivative"):
        retrieve(wide, queries=wide, separation=even, diagonal=True)
    bad = Separation(name="cosh without log", function=np.cosh)
    with pytest.raises(ValueError, match="function of separation must be finite"):
        retrieve(wide, queries=wide, separation=bad)


# -- capacity --------------------------------------------------------------------------------


def test_mean_field_curve_solves_the_equations_of_amit_gutfreund_sompolinsky():
    capacity, overlap = ags_capacity()
    assert capacity == pytest.approx(0.1379, abs=5e-5)
    assert overlap == pytest.approx(0.967, abs=5e-4)
    for load in (0.03, 0.1, 0.135):
        m, r = 1.0, 1.0
        for _ in range(5000):  # the three order-parameter equations at T = 0, iterated
            c = np.sqrt(2 / (np.pi * load * r)) * np.exp(-(m**2) / (2 * load * r))
            m, r = erf(m / np.sqrt(2 * load * r)), 1 / (1 - c) ** 2
        assert ags_overlap(load) == pytest.approx(m, abs=1e-10)
    assert ags_overlap(0.139) == 0.0
    assert ags_overlap(0.0) == 1.0


def plain_overlap(d, load, networks, queries, seed):
    """Zero-temperature dynamics of the classical network, written out; overlap of each network."""
    rng = np.random.RandomState(seed)
    result = []
    for _ in range(networks):
        x = rng.randint(0, 2, (round(load * d), d)) * 2 - 1
        w = (x.T.astype(np.float32) @ x.astype(np.float32)).astype(np.int32)
        w -= len(x) * np.eye(d, dtype=np.int32)
        final = []
        for target in x[:queries]:
            s = target.copy()
            h = w @ s
            moving = True
            while moving:
                moving = False
                for i in rng.permutation(d):
                    if h[i] * s[i] < 0:
                        s[i] = -s[i]
                        h += 2 * s[i] * w[i]
                        moving = True
            final.append(s @ target / d)
        result.append(np.mean(final))
    return np.array(result)


@pytest.mark.parametrize("load", [0.10, 0.12, 0.14, 0.16, 0.18])
def test_overlap_at_2000_spins_agrees_with_an_independent_simulation(load):
    ours = retrieval_overlap(2000, loads=[load], networks=16, queries=8, seed=11).samples[0]
    plain = plain_overlap(2000, load, networks=12, queries=4, seed=12)
    error = np.sqrt(ours.var(ddof=1) / ours.size + plain.var(ddof=1) / plain.size)
    assert abs(ours.mean() - plain.mean()) < 2 * error


def test_transition_sharpens_with_size_and_follows_mean_field_below_it():
    loads = [0.1, 0.12, 0.17]
    small = retrieval_overlap(500, loads=loads, networks=24, queries=20, seed=13)
    large = retrieval_overlap(2000, loads=loads, networks=8, queries=20, seed=14)
    drops = [curve.samples[1] - curve.samples[2] for curve in (small, large)]
    error = np.sqrt(sum(drop.var(ddof=1) / drop.size for drop in drops))
    assert drops[1].mean() - drops[0].mean() > 3 * error
    assert abs(large.estimate.value[0] - ags_overlap(0.1)) < 2e-3
    assert ags_overlap(0.17) == 0.0
    assert (
        large.estimate.value[2] < 0.6
    )  # what is left above the transition is a spin-glass remanence


def test_crossing_finds_where_two_noisy_lines_cross():
    rng = np.random.default_rng(20)
    x = np.linspace(0.1, 0.2, 6)
    found = []
    for _ in range(20):
        curves = []
        for slope in (1.0, 3.0):  # both lines pass through 0.9 at 0.143
            samples = (0.9 - slope * (x - 0.143))[:, None] + 0.02 * rng.normal(size=(6, 40))
            curves.append(curve(x, samples=samples))
        found.append(crossing(curves[0], large=curves[1], resamples=200))
    load, error = np.array([(e.value, e.error) for e in found]).T
    assert abs(load.mean() - 0.143) < 3 * load.std(ddof=1) / np.sqrt(20)
    assert 0.5 < error.mean() / load.std(ddof=1) < 2.0
    assert np.isnan(crossing(curves[0], large=curves[0]).value)
    with pytest.raises(ValueError, match="large"):
        crossing(curves[0], large=curve(x + 1, samples=curves[1].samples))


def test_keeping_the_diagonal_hides_the_transition():
    kept = retrieval_overlap(2000, loads=[0.18], networks=3, queries=20, diagonal=True, seed=15)
    left_out = retrieval_overlap(2000, loads=[0.18], networks=3, queries=20, seed=15)
    assert kept.estimate.value[0] > 0.98
    assert left_out.estimate.value[0] < 0.45


@pytest.mark.parametrize(("degree", "d", "count"), [(2, 400, 80), (3, 100, 1500), (4, 60, 2500)])
def test_one_step_error_follows_krotov_and_hopfield(degree, d, count):
    found = one_step_error(d, count=count, degree=degree, networks=40, queries=60, seed=16)
    # 2 % for what the Gaussian law leaves out at these sizes.
    theory = bit_error_at_finite_size(d, count=count, degree=degree)
    assert abs(found.value - theory) < 3 * found.error + 0.02 * theory
    n = capacity_at_error(d, degree=degree, error=0.01)
    assert bit_error_at_finite_size(d, count=round(n), degree=degree) == pytest.approx(
        0.01, rel=0.02
    )
    wide = capacity_at_error(4000, degree=degree, error=0.01, leading_order=True)
    assert bit_error(4000, count=round(wide), degree=degree) == pytest.approx(0.01, rel=0.01)
    assert bit_error_at_finite_size(4000, count=round(wide), degree=degree) == pytest.approx(
        0.01, rel=0.02
    )


@pytest.mark.parametrize(
    ("degree", "dims"), [(2, (200, 400, 800)), (3, (50, 80, 126)), (4, (36, 50, 70))]
)
def test_capacity_grows_as_d_to_the_degree_minus_one(degree, dims):
    fitted = capacity_exponent(dims, degree=degree, bits=40_000, blocks=5, seed=17)
    assert abs(fitted.exponent.value - fitted.predicted_exponent) < 4 * fitted.exponent.error + 0.01
    assert abs(fitted.exponent.value - (degree - 1)) < 0.06


def test_exponential_memory_loses_patterns_by_the_birthday_law():
    d = 12
    counts = [10, 20, 30, 45]
    measured = all_fixed_probability(d, counts=counts, networks=400, seed=18)
    for count, share in zip(counts, measured.estimate.value, strict=True):
        law = birthday_law(d, count=count)
        assert abs(share - law) < 3 * np.sqrt(law * (1 - law) / 400)
    half = half_capacity(measured)
    assert birthday_law(d, count=round(half.value)) == pytest.approx(0.5, abs=0.05)
    assert half.error < 0.03 * half.value
    rng = np.random.default_rng(22)  # the estimate and its error, on draws from the law itself
    law = np.array([birthday_law(d, count=n) for n in counts])
    truth = 0.5 + np.sqrt(0.25 + np.log(2) * 2.0 ** (d + 1) / d)
    pulls = []
    for _ in range(200):
        draws = (rng.random((4, 100)) < law[:, None]).astype(float)
        fit = half_capacity(curve(counts, samples=draws))
        pulls.append((fit.value - truth) / fit.error)
    assert abs(np.mean(pulls)) < 0.3
    assert 0.8 < np.std(pulls) < 1.2
    # and exactly: all are fixed unless two patterns are neighbours on the cube
    rng = np.random.default_rng(19)
    for _ in range(50):
        patterns = np.unique(spins(rng, 20, 9), axis=0)
        neighbours = (patterns @ patterns.T == 9 - 2).any()
        flips = retrieve(patterns, queries=patterns, separation=EXPONENTIAL, max_steps=1).flips
        assert bool(flips.any()) == bool(neighbours)
    assert birthday_law(60, count=2**30) < 1e-12  # literally 2^{d/2} patterns: never all fixed
    assert exponential_rate(0.0) == pytest.approx(np.log(2) / 2)
    assert exponential_rate(0.5) == 0.0


def test_exponential_memory_recalls_damaged_patterns_in_one_sweep():
    d, count, damage = 60, 1000, [0.0, 0.1, 0.3]
    recall = exponential_recall(d, count=count, corruptions=damage, queries=200, seed=21)
    assert np.log(count) / d < exponential_rate(0.1)
    assert (recall.one_sweep[:2] == 1.0).all()
    assert (recall.final >= recall.one_sweep).all()
    # A random pattern is farther than the query's own with probability q, ties with p; sum over
    # the number of ties, each an equal guess.
    flips = np.rint(np.array(damage) * d)
    q, p = binom.sf(flips, d, 0.5), binom.pmf(flips, d, 0.5)
    nearest = (q + p) ** count * -np.expm1(count * np.log1p(-p / (q + p))) / (count * p)
    error = np.sqrt(np.maximum(nearest * (1 - nearest), 0) / 200)
    assert (np.abs(recall.nearest - nearest) <= 3 * error + 1e-6).all()
    assert 0.1 < nearest[2] < 0.9


# -- images ----------------------------------------------------------------------------------


def test_images_are_scaled_as_documented():
    assert faces().shape == (100, 625)
    assert faces().min() == -1.0
    assert faces().max() == 1.0
    assert digits().shape == (1797, 64)
    assert (np.unique(digits()) == np.arange(17) / 8 - 1).all()
    assert np.bincount(digit_labels()).sum() == 1797
    assert FACE_SHAPE[0] * FACE_SHAPE[1] == 625
    for threshold in ("pixel", "image"):
        assert abs(binarize(faces(), threshold=threshold).mean()) < 0.01
    assert set(np.unique(binarize(digits(), threshold="zero"))) == {-1.0, 1.0}
    hidden = mask(faces(), fraction=0.5, value=-1.0)
    assert (hidden[:, 313:] == -1).all()
    assert (hidden[:, :313] == faces()[:, :313]).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_half_masked_faces_six_are_too_many_for_the_classical_a_hundred_fine_for_exp(seed):
    stored = binarize(faces(), threshold="image")
    six = stored[:6]
    assert (
        not (
            retrieve(six, queries=mask(six, fraction=0.5), separation=CLASSICAL, seed=seed).states
            == six
        )
        .all(1)
        .any()
    )
    found = retrieve(stored, queries=mask(stored, fraction=0.5), separation=EXPONENTIAL, seed=seed)
    assert (found.states == stored).all()
    assert (found.steps == 1).all()


# -- input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: energy(x, states=x, separation="cubic"), TypeError, "separation"),
        (lambda x: polynomial(1), ValueError, "degree"),
        (lambda x: polynomial(2.5), TypeError, "degree"),
        (lambda x: energy(x[0], states=x), ValueError, "patterns"),
        (lambda x: energy(x * 0.5, states=x), ValueError, "patterns"),
        (lambda x: energy(x[:0], states=x), ValueError, "patterns"),
        (lambda x: energy(x, states=x[:, :3]), ValueError, "states"),
        (lambda x: energy(x, states=x * np.nan), ValueError, "states"),
        (lambda x: energy(x, states=x, bias=[1.0]), ValueError, "bias"),
        (
            lambda x: fields(x, states=x, separation=EXPONENTIAL, bias=np.ones(8)),
            ValueError,
            "bias",
        ),
        (lambda x: retrieve(x, queries=x + 1), ValueError, "queries"),
        (lambda x: retrieve(x, queries=x, schedule="random"), ValueError, "schedule"),
        (lambda x: retrieve(x, queries=x, max_steps=0), ValueError, "max_steps"),
        (
            lambda x: retrieve(x, queries=x, separation=EXPONENTIAL, kernel="couplings"),
            ValueError,
            "kernel",
        ),
        (
            lambda x: retrieve_with_couplings(np.triu(np.ones((8, 8))), queries=x),
            ValueError,
            "couplings",
        ),
        (lambda x: retrieval_overlap(100, loads=[0.2, 0.1]), ValueError, "loads"),
        (lambda x: retrieval_overlap(100, loads=[0.1], networks=1), ValueError, "networks"),
        (lambda x: capacity_exponent([10, 20], degree=2), ValueError, "dims"),
        (lambda x: capacity_at_error(100, degree=2, error=0.5), ValueError, "error"),
        (lambda x: ags_overlap(-0.1), ValueError, "load"),
        (lambda x: binarize(x, threshold="mean"), ValueError, "threshold"),
        (lambda x: mask(x, fraction=1.5), ValueError, "fraction"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, message):
    patterns = spins(np.random.default_rng(0), 3, 8)
    with pytest.raises(error, match=message):
        call(patterns)
    assert overlaps(patterns, patterns=patterns)[0, 0] == 1.0
