"""What chapter 33 computes beyond the theory, and the diagrams that it draws."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from open_cells import run_open_cells

from bookmaker.claims import read_claims
from compendium.c33_phase_transitions import settings, study
from compendium.c33_phase_transitions.orbits import _orbit_image, show_orbit_diagram
from compendium.c33_phase_transitions.study import shares_table
from compendium.common.drawing import REGIME_COLORS
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import Attractors, Regime, find_attractors
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import START_LAWS, random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.regimes import count_regimes, regime_label
from spinformer.plot.style import COLORS

ROOT = Path(__file__).resolve().parents[2]


def test_the_open_cells_are_the_map_and_find_its_exponents():
    shown = run_open_cells("33_phase_transitions")
    network = Network.poclopez2024()
    window = np.random.default_rng(4).uniform(-1, 1, (4, 3))
    for position in range(4):
        following, _ = step(network, Context(window, position), 1.27)
        # Later by whole periods of the positional code it is the same map.
        for t in (position, position + 8):
            np.testing.assert_allclose(
                shown["step"](window, t, 1.27), following.attention, rtol=0, atol=1e-13
            )
    cycle, curve, chaos = shown["exponents"].values()
    start = random_contexts(network, 0, count=1)
    known = lyapunov_spectrum(network, start, beta=1.2, steps=4000, transient=2000, count=1)
    assert cycle == pytest.approx(known.exponents.value.item(), abs=2e-4)
    assert abs(curve) < 2e-3
    assert 0.1 < chaos < 0.2


def made(regime, period, histogram, section):
    zeros = np.zeros((len(regime), 2))
    return Attractors(
        regime=np.array(regime),
        period=np.array(period),
        exponents=Estimate(value=zeros, error=zeros),
        digits=zeros[:, 0],
        histogram=np.array(histogram),
        section=np.array(section),
        context=Context(np.zeros((len(regime), 4, 3)), 0),
    )


def test_a_census_counts_regimes_and_periods():
    found = made([2, 0, 0, 1, 0, 2], [0, 4, 28, 0, 4, 0], np.zeros((6, 1)), np.zeros((6, 1)))
    counted = count_regimes(found)
    named = [(regime_label(*kind), count) for kind, count in counted.items()]
    assert named == [("periodic 4", 2), ("periodic 28", 1), ("quasi-periodic", 1), ("chaotic", 2)]


def test_colors_of_an_orbit_diagram():
    # One β a column; cell 0 visited by the orbit, cell 1 also by the section, cell 2 by nothing.
    regimes = [Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC, Regime.UNDECIDED]
    found = made(regimes, [4, 0, 0, 0], [[2, 2, 0]] * 4, [[0, 1, 0]] * 4)
    # A diagram of a single β can be drawn, too.
    for betas in (np.linspace(1.2, 1.3, 4), np.full(4, 1.3)):
        figure = show_orbit_diagram(found, beta=betas)
        figure.canvas.draw()
        left, right = figure.axes[0].get_xlim()
        assert left < right
        assert figure.legends
        plt.close(figure)
    image = _orbit_image(found, rows=3)
    assert image.shape == (3, 4, 3)
    assert (image[2] == 1.0).all()
    assert (image[:2, 0] == 0.0).all()
    pale = 0.65 + 0.35 * np.array(to_rgb(COLORS["yellow"]))
    for column, regime in enumerate(regimes[1:], start=1):
        assert image[0, column] == pytest.approx(pale)
        assert image[1, column] == pytest.approx(to_rgb(REGIME_COLORS[regime]))
    # Beyond 900 columns and where there are fewer rows, what one of a group visited is drawn.
    visits = np.zeros((1800, 4), dtype=int)
    visits[::4, 3] = 5
    image = _orbit_image(made([Regime.PERIODIC] * 1800, [4] * 1800, visits, visits), rows=2)
    assert image.shape == (2, 900, 3)
    assert (image[1, ::2] == 0.0).all()
    assert (image[1, 1::2] == 1.0).all()
    assert (image[0] == 1.0).all()


@pytest.mark.nightly
def test_stored_shares_are_those_of_fewer_columns():
    # Eight or so of the values of each range, at full length, from the same grid of β.
    table = shares_table.read()
    for row in (3, 5, 6):
        (found,) = shares_table.rows(**shares_table.units[row], count=81)
        assert found["values"] >= 4
        for regime in Regime:
            assert found[regime.label] == pytest.approx(table[regime.label][row], abs=0.01)


@pytest.mark.nightly
def test_attractors_coexist_at_19_of_20_seeds():
    """C13: two cycles at β = 1.27, each reached by more than ten of 256 contexts, both stable."""
    network = Network.poclopez2024()
    met = 0
    rare = 0
    for seed in range(20):
        found = find_attractors(
            network,
            random_contexts(network, seed, count=256),
            beta=1.27,
            kept=2000,
            exponents=1,
            exponent_steps=2000,
            bins=1,
        )
        rates = {
            period: np.median(found.exponents.value[found.period == period, 0])
            for period in (28, 56)
            if (found.period == period).sum() > 10
        }
        met += len(rates) == 2 and max(rates.values()) < -0.001
        rare += bool((found.period == 16).any())
    assert met >= 19
    # One context in three hundred ends on the third cycle: no criterion may ask for it.
    assert 5 < rare < 17


def test_labels_of_the_six_values_are_those_that_the_text_reports():
    text = (ROOT / "notebooks" / "33_phase_transitions.md").read_text("utf-8")
    text = re.sub(r"\{setting\}`([^`]+)`", r"\1", text)
    [[cycle, *tori, hot]] = re.findall(
        r"call the motion periodic at ([\d.]+), quasi-periodic at ([\d.]+) and ([\d.]+), "
        r"and chaotic at (.*)\.\n",
        text,
    )
    wanted = {float(cycle): Regime.PERIODIC}
    wanted |= {float(beta): Regime.QUASI_PERIODIC for beta in tori}
    wanted |= {float(beta): Regime.CHAOTIC for beta in re.findall(r"\d\.\d+", hot)}
    assert wanted == study.LABELS
    # Against them nearly all contexts at 1.26451 end on a cycle.
    table = settings.settings_c10.read()
    other = table["beta"] == 1.26451
    assert (table["high"][other] < -0.3).all()
    # And contexts close to zero never reach the chaos of 1.266.
    narrow = (table["beta"] == 1.266) & (table["law"] == "narrow")
    assert (table["high"][narrow] < -0.4).all()
    assert (table["low"][~other & ~narrow] > 0.0).all()


def test_contexts_close_to_zero_end_on_the_closed_curve_and_others_in_chaos():
    """What the laws of starts reach at 1.266, by the extent of the orbit and not by a label."""
    network = Network.poclopez2024()
    extent = {}
    for law in ("narrow", "normal"):
        starts = random_contexts(network, 77, count=12, law=law)
        overlaps, _ = trajectory(network, starts, beta=1.266, steps=4000, transient=20_000)
        extent[law] = np.ptp(overlaps[..., 0], axis=1)
    assert (extent["narrow"] < 0.4).all()
    assert (extent["normal"] > 0.8).sum() >= 9


def test_the_threshold_of_the_ranges_stands_once():
    """C9: the row compares with what the table subtracts, not with a number of its own."""
    [row] = [claim for claim in read_claims(ROOT) if claim.id == "C9"]
    assert row.figures["asked"] == "least_share"
    for share in ("below", "cycle", "quasi", "window", "chaos"):
        assert f"{share} > asked" in row.criterion
    # A whole range of its label stands at what is left to one.
    best = settings.settings_c9.read()["value"].max()
    assert best == pytest.approx(1.0 - settings.LEAST_SHARE)


def test_laws_of_starts_have_the_moments_that_they_are_named_for():
    network = Network.poclopez2024()
    deviation = {
        law: random_contexts(network, 3, count=4000, law=law).attention.std() for law in START_LAWS
    }
    assert deviation["uniform"] == pytest.approx(3**-0.5, rel=0.01)
    assert deviation["narrow"] == pytest.approx(0.05 * 3**-0.5, rel=0.01)
    # A twelfth of a normal number of this deviation is cut at 1.
    assert deviation["normal"] == pytest.approx(0.533, rel=0.02)
    assert np.abs(random_contexts(network, 0, count=50, law="normal").attention).max() <= 1.0
    with pytest.raises(ValueError, match="law must be one of"):
        random_contexts(network, 0, count=1, law="flat")
