"""Units of the stored tables made again, and the end of the closed curve by plain means."""

import numpy as np
import pytest

from compendium.c33b_lifetimes.switching import settled_cycle
from compendium.c33c_bifurcations.cycles import (
    Kind,
    bifurcation,
    cycle,
    follow_bifurcation,
    follow_cycle,
)
from compendium.c33c_bifurcations.rotation import rotation_number
from compendium.c33c_bifurcations.study import (
    ON_CURVE,
    STAIRCASE,
    TONGUES,
    closed_curve,
    driven_cycle,
)
from spinformer.dmft.attractors import strobed
from spinformer.dmft.mean_field import document_context, trajectory
from spinformer.dmft.network import Context, Network

NETWORK = Network.document()


def test_windows_stand_in_the_order_of_farey():
    table = TONGUES.read()
    order = np.argsort(table["low"])
    turns = (table["p"] / table["q"])[order]
    assert (np.diff(turns) > 0).all()
    width = {(p, q): w for p, q, w in zip(table["p"], table["q"], table["width"], strict=True)}
    np.testing.assert_allclose(table["width"], table["high"] - table["low"], rtol=1e-2, atol=2e-9)
    for (p, q), (r, s) in (((1, 4), (3, 11)), ((1, 4), (4, 15))):
        assert abs(p * s - r * q) == 1
        assert width[p + r, q + s] < min(width[p, q], width[r, s])


@pytest.mark.nightly
def test_the_staircase_made_again():
    table = STAIRCASE.read()
    short = {"count": 1, "flashes": 1500, "steps": 6000, "transient": 12_000}
    for row in (100, 700):
        beta = float(table["beta"][row])
        (again,) = STAIRCASE.rows(beta, high=beta, **short)
        assert float(again["rotation"]) == pytest.approx(table["rotation"][row], abs=2e-6)
        assert again["extent"] == pytest.approx(table["extent"][row], abs=2e-3)
        assert again["first"] == pytest.approx(table["first"][row], abs=2e-3)
        assert again["second"] == pytest.approx(table["second"][row], abs=3e-3)


def test_long_runs_lock_inside_of_the_windows_and_nowhere_near():
    staircase, tongues = STAIRCASE.read(), TONGUES.read()
    here = staircase["extent"] < ON_CURVE
    for p, q, low, high in zip(*(tongues[k] for k in ("p", "q", "low", "high")), strict=True):
        # At the ends of two windows an unlocked curve or the next window lies beside the cycle.
        share = (staircase["beta"] - low) / (high - low)
        inside = here & (share > 0.1) & (share < 0.6)
        if q <= 46 and inside.any():
            np.testing.assert_allclose(staircase["rotation"][inside], p / q, atol=2e-9)
        below = here & (staircase["beta"] < low) & (staircase["beta"] > low - 1e-5)
        assert not np.isclose(staircase["rotation"][below], p / q, atol=1e-9).any()


def branch(beta, *, period, step, max_steps):
    """Downwards in β, then upwards, from where runs end."""
    start = settled_cycle(beta, period=period)
    within = (1.245, 1.285)
    return [
        follow_cycle(NETWORK, start, step=sign * step, within=within, max_steps=max_steps)
        for sign in (-1, 1)
    ]


def events(branches, kind):
    return [x for one in branches for x in one.bifurcations if x.kind == kind]


