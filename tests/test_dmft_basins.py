"""Attractors and basins of maps with known answers and of networks of one's own."""

import numpy as np
import pytest

from spinformer.dmft import Context, Map, Network, Regime, find_attractors, trajectory
from spinformer.dmft.attractor_continuation import continue_attractors
from spinformer.dmft.basins import (
    basin_fractions,
    basins_of_attraction,
    draw_starts,
    find_coexisting_attractors,
)
from spinformer.dmft.mean_field import START_LAWS, random_contexts

FERROMAGNET = Map(step=lambda x, g: np.tanh(g * x), dimension=1, parameters={"g": 1.5})


def henon(a):
    return Map(
        step=lambda x, a, b: np.array([1.0 - a * x[0] ** 2 + x[1], b * x[0]]),
        dimension=2,
        parameters={"a": a, "b": 0.3},
    )


def spread(rng, count):
    """Three quarters of the starts above zero."""
    return rng.uniform(-1.0, 3.0, (count, 1))


def test_regimes_and_exponents_of_maps():
    """Hénon's λ₁ + λ₂ = ln b and λ₁ = 0.4192 at a = 1.4; a closed curve; what leaves is told."""
    short = {"transient": 4000, "kept": 4000, "exponent_steps": 8000}
    found = find_attractors(henon(1.4), [0.1, 0.1], a=np.array([0.3, 0.7, 1.4, 2.0]), **short)
    assert found.regime.tolist() == [
        Regime.PERIODIC, Regime.PERIODIC, Regime.CHAOTIC, Regime.UNDECIDED,
    ]  # fmt: skip
    assert found.period.tolist() == [1, 2, 0, 0]
    rates = found.exponents.value
    assert rates[2, 0] == pytest.approx(0.4192, abs=0.012)
    np.testing.assert_allclose(rates[:3].sum(axis=1), np.log(0.3), atol=1e-9)
    assert found.advice()[3] == "the orbit left for infinity"
    assert set(found.advice()[:3]) == {""}
    delayed = Map(
        step=lambda x, r: np.array([r * x[0] * (1.0 - x[1]), x[0]]),
        dimension=2,
        parameters={"r": 2.05},
    )
    curve = find_attractors(delayed, [0.5, 0.45], transient=20_000)
    assert curve.regime == Regime.QUASI_PERIODIC
    assert curve.digits > 8.0


def test_an_orbit_on_an_unstable_fixed_point_is_told_to_start_elsewhere():
    """m = 0 of m' = tanh(1.5 m) is kept for ever, and no longer run would leave it."""
    found = find_attractors(FERROMAGNET, [0.0], transient=100, kept=400, exponent_steps=400)
    assert found.regime == Regime.UNDECIDED
    assert "start beside it" in str(found.advice())
    still = find_attractors(
        Network.poclopez2024(), Context(np.zeros((4, 3)), 0), beta=2.0, epsilon=0.0,
        transient=100, kept=400, exponent_steps=400,
    )  # fmt: skip
    assert "start beside it" in str(still.advice())


def test_the_standard_map_has_both_islands_and_chaos():
    standard = Map(
        step=lambda x, k: np.array(
            [
                (x[0] + x[1] + k * np.sin(x[0])) % (2 * np.pi),
                (x[1] + k * np.sin(x[0]) + np.pi) % (2 * np.pi) - np.pi,
            ]
        ),
        dimension=2,
        parameters={"k": 1.5},
        jacobian=lambda x, k: np.array([[1 + k * np.cos(x[0]), 1.0], [k * np.cos(x[0]), 1.0]]),
    )
    starts = np.array([[np.pi + 0.3, 0.0], [0.05, 0.0]])
    found = find_attractors(standard, starts, transient=100, kept=20_000, exponent_steps=4000)
    np.testing.assert_allclose(found.exponents.value.sum(axis=1), 0.0, atol=1e-9)
    assert found.digits[0] > 8.0
    assert found.regime[1] == Regime.CHAOTIC


