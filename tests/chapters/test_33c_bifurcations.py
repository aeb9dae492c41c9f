"""Units of the stored tables made again, and the end of the closed curve by plain means."""

import numpy as np
import pytest

from compendium.c33c_bifurcations.cycles import cycle
from compendium.c33c_bifurcations.rotation import rotation_number
from compendium.c33c_bifurcations.study import (
    CYCLES,
    ON_CURVE,
    STAIRCASE,
    TONGUES,
    closed_curve,
    family_branches,
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


@pytest.mark.nightly
def test_one_branch_of_56_steps_leaves_the_other_at_a_flip():
    table = CYCLES.read()
    flips = table["at"][(table["family"] == "28") & (table["kind"] == "flip")]
    for family in ("56 doubled", "56 other"):
        lowest = table["at"][table["family"] == family].min()
        assert np.abs(flips - lowest).min() < 1e-5
    # Where it leaves, both halves of the doubled cycle are one.
    down = family_branches("56 other")[1]
    at = int(np.argmin(down.values))
    start, beta = down.context.select(at), float(down.values[at])
    _, after = trajectory(NETWORK, start, beta=beta, steps=0, transient=28)
    assert np.abs(after.attention - start.attention).max() < 0.02


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
    turns = rotation_number(points[:, ::4]).turns
    assert (turns.error < 1e-5).all()


def parting(context, beta, steps):
    """Growth of a distance of 1e-9 in some steps."""
    twin = Context(context.attention + 1e-9, context.position)
    ends = [trajectory(NETWORK, c, beta=beta, steps=0, transient=steps)[1] for c in (context, twin)]
    gap = ends[1].attention - ends[0].attention
    return np.linalg.norm(gap, axis=(1, 2)) / (1e-9 * np.sqrt(12))


@pytest.mark.nightly
def test_the_curve_does_not_end_on_the_saddle_of_28_steps():
    down = family_branches("28")[1]
    saddles = np.flatnonzero(np.arange(len(down.values)) >= np.argmin(down.values))
    betas = np.array([1.2671, 1.2675])
    curves, _ = strobed(NETWORK, closed_curve(betas), beta=betas, count=1000)
    for beta, curve in zip(betas.tolist(), curves, strict=True):
        near = saddles[np.argmin(np.abs(down.values[saddles] - beta))]
        saddle = cycle(NETWORK, down.context.select(int(near)), beta=beta, period=28)
        assert not saddle.stable
        flash, _ = strobed(NETWORK, saddle.value, beta=beta, count=7)
        assert np.linalg.norm(curve[:, None] - flash, axis=-1).min() > 0.02
