"""Attractors by identity: the same from another phase, different where two are known."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.c33d_phase_diagrams.basins import basins_of_attraction
from compendium.c33d_phase_diagrams.following import global_continuation, match_attractors
from compendium.c33d_phase_diagrams.identity import (
    Fingerprints,
    basins_fractions,
    by_frequency,
    fingerprints,
    identify,
    separation,
)
from compendium.c33d_phase_diagrams.starts import coexisting
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import SHORT_STRETCHES, Thresholds, find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network

NETWORK = Network.document()


def moved(context, steps, **parameters):
    """The same orbits, some whole turns of the clock later."""
    ensemble = Ensemble(NETWORK, context, **parameters)
    ensemble.advance(steps)
    return ensemble.state()


@pytest.fixture(scope="module")
def settled():
    """64 random contexts at β = 1.27, 60,000 steps later, with their exponents."""
    found = find_attractors(
        NETWORK,
        random_contexts(NETWORK, 0, count=64),
        beta=1.27,
        transient=60_000,
        kept=4000,
        exponents=1,
        exponent_steps=2000,
        bins=1,
        thresholds=SHORT_STRETCHES,
    )
    rates = found.exponents
    return found, Estimate(value=rates.value[:, 0], error=rates.error[:, 0])


def test_the_error_of_a_fingerprint_is_the_scatter_over_orbits_of_one_attractor():
    starts = random_contexts(NETWORK, 3, count=64)
    found = fingerprints(NETWORK, starts, beta=1.3, transient=4000, kept=4000)
    scatter = np.sqrt(found.moments.var(axis=0, ddof=1).mean())
    assert 0.8 < np.sqrt(np.mean(found.error**2)) / scatter < 1.25


def test_a_fingerprint_is_the_list_of_averages_over_a_period(settled):
    found, _ = settled
    prints = fingerprints(NETWORK, found.context, beta=1.27)
    assert found.context.position == 0
    orbit, _ = trajectory(NETWORK, found.context, beta=1.27, steps=112)
    for b in np.flatnonzero(np.isin(found.period, [16, 28, 56]))[:10]:
        whole = orbit[b, : found.period[b] * (112 // found.period[b])]
        for phase in range(4):
            seen = whole[phase::4]
            pairs = [seen[:, a] * seen[:, c] for a in range(3) for c in range(a, 3)]
            wanted = np.concatenate([seen.mean(axis=0), np.mean(pairs, axis=1)])
            np.testing.assert_allclose(prints.moments[b, phase], wanted, atol=2e-9)


def test_a_stretch_of_whole_periods_does_not_hide_its_error(settled):
    """Stretches of 28 turns hold four periods of a cycle of 28 steps and would all say the same."""
    found, _ = settled
    cycles = found.context.select(np.flatnonzero(found.period == 28)[:4])
    prints = fingerprints(NETWORK, cycles, beta=1.27, kept=4 * 4 * 28)
    exact = fingerprints(NETWORK, cycles, beta=1.27, kept=40_000)
    off = separation(prints, other=exact)
    assert (off > 1e-9).all()
    assert (prints.error > 0.2 * off).all()


def test_another_phase_of_an_orbit_is_the_same_attractor(settled):
    found, rate = settled
    numbers = identify(fingerprints(NETWORK, found.context, beta=1.27), exponent=rate)
    assert set(zip(numbers, found.period, strict=True)) == {
        (n, p) for n, p in zip((0, 1, 2), (28, 56, 16), strict=True) if p in found.period
    }
    later = fingerprints(NETWORK, moved(found.context, 12, beta=1.27), beta=1.27)
    both = Fingerprints(
        moments=np.concatenate(
            [fingerprints(NETWORK, found.context, beta=1.27).moments, later.moments]
        ),
        error=np.tile(later.error, 2),
        context=later.context,
    )
    again = identify(both)
    assert (again[:64] == again[64:]).all()
    assert (again[:64] == numbers).all()
    # And from a start of the survey that is no multiple of the clock's turn.
    odd = fingerprints(NETWORK, moved(found.context, 3, beta=1.27), beta=1.27)
    assert odd.context.position == 3
    assert separation(later, other=odd).max() < 1e-8


def test_the_clock_is_part_of_the_state():
    # Where the clock drives, averages differ from position to position, and an orbit whose windows
    # are the same ones at other positions would be another one.
    start = moved(random_contexts(NETWORK, 3, count=4), 4000, beta=1.0)
    late = fingerprints(NETWORK, start, beta=1.0)
    assert separation(late, other=late.select(0)).max() < 1e-9
    turned = Fingerprints(
        moments=np.roll(late.moments, 1, axis=1), error=late.error, context=late.context
    )
    assert separation(late, other=turned).min() > 1e-4
    # An orbit of the undriven network does not know the position.
    free = {"beta": 1.3, "epsilon": 0.0, "gamma": 10.0}
    begun = moved(random_contexts(NETWORK, 3, count=4), 20_000, **free)
    one, other = (
        fingerprints(NETWORK, Context(begun.attention, position), kept=8000, **free)
        for position in (0, 1)
    )
    assert np.ptp(one.moments, axis=1).max() == 0.0
    assert separation(one, other=other).max() < 1e-9


def test_mirror_images_without_a_drive_are_two_attractors():
    # At ε = 0 the sign of all attention vectors is free; at β = 3 the state is magnetized or
    # cycles, and its image has the opposite means and the same squares.
    free = {"beta": 3.0, "epsilon": 0.0}
    start = moved(random_contexts(NETWORK, 1, count=16), 20_000, **free)
    image = Context(-start.attention, start.position)
    one, other = (fingerprints(NETWORK, context, **free) for context in (start, image))
    np.testing.assert_allclose(other.moments[..., :3], -one.moments[..., :3], atol=1e-9)
    np.testing.assert_allclose(other.moments[..., 3:], one.moments[..., 3:], atol=1e-9)


def test_two_cycles_of_one_period_are_told_apart():
    found = coexisting(1.527, gamma=14.7, count=64, transient=20_000)
    assert found.names == ["periodic 28", "periodic 28"]
    assert found.between > 1e6 * found.within
    # Their sets share no window.
    one, other = found.sets
    gaps = np.linalg.norm(one[:, None] - other[None], axis=-1)
    assert len(one) == len(other) == 7
    assert gaps.min() > 1e-2


def test_chaos_is_one_attractor_and_not_the_cycle_beside_it():
    found = coexisting(1.28, count=48, transient=4000)
    assert found.names == ["chaotic"]
    assert (found.numbers == 0).all()
    # At 1.2752 strong chaos is a transient beside weak chaos and a cycle of 224 steps.
    near = coexisting(1.2752, count=48, transient=120_000)
    assert "chaotic" in near.names
    assert "periodic 224" in near.names
    assert len(near.names) == 3


def made(moments, errors):
    moments = np.asarray(moments, float)
    return Fingerprints(
        moments=moments[:, None, None],
        error=np.asarray(errors, float),
        context=Context(np.zeros((len(moments), 1, 1)), 0),
    )


def test_what_is_the_same_within_errors():
    prints = made([0.0, 5e-5, 0.01, 0.012, 0.5], [0.0, 0.0, 1e-3, 1e-3, 0.0])
    assert identify(prints).tolist() == [0, 0, 1, 1, 2]
    assert identify(prints, distance=1e-5, sigmas=0.5).tolist().count(-1) == 0
    assert len(set(identify(prints, distance=1e-5, sigmas=0.5))) == 5
    # An orbit that agrees with two is on neither.
    assert identify(made([0.0, 0.01, 0.005], [0.0, 0.0, 0.002])).tolist() == [0, 1, -1]
    # The same averages and another growth: another attractor.
    rate = Estimate(value=np.array([0.0, 0.1]), error=np.array([1e-4, 1e-3]))
    assert identify(made([0.0, 0.0], [1e-6, 1e-3]), exponent=rate).tolist() == [0, 1]
    close = Estimate(value=np.array([0.0, 0.007]), error=np.zeros(2))
    assert identify(made([0.0, 0.0], [0.0, 0.0]), exponent=close).tolist() == [0, 0]
    # Chaotic orbits that dwelt in two parts are joined by a third that saw both.
    chaos = Estimate(value=np.full(3, 0.1), error=np.full(3, 1e-3))
    parts = made([0.0, 0.05, 0.025], [1e-3, 1e-3, 8e-3])
    assert identify(parts, exponent=chaos).tolist() == [0, 0, 0]
    assert identify(parts).tolist() == [0, 1, -1]


def test_numbers_go_by_frequency_and_shares_have_intervals():
    assert by_frequency(np.array([7, 3, 3, -1, 7, 3])).tolist() == [1, 0, 0, -1, 1, 0]
    found = basins_fractions(np.array([0] * 8 + [-1] * 2))
    assert found[0].share == 0.8
    assert found[-1].orbits == 2
    # Wilson's interval solves (p − 0.8)² = z² p(1 − p)/n.
    z = 1.959963984540054
    for end in (found[0].low, found[0].high):
        assert (end - 0.8) ** 2 == pytest.approx(z**2 * end * (1 - end) / 10)


def test_intervals_of_shares_hold_what_a_large_sample_gives():
    found = coexisting(1.27, count=256, transient=30_000)
    drawn = random_contexts(NETWORK, 11, count=4096)
    ends = basins_of_attraction(NETWORK, drawn, beta=1.27, sets=found.sets, horizon=60_000)
    assert (ends.number >= 0).all()
    blocks = ends.number.reshape(32, 128)
    for number in (0, 1):
        truth = (ends.number == number).mean()
        held = [
            block[number].low < truth < block[number].high
            for block in map(basins_fractions, blocks)
        ]
        # 95 % of 32 are 30.4; fewer than 27 has a chance of one in a hundred.
        assert sum(held) >= 27
        own = basins_fractions(found.numbers)[number]
        assert own.low < truth < own.high


def test_matching_takes_the_nearest_pairs_within_reach():
    before = made([0.0, 0.1, 0.2], [0.0] * 3)
    after = made([0.19, 0.012, 0.7], [0.0] * 3)
    assert match_attractors(before, after=after, reach=0.05).tolist() == [2, 0, -1]
    assert match_attractors(before, after=after, reach=0.011).tolist() == [2, -1, -1]
    # One partner each: the nearer one gets it.
    assert match_attractors(
        made([0.0], [0.0]), after=made([0.01, 0.005], [0.0, 0.0]), reach=0.05
    ).tolist() == [-1, 0]


def test_names_last_as_long_as_attractors():
    # The cycle of 16 steps lives above 1.2686 only, those of 28 and 56 on both sides.
    starts = random_contexts(NETWORK, 0, count=64)
    betas = np.array([1.27, 1.2695, 1.269, 1.268])
    found = global_continuation(
        NETWORK, starts, betas, thresholds=SHORT_STRETCHES, reach=0.02, transient=30_000
    )
    first = {int(p): int(n) for n, p in zip(found.name, found.period, strict=True)}
    at = {beta: set(found.name[found.beta == beta]) for beta in betas}
    names = {
        period: int(found.name[(found.beta == 1.27) & (found.period == period)][0])
        for period in set(found.period[found.beta == 1.27])
    }
    assert 28 in first
    assert names[28] in at[1.268]
    sixteen = found.name[found.period == 16]
    if len(sixteen):
        assert not set(sixteen) & at[1.268]
    for beta in betas:
        here = found.beta == beta
        lost = found.unresolved[list(betas).index(beta)]
        assert found.orbits[here].sum() + lost == found.trials == 64
        assert (found.low[here] <= found.orbits[here] / 64).all()
    # Every state handed on is on its attractor: a further turn of the period returns to it.
    cycles = np.flatnonzero(found.period == 28)
    for entry in cycles:
        context = found.context.select(int(entry))
        assert context.position == starts.position
        after = moved(context, 28, beta=float(found.beta[entry])).attention
        assert np.abs(after - context.attention).max() < 1e-6


def test_bad_calls():
    starts = random_contexts(NETWORK, 0, count=2)
    with pytest.raises(ValueError, match="turns of the clock"):
        fingerprints(NETWORK, starts, beta=1.0, kept=16)
    with pytest.raises(ValueError, match="distance"):
        identify(made([0.0], [0.0]), distance=-1.0)
    with pytest.raises(ValueError, match=r"exponent\.value"):
        identify(made([0.0], [0.0]), exponent=Estimate(value=np.zeros(2), error=np.zeros(2)))
    with pytest.raises(ValueError, match="context"):
        global_continuation(
            NETWORK, starts.select(0), np.array([1.0]), thresholds=Thresholds(), reach=0.1
        )
