"""Discrete memories against enumeration, plain loops and closed forms."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import logsumexp

from spinformer.core.solve import NotConverged, Status
from spinformer.core.states import hebbian_couplings
from spinformer.hopfield.discrete import (
    CLASSICAL,
    EXPONENTIAL,
    Separation,
    _counted_field,
    _sweep_overlaps,
    energy,
    fields,
    polynomial,
    retrieve,
)

OWN = Separation(name="rectified", function=lambda x: np.maximum(x, 0.0) ** 2.5)
# Each with its F of one number.
MEMORIES = {
    CLASSICAL: lambda x: x * x / 2,
    polynomial(2): lambda x: x * x,
    polynomial(3): lambda x: x**3,
    polynomial(4): lambda x: x**4,
    OWN: lambda x: max(x, 0.0) ** 2.5,
    EXPONENTIAL: np.exp,
}


def spins(rng, *shape):
    return rng.choice([-1.0, 1.0], shape)


def height(patterns, state, separation):
    """E, or −ln Σ F for the exponential memory."""
    products = patterns @ state
    if separation == EXPONENTIAL:
        return -logsumexp(products)
    return -separation(products).sum()


def halves(patterns, state, i, separation):
    """Half the energy that it costs to turn spin i down."""
    up = state.copy()
    down = state.copy()
    up[i] = 1.0
    down[i] = -1.0
    return (height(patterns, down, separation) - height(patterns, up, separation)) / 2


def plain_retrieval(patterns, *, queries, separation, diagonal=False, seed):
    """Asynchronous sweeps spelled out: states, flips and energies after at most four sweeps."""
    states = queries.copy()
    flips = np.zeros(len(queries), dtype=int)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        for i in rng.permutation(patterns.shape[1]):
            for q, state in enumerate(states):
                pull = halves(patterns, state, i, separation)
                pull = pull + diagonal * len(patterns) * state[i]
                new = np.sign(pull) if pull else state[i] or 1.0
                flips[q] += new != state[i]
                state[i] = new
    return states, flips, [height(patterns, state, separation) for state in states]


@pytest.mark.parametrize("memory", [CLASSICAL, EXPONENTIAL, polynomial(3)], ids=str)
def test_a_copy_of_a_separation_is_the_same_one(memory):
    assert pickle.loads(pickle.dumps(memory)) == memory
    assert polynomial(3) == polynomial(3) != polynomial(4)


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_energy_and_fields_equal_their_definitions(memory):
    rng = np.random.default_rng(1)
    patterns = spins(rng, 4, 9)
    states = spins(rng, 5, 9)
    states[0, 2] = states[1, :4] = 0  # unknown spins
    value = MEMORIES[memory]
    expected = [-sum(value(int(x @ state)) for x in patterns) for state in states]
    np.testing.assert_allclose(energy(patterns, states=states, separation=memory), expected)
    result = fields(patterns, states=states, separation=memory)
    for (q, i), field in np.ndenumerate(result):
        up = states[q].copy()
        down = states[q].copy()
        up[i] = 1
        down[i] = -1
        half = sum(value(int(x @ up)) - value(int(x @ down)) for x in patterns) / 2
        scale = np.exp((patterns @ states[q]).max()) if memory == EXPONENTIAL else 1.0
        assert field == pytest.approx(half / scale, rel=1e-11, abs=1e-13)
    if memory == CLASSICAL:
        result = fields(patterns, states=states, diagonal=True)
        np.testing.assert_array_equal(result, states @ (patterns.T @ patterns))


@settings(deadline=None, max_examples=16, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(list(MEMORIES)), st.booleans())
def test_kernels_follow_the_plain_reference_flip_by_flip(seed, memory, diagonal):
    rng = np.random.default_rng(seed)
    diagonal = diagonal and memory == CLASSICAL
    patterns = spins(rng, 5, 17)
    queries = rng.choice([-1.0, 0.0, 1.0], (4, 17))
    options = {"separation": memory, "diagonal": diagonal, "seed": seed}
    states, flips, last = plain_retrieval(patterns, queries=queries, **options)
    first = [height(patterns, state, memory) for state in queries]
    fast = retrieve(patterns, queries=queries, max_steps=4, **options)
    assert (fast.states == states).all()
    assert (fast.flips == flips).all()
    result = fast.energies[:, [0, -1]].T
    np.testing.assert_allclose(result, [first, last], rtol=1e-11, atol=1e-9)


def test_counted_fields_are_the_sums_over_the_patterns():
    """Overlaps are counted first, and what is small beside the largest is not dropped too early."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        d = 40
        patterns = spins(rng, 30, d).astype(np.int8)
        state = spins(rng, d).astype(np.int8)
        product = (patterns @ state).astype(np.int64)
        # Overlaps of a spin's own and the others, in steps of two.
        product = (product // 2 * 2).astype(np.int64)
        gain = 0.3 ** np.arange(2 * d + 1)
        counts = np.zeros(2 * d + 1, dtype=np.int64)
        field = _counted_field(product, patterns[:, 0], state[0], gain, counts)
        places = d - product + patterns[:, 0] * state[0]
        # The first place whose signs do not cancel has the gain one.
        sums = {place: int(patterns[places == place, 0].sum()) for place in set(places.tolist())}
        first = min((place for place, total in sums.items() if total), default=0)
        wanted = sum(total * 0.3 ** (place - first) for place, total in sums.items())
        assert field == pytest.approx(wanted, rel=1e-13, abs=1e-13)
        assert not counts.any()


@pytest.mark.parametrize("memory", list(MEMORIES)[1:], ids=str)
@pytest.mark.claim("A5")
def test_no_asynchronous_flip_raises_the_energy(memory):
    rng = np.random.default_rng(7)
    flips = 0
    while flips < 25_000:
        patterns = spins(rng, 30, 150)
        result = retrieve(patterns, queries=spins(rng, 60, 150), separation=memory, seed=flips)
        assert result.rises.sum() == 0
        flips += int(result.flips.sum())


@pytest.mark.parametrize("unit", [1.0, 1e-20])
@pytest.mark.parametrize("relative", [False, True])
def test_rises_are_counted_where_the_energy_rises(relative, unit):
    """A sweep that is told the wrong sign of the gain climbs with every known spin it turns.

    In whatever unit the energy is.
    """
    rng = np.random.default_rng(32)
    patterns = spins(rng, 3, 12)
    states = spins(rng, 20, 12)
    states[0] = 0
    levels = np.arange(12.0, -13.0, -1.0)
    value = np.exp(levels - 12.0) if relative else levels**3
    gain = -value if relative else -np.pad(value[:-2] - value[2:], 1)
    spin = states.astype(np.int8)
    rises = np.zeros(20, dtype=np.int64)
    products = (states @ patterns.T).astype(np.int64)
    order = rng.permutation(12)
    bits = np.ascontiguousarray(patterns.T, dtype=np.int8)
    flips = _sweep_overlaps(bits, spin, products, order, gain, unit * value, relative, rises)
    assert (flips[1:] > 0).any()
    assert (rises[1:] == flips[1:]).all()
    assert (flips[0], rises[0]) == (12, 0)  # filling in an unknown spin is no rise
    assert (products == spin @ patterns.T).all()


def test_synchronous_updates_cycle_only_without_the_diagonal():
    rng = np.random.default_rng(8)
    cycles = 0
    for _ in range(20):
        patterns = spins(rng, 12, 60)
        queries = spins(rng, 40, 60)
        result = retrieve(patterns, queries=queries, schedule="synchronous")
        # Symmetric couplings: fixed points and 2-cycles, no more.
        assert (result.status != Status.STEP_LIMIT).all()
        cycles += result.count(Status.CYCLE)
        assert ((result.residual > 0) == (result.status == Status.CYCLE)).all()
        assert result.energies.shape[1] < 100  # seen cycles are not followed to the last sweep
        for q in range(3):  # a cycle stops where it is seen, whatever its neighbours do
            alone = retrieve(patterns, queries=queries[[q]], schedule="synchronous")
            assert (alone.states[0] == result.states[q]).all()
            assert (alone.steps[0], alone.flips[0]) == (result.steps[q], result.flips[q])
        twice = result.states
        for _ in range(2):
            field = twice @ hebbian_couplings(patterns)
            once = twice
            twice = np.where(field == 0, once, np.sign(field))
        assert (twice == result.states).all()
        turning = (once != twice).any(axis=1)
        assert (turning == (result.status == Status.CYCLE)).all()
        kept = retrieve(patterns, queries=queries, schedule="synchronous", diagonal=True)
        assert kept.converged.all()  # W is then positive semi-definite
        assert (np.diff(kept.energies, axis=1) <= 0).all()
    assert cycles > 30


@pytest.mark.parametrize("d", [60, 1600])
def test_exponential_memory_decides_ties_as_exact_arithmetic_does(d):
    """Two patterns one spin apart share a minimum; a third, e^{2−d} lighter, chooses it."""
    patterns = np.ones((3, d))
    patterns[1, 0] = -1
    patterns[2, : d // 2] = -1
    result = retrieve(patterns, queries=patterns[:2], separation=EXPONENTIAL, seed=2)
    assert (result.states == patterns[1]).all()
    # No double holds the e^1600 at the end, and none the ratio of start and end.
    damaged = patterns[[1]] * np.where(np.arange(d) % 15 < 6, -1.0, 1.0)
    for schedule in ("asynchronous", "synchronous"):
        kept = retrieve(patterns[1:2], queries=damaged, separation=EXPONENTIAL, schedule=schedule)
        assert (kept.states == patterns[1]).all()
        np.testing.assert_allclose(kept.energies[0, -1], -d)


def test_overlaps_that_no_state_has_are_asked_of_no_function():
    """Beyond ±d one's own may have no value; a state on its pattern is next to that."""
    bowl = Separation(name="bowl", function=lambda x: -np.sqrt(25.0 - x * x))
    patterns = spins(np.random.default_rng(3), 2, 5)
    states = np.concatenate([patterns, -patterns])
    result = fields(patterns, states=states, separation=bowl)
    for (q, i), field in np.ndenumerate(result):
        assert field == pytest.approx(halves(patterns, states[q], i, bowl), abs=1e-12)


def test_status_says_why_retrieval_stopped():
    rng = np.random.default_rng(31)
    patterns = spins(rng, 12, 80)
    queries = spins(rng, 200, 80)
    full = retrieve(patterns, queries=queries, seed=5)
    assert (full.status == Status.CONVERGED).all()
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
        retrieve(patterns, queries=queries, seed=5, max_steps=last).require("a fixed point")
    short = retrieve(patterns, queries=queries, schedule="synchronous", max_steps=1)
    assert (short.residual == (short.states != queries).sum(axis=1)).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x**2 + 0j, "return real numbers, got complex128"),
        (lambda x: np.where(x > 2, np.nan, x), "must be finite, spoilt gives NaN"),
        (lambda x: x.astype(str), "return real numbers"),
        (lambda x: x.sum(), "must act elementwise"),
        (lambda x: np.where(x > 2, np.inf, x), "finite|overflows"),
        (lambda x: np.ma.masked_less(x, 0), "return no masked entries"),
    ],
)
def test_what_a_separation_returns_is_checked(function, message):
    """By every function that takes one, and every schedule."""
    spoilt = Separation(name="spoilt", function=function)
    patterns = np.ones((1, 4))
    states = np.array([[1, 1, 1, -1]])
    calls = [
        lambda: energy(patterns, states=np.ones((1, 4)), separation=spoilt),
        lambda: fields(patterns, states=states, separation=spoilt),
        lambda: retrieve(patterns, queries=states, separation=spoilt),
        lambda: retrieve(patterns, queries=states, separation=spoilt, schedule="synchronous"),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=message):
            call()