def test_undecided_orbits_say_what_to_run_longer():
    network = Network.poclopez2024()
    start = random_contexts(network, 0, count=1).select(0)
    hasty = {"transient": 50, "kept": 400, "exponent_steps": 400, "bins": 1}
    found = find_attractors(network, start, beta=np.linspace(1.20, 1.30, 40), **hasty)
    words = found.advice()
    undecided = found.regime == Regime.UNDECIDED
    assert undecided.any()
    assert all(("raise" in word) == open for word, open in zip(words, undecided, strict=True))
    longer = find_attractors(network, start, beta=1.21, transient=60_000)
    assert longer.advice() == ""
    blind = find_attractors(network, start, beta=1.28, exponents=0, **(hasty | {"kept": 40}))
    assert "exponents=1" in str(blind.advice())


def test_two_attractors_their_basins_and_the_law_of_the_starts():
    found = find_coexisting_attractors(
        FERROMAGNET, spread, count=400, transient=300, exponent_steps=400
    )
    assert found.labels == ["periodic 1", "periodic 1"]
    m = found.sets[0][0, 0]
    assert m > 0.0
    assert m == pytest.approx(np.tanh(1.5 * m), abs=1e-12)
    line = np.array([-0.5, -1e-3, 1e-3, 0.5])[:, None]
    ends = basins_of_attraction(FERROMAGNET, line, sets=found.sets, horizon=2000)
    assert ends.tolist() == [1, 1, 0, 0]
    for law, expected in ((spread, 0.75), (lambda rng, n: rng.uniform(-3, 1, (n, 1)), 0.25)):
        share = basin_fractions(FERROMAGNET, law, sets=found.sets, count=2000, horizon=2000)
        assert abs(share.value[0] - expected) < 4 * share.error[0]
        assert share.value.sum() == 1.0
        assert share.error[0] == pytest.approx(np.sqrt(expected * (1 - expected) / 2000), rel=0.1)
    # Between the two, or far from all, nothing is reached in time.
    none = basins_of_attraction(FERROMAGNET, [[0.0]], sets=found.sets, horizon=500)
    assert none.tolist() == [-1]


def test_basins_of_a_map_that_leaves_for_infinity():
    map_ = henon(0.3)
    found = find_coexisting_attractors(
        map_, np.array([[0.1, 0.1], [0.2, 0.0]]), transient=500, exponent_steps=200
    )
    assert found.labels == ["periodic 1"]
    ends = basins_of_attraction(map_, [[0.1, 0.1], [9.0, 9.0]], sets=found.sets, horizon=1000)
    assert ends.tolist() == [0, -1]


def test_the_basin_of_chaos_beside_infinity():
    """Of a box of starts of Hénon's map fewer than half stay: counted by plain iteration, too."""
    starts = np.random.default_rng(0).uniform(-2.0, 2.0, (60, 2))
    x, y = starts.T
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(2000):
            x, y = 1.0 - 1.4 * x**2 + y, 0.3 * x
    stays = np.isfinite(x)
    assert 15 < stays.sum() < 45
    found = find_coexisting_attractors(henon(1.4), starts, transient=1000)
    assert found.labels == ["chaotic"]
    assert (found.numbers == np.where(stays, 0, -1)).all()
    assert found.fractions.value[0] == stays.mean()
    # No orbit on a chaotic attractor comes back to 512 states of it in time.
    ends = basins_of_attraction(henon(1.4), starts, sets=found.sets, horizon=500)
    assert (ends == np.where(stays, 0, -1)).all()
    share = basin_fractions(henon(1.4), starts, sets=found.sets, horizon=500)
    assert share.value[0] == stays.mean()
    # Averages do not make a fixed point of what is none.
    both = [found.sets[0], np.array([[30.0, 30.0]])]
    assert (basins_of_attraction(henon(1.4), starts, sets=both, horizon=500) == ends).all()
    with pytest.raises(ValueError, match="stays finite"):
        find_coexisting_attractors(henon(1.4), starts[~stays], transient=1000)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda x, g: np.tanh(g * x / (1.0 + (x**2).sum())), "as if it were alone"),
        (lambda x, g: np.tanh(g * x - x.mean()), "as if it were alone"),
        (lambda x, g: np.tanh(g * x) + np.array([0.1, 0.2]), "one a column"),
        (lambda x, g: np.tanh(g * x) + np.ones(3), "shape"),
    ],
)
def test_a_step_that_mixes_states_is_refused(step, text):
    """It would move a state otherwise in a batch than alone."""
    mixed = Map(step=step, dimension=2, parameters={"g": 2.0})
    with pytest.raises(ValueError, match=text):
        find_attractors(mixed, [0.1, 0.2], g=np.array([1.0, 2.0]), transient=10)
    with pytest.raises(ValueError, match=text):
        find_coexisting_attractors(mixed, np.ones((2, 2)), transient=10)


