"""Discrete memories against enumeration, plain loops and closed forms; images they store."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from spinformer.core.solve import NotConverged, Status
from spinformer.core.states import hebbian_couplings
from spinformer.hopfield.discrete import (
    CLASSICAL,
    EXPONENTIAL,
    Separation,
    energy,
    fields,
    polynomial,
    retrieve,
)

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


def plain_retrieval(patterns, *, queries, separation=CLASSICAL, diagonal=False, bias=None, seed):
    """Asynchronous sweeps spelled out, at every visit the energy with the spin up and down: the
    states and flips after at most four sweeps."""
    bias = np.zeros(patterns.shape[1]) if bias is None else bias
    depth, log = (separation, None) if separation.log is None else (None, separation.log)

    def height(state):
        products = patterns @ state
        return -logsumexp(log(products)) if log else -depth(products).sum() + state @ bias

    states, flips = queries.copy(), np.zeros(len(queries), dtype=int)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        for i in rng.permutation(patterns.shape[1]):
            for q, state in enumerate(states):
                if diagonal:
                    products = patterns @ state
                    slope = separation.derivative(products)
                    if log:
                        slope = separation.log_derivative(products)
                        slope = np.exp(slope - slope.max())
                    field = slope @ patterns[:, i] - bias[i]
                else:
                    up, down = state.copy(), state.copy()
                    up[i], down[i] = 1.0, -1.0
                    field = height(down) - height(up)
                new = np.sign(field) if field else state[i] or 1.0
                flips[q] += new != state[i]
                state[i] = new
    return states, flips, [height(state) for state in states]


# -- energies and fields ---------------------------------------------------------------------


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_energy_and_fields_equal_their_definitions(memory):
    rng = np.random.default_rng(1)
    patterns, states = spins(rng, 4, 9), spins(rng, 5, 9)
    states[0, 2] = states[1, :4] = 0  # unknown spins
    push = np.zeros(9) if memory == EXPONENTIAL else rng.integers(-8, 9, 9) / 8
    given = {"separation": memory, "bias": push if push.any() else None}

    def height(state):
        return loop_energy(patterns, state, memory) + state @ push

    expected = [height(state) for state in states]
    np.testing.assert_allclose(energy(patterns, states=states, **given), expected, rtol=1e-13)
    differences, slopes, step = np.empty_like(states), np.empty_like(states), 1e-5 * np.eye(9)
    for q, i in product(range(5), range(9)):
        up, down = states[q].copy(), states[q].copy()
        up[i], down[i] = 1, -1
        differences[q, i] = (height(down) - height(up)) / 2
        above, below = memory(np.array([states[q] + step[i], states[q] - step[i]]) @ patterns.T)
        slopes[q, i] = (above - below).sum() / 2e-5 - push[i]
    if memory == EXPONENTIAL:
        for expected in (differences, slopes):
            expected /= np.exp((states @ patterns.T).max(axis=1, keepdims=True))
    found = fields(patterns, states=states, **given)
    np.testing.assert_allclose(found, differences, rtol=1e-11, atol=1e-13)
    found = fields(patterns, states=states, diagonal=True, **given)
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-6 * np.abs(slopes).max())


# -- dynamics --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(MEMORIES), st.booleans(), st.booleans())
def test_kernels_follow_the_plain_reference_flip_by_flip(seed, memory, diagonal, biased):
    rng = np.random.default_rng(seed)
    patterns, queries = spins(rng, 5, 17), rng.choice([-1.0, 0.0, 1.0], (4, 17))
    bias = rng.normal(size=17) * 5 if biased and memory != EXPONENTIAL else None
    options = {"separation": memory, "diagonal": diagonal, "bias": bias, "seed": seed}
    states, flips, heights = plain_retrieval(patterns, queries=queries, **options)
    for kernel in ["overlaps", "couplings"] if memory == CLASSICAL else ["overlaps"]:
        fast = retrieve(patterns, queries=queries, kernel=kernel, max_steps=4, **options)
        assert (fast.states == states).all()
        assert (fast.flips == flips).all()
        np.testing.assert_allclose(fast.energies[:, -1], heights, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
@pytest.mark.claim("A5")
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
        assert ((found.residual > 0) == (found.status == Status.CYCLE)).all()
        assert found.energies.shape[1] < 100  # seen cycles are not followed to the last sweep
        for q in range(3):  # a cycle stops where it is seen, whatever its neighbours do
            alone = retrieve(patterns, queries=queries[[q]], schedule="synchronous")
            assert (alone.states[0] == found.states[q]).all()
            assert (alone.steps[0], alone.flips[0]) == (found.steps[q], found.flips[q])
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
        for seed in range(6):
            patterns, queries = spins(rng, 6, 19), rng.choice([-1.0, 0.0, 1.0], (5, 19))
            options = {"separation": memory, "seed": seed}
            if memory is powers:
                options |= {"diagonal": bool(seed % 2), "bias": 3.0 * rng.normal(size=19)}
            fast = retrieve(patterns, queries=queries, max_steps=4, **options)
            states, flips, heights = plain_retrieval(patterns, queries=queries, **options)
            assert (fast.states == states).all()
            assert (fast.flips == flips).all()
            assert fast.rises.sum() == 0
            np.testing.assert_allclose(fast.energies[:, -1], heights, rtol=1e-11, atol=1e-9)
    wide = spins(rng, 4, 1500)  # cosh overflows at 710: both signs come back, each its own
    kept = retrieve(wide, queries=np.concatenate([wide, -wide]), separation=even)
    assert (kept.states == np.concatenate([wide, -wide])).all()
    with pytest.raises(ValueError, match="log_derivative"):
        retrieve(wide, queries=wide, separation=even, diagonal=True)
    bad = Separation(name="cosh without log", function=np.cosh)
    with pytest.raises(ValueError, match="function of separation must be finite"):
        retrieve(wide, queries=wide, separation=bad)


def test_status_says_why_retrieval_stopped():
    rng = np.random.default_rng(31)
    patterns, queries = spins(rng, 12, 80), spins(rng, 200, 80)
    full = retrieve(patterns, queries=queries, seed=5)
    assert (full.status == Status.CONVERGED).all()
    assert (full.residual == 0).all()
    last = int(full.steps.max())
    assert last > 2
    # `steps` sweeps suffice for the states, one fewer does not, and seeing it takes one more.
    for limit, arrived, known in ((last - 1, False, False), (last, True, False), (last + 1,) * 3):
        part = retrieve(patterns, queries=queries, seed=5, max_steps=limit)
        assert bool((part.states == full.states).all()) is bool(arrived)
        assert bool(part.converged.all()) is bool(known)
        assert (part.converged == (part.residual == 0)).all()
        assert (part.status[~part.converged] == Status.STEP_LIMIT).all()
        moving = fields(patterns, states=part.states) * part.states < 0
        assert not moving[part.converged].any()
    with pytest.raises(NotConverged, match="fixed point"):
        retrieve(patterns, queries=queries, seed=5, max_steps=last, throw=True)
    together = retrieve(patterns, queries=queries, schedule="synchronous")
    assert set(together.status) == {Status.CONVERGED, Status.CYCLE}
    short = retrieve(patterns, queries=queries, schedule="synchronous", max_steps=1)
    assert (short.status == Status.STEP_LIMIT).all()
    assert (short.residual == (short.states != queries).sum(axis=1)).all()
    with pytest.raises(NotConverged, match="cycle"):
        retrieve(patterns, queries=queries, schedule="synchronous", throw=True)


def test_rises_are_counted_where_the_energy_rises():
    """F concave, so that the rule of the gradient does go uphill: counted flip by flip."""
    root = Separation(
        name="root",
        function=lambda x: -(np.abs(x) ** 1.5),
        derivative=lambda x: -1.5 * np.sign(x) * np.abs(x) ** 0.5,
    )
    # The same hills on a high plateau: rises of 1e-12 of the energy count as well.
    faint = Separation(
        name="faint root",
        function=lambda x: 1.0 - 1e-12 * np.abs(x) ** 1.5,
        derivative=lambda x: -1.5e-12 * np.sign(x) * np.abs(x) ** 0.5,
    )
    rng = np.random.default_rng(32)
    seen = 0
    for seed in range(30):
        patterns, query = spins(rng, 3, 12), spins(rng, 1, 12)
        found, lifted = (
            retrieve(
                patterns,
                queries=query,
                separation=separation,
                diagonal=True,
                seed=seed,
                max_steps=1,
                kernel="overlaps",
            )
            for separation in (root, faint)
        )
        state, rises = query.copy(), 0
        for i in np.random.default_rng(seed).permutation(12):
            field = fields(patterns, states=state, separation=root, diagonal=True)[0, i]
            before = energy(patterns, states=state, separation=root)[0]
            if abs(field) > 1e-9 and field * state[0, i] < 0:
                state[0, i] *= -1
                rises += energy(patterns, states=state, separation=root)[0] > before + 1e-9
        assert (found.states == state).all()
        assert found.rises[0] == rises
        assert (lifted.states == found.states).all()
        assert lifted.rises[0] == rises
        seen += rises
    assert seen > 10
    # Only flips of known spins count: a first sweep over unknown ones makes none.
    unknown = retrieve(
        patterns, queries=np.zeros((1, 12)), separation=root, max_steps=1, kernel="overlaps"
    )
    assert unknown.energies[0, 1] > unknown.energies[0, 0]
    assert unknown.flips[0] == 12
    assert unknown.rises[0] == 0


# -- input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, _: energy(x[0], states=x), "patterns"),
        (lambda x, _: energy(x, states=x[:, :3]), "states"),
        (lambda x, _: energy(x, states=x, bias=[1.0]), "bias"),
        (lambda x, large: energy(np.ones((1, 800)), states=np.ones((1, 800)), **large), "overflow"),
        (lambda x, large: fields(x, states=x, bias=np.ones(8), **large), "bias"),
        (lambda x, _: retrieve(x, queries=x + 1), "queries"),
        (lambda x, large: retrieve(x, queries=x, kernel="couplings", **large), "kernel"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(spins(np.random.default_rng(0), 3, 8), {"separation": EXPONENTIAL})
    with pytest.raises(TypeError, match="function must be"):
        Separation(name="none", function=3)