@pytest.mark.nightly
def test_the_cycle_of_28_steps_and_its_doublings():
    """What the chapter says of them, and that the closed curve does not end on its saddle."""
    whole = branch(1.27, period=28, step=2e-4, max_steps=200)
    folds = [fold.beta for fold in events(whole, Kind.FOLD)]
    assert len(folds) == 7
    assert min(folds) == pytest.approx(1.26696, abs=1e-5)
    flips = events(whole, Kind.FLIP)
    for beta, ends in ((1.268, (1.26756, 1.26869)), (1.27, (1.269385,))):
        doubled = branch(beta, period=56, step=5e-5, max_steps=45)
        values = np.concatenate([one.values for one in doubled])
        assert values.min() == pytest.approx(ends[0], abs=1e-5)
        for end in ends:
            flip = min(flips, key=lambda one: abs(one.beta - end))
            assert flip.beta == pytest.approx(end, abs=1e-5)
        if len(ends) == 2:
            assert values.max() == pytest.approx(ends[1], abs=1e-5)
    # Where the other leaves, that of 28 is unstable, and both halves of the doubled one are one.
    at = int(np.argmin(doubled[0].values))
    start, beta = doubled[0].context.select(at), float(doubled[0].values[at])
    assert abs(flip.multipliers[0]) > 1.1
    _, after = trajectory(NETWORK, start, beta=beta, steps=0, transient=28)
    assert np.abs(after.attention - start.attention).max() < 0.02
    down = whole[0]
    saddles = np.arange(np.argmin(down.values), len(down.values))
    betas = np.array([1.2671, 1.2675])
    curves, _ = strobed(NETWORK, closed_curve(betas), beta=betas, count=1000)
    for beta, curve in zip(betas.tolist(), curves, strict=True):
        near = saddles[np.argmin(np.abs(down.values[saddles] - beta))]
        saddle = cycle(NETWORK, down.context.select(int(near)), beta=beta, period=28)
        assert np.abs(saddle.multipliers[0]) > 1.0
        flash, _ = strobed(NETWORK, saddle.value, beta=beta, count=7)
        assert np.linalg.norm(curve[:, None] - flash, axis=-1).min() > 0.02


def test_resonances_of_the_onset_and_where_the_driven_cycle_flips_first():
    """What the chapter says of larger ε."""
    start = bifurcation(NETWORK, driven_cycle(1.25), kind=Kind.TORUS)
    rows = follow_bifurcation(NETWORK, start, name="epsilon", values=np.arange(20, 240) / 1000)
    turns = {round(1000 * epsilon): turn for _, epsilon, turn in rows}
    assert turns[30] == pytest.approx(1 / 4, abs=1e-3)
    assert turns[84] == pytest.approx(1 / 3, abs=1e-3)
    # At half a turn the curve ends.
    assert 0.44 < rows[-1, 2] < 0.5
    for epsilon, kind in ((0.17, Kind.TORUS), (0.19, Kind.FLIP)):
        there = NETWORK.with_parameters(epsilon=epsilon)
        first = cycle(there, Context(np.zeros((4, 3)), 0), beta=0.8, period=4)
        met = follow_cycle(there, first, step=0.01, within=(0.8, 1.5)).bifurcations
        assert met[0].kind == kind


@pytest.mark.claim("C9b")
def test_the_closed_curve_outlives_the_jump_of_the_protocol():
    """By finite differences of two orbits, no tangent map: on the curve they part linearly."""
    document = document_context(NETWORK)
    after, _ = trajectory(
        NETWORK, document, beta=np.array([1.2652, 1.2656]), steps=4000, transient=100_000
    )
    extent = np.ptp(after[:, ::4, 0], axis=1)
    assert extent[1] > 3 * extent[0]
    betas = np.array([1.2660, 1.2671])
    curve = closed_curve(betas, transient=20_000)
    points, _ = trajectory(NETWORK, curve, beta=betas, steps=16_000)
    assert (np.ptp(points[:, ::4, 0], axis=1) < 0.21).all()
    growth = parting(curve, betas, steps=20_000)
    # An exponent of 0.001 would give e^20.
    assert (np.log(growth) / 20_000 < 0.0005).all()
    wild = parting(Context(document.attention[None], document.position), np.array([1.28]), 2000)
    assert np.log(wild[0]) / 2000 > 0.005
    turns = rotation_number(points[:, ::4])
    assert (turns.error < 1e-5).all()


def parting(context, beta, steps):
    """Growth of a distance of 1e-9 in some steps."""
    twin = Context(context.attention + 1e-9, context.position)
    ends = [trajectory(NETWORK, c, beta=beta, steps=0, transient=steps)[1] for c in (context, twin)]
    gap = ends[1].attention - ends[0].attention
    return np.linalg.norm(gap, axis=(1, 2)) / (1e-9 * np.sqrt(12))