def test_continued_attractors_keep_their_numbers_and_fractions():
    """Below g = 1 one attractor, above it two, with the fractions of the law."""
    found = continue_attractors(
        FERROMAGNET, spread, parameter="g", values=[0.8, 1.2, 1.25, 1.3], count=200,
        transient=2000, exponent_steps=400, threshold=0.4,
    )  # fmt: skip
    assert found.fractions[0].max() == 1.0
    assert (found.fractions[1:] > 0).sum(axis=1).tolist() == [2, 2, 2]
    kept = found.fractions[1:]
    # The same columns at all values above, three quarters and one quarter.
    assert (kept.argmax(axis=1) == kept.argmax(axis=1)[0]).all()
    np.testing.assert_allclose(kept.max(axis=1), 0.75, atol=0.1)
    assert (found.unresolved == 0.0).all()
    # Of each fraction its binomial error; where an attractor is not, no label.
    errors = np.sqrt(found.fractions * (1.0 - found.fractions) / 200)
    np.testing.assert_allclose(found.errors, errors)
    assert found.labels == [["periodic 1" if x else "" for x in row] for row in found.fractions]


def test_the_fraction_of_a_basin_depends_on_the_law_of_the_contexts():
    """At β = 1.26451 narrow starts all end on the cycle of 44 steps, wide ones almost all."""
    network = Network.poclopez2024()
    wide = find_coexisting_attractors(network, "uniform", count=64, beta=1.26451)
    assert "periodic 44" in wide.labels
    at = wide.labels.index("periodic 44")
    share = basin_fractions(network, "narrow", sets=wide.sets, count=64, beta=1.26451)
    assert share.value[at] == 1.0


def test_laws_of_contexts():
    network = Network.poclopez2024()
    sizes = {law: random_contexts(network, 0, count=4000, law=law).attention for law in START_LAWS}
    assert np.abs(sizes["uniform"]).max() <= 1.0
    assert 0.04 < np.abs(sizes["narrow"]).max() <= 0.05
    np.testing.assert_array_equal(sizes["narrow"], 0.05 * sizes["uniform"])
    assert sizes["normal"].std() == pytest.approx(sizes["uniform"].std(), rel=0.1)
    with pytest.raises(ValueError, match="law"):
        random_contexts(network, 0, count=4, law="cauchy")


def test_basins_of_a_network_of_ones_own():
    """Real weights, eight positions, a window of six: fingerprints and proximity agree."""
    rng = np.random.default_rng(5)
    network = Network(
        semantic=rng.normal(size=(4, 5, 4)),
        position=rng.normal(size=(4, 5, 3)),
        context=6,
        gamma=20.0,
        epsilon=0.02,
    )
    found = find_coexisting_attractors(network, "uniform", count=48, beta=1.5, transient=20_000)
    assert found.between > 10 * found.within
    starts = draw_starts(network, "uniform", count=48)
    regular = [at for at, label in enumerate(found.labels) if label.startswith("periodic")]
    assert regular
    ends = basins_of_attraction(network, starts, sets=[found.sets[at] for at in regular], beta=1.5)
    for place, at in enumerate(regular):
        assert (ends[found.numbers == at] == place).all()
    # Every set is left nowhere by plain iteration.
    one = found.sets[regular[0]]
    context = Context(one[0].reshape(6, 5), 0)
    _, later = trajectory(network, context, beta=1.5, steps=0, transient=8 * len(one))
    assert np.abs(later.attention.ravel() - one[0]).max() < 1e-7


def test_what_does_not_fit_is_refused_by_name():
    for call, word in (
        (lambda: draw_starts(FERROMAGNET, "uniform", count=3), "starts"),
        (lambda: basins_of_attraction(FERROMAGNET, [[0.0]], sets=[]), "sets"),
        (lambda: find_attractors(FERROMAGNET, [0.1], h=1.0), "h is no parameter"),
        (lambda: find_attractors(FERROMAGNET, [0.1, 0.2]), "start"),
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            call()
