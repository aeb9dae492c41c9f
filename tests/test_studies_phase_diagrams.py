"""Phase diagrams: a stored row again, labels against brute force, waiting, longer windows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from compendium.c33d_phase_diagrams import planes
from compendium.c33d_phase_diagrams.longer import (
    longer_diagram,
    longer_network,
    longer_rows,
    scaled_thresholds,
)
from compendium.c33d_phase_diagrams.planes import (
    PLANES,
    Plane,
    cells,
    hysteresis,
    plane_rows,
    start_of_planes,
)
from compendium.c33d_phase_diagrams.summaries import (
    agreement,
    agreement_errors,
    coarse_plane,
    control_changes,
    diversity,
    mixed,
)
from compendium.c33d_phase_diagrams.tables import (
    CONTROL,
    EPSILON,
    GAMMA,
    LONGER,
    control_cells,
    read_plane,
)
from spinformer.core.random import numpy_generator
from spinformer.core.statistics import mean_interval, share_interval
from spinformer.dmft.attractors import SHORT_STRETCHES, Regime
from spinformer.dmft.lyapunov import lyapunov_spectrum_reference
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset
from spinformer.dmft.state import Context

# On the cycle of 16 steps of the document's network at β = 1.27, position 0.
SIXTEEN = [
    [-0.18830081, -0.12625093, 0.16722776],
    [0.03200454, -0.04062738, 0.37396801],
    [-0.10842218, -0.10964043, 0.2432497],
    [0.03284781, -0.04022729, 0.37479665],
]
TABLES = {"gamma": GAMMA, "epsilon": EPSILON}


@pytest.mark.parametrize("name", ["gamma", "epsilon"])
def test_cells_of_a_stored_plane_again(name):
    plane, layers = PLANES[name], read_plane(TABLES[name])
    columns = np.arange(0, len(plane.across), len(plane.across) // 10)
    row = {"gamma": 101, "epsilon": 32}[name]
    again = cells(plane.across[columns], **{name: np.full(10, plane.upwards[row])})
    assert (again.regime == layers["regime"][row, columns]).all()
    gap = np.abs(again.exponent.value - layers["exponent"][row, columns])
    assert gap.max() <= 0.5001e-3
    few = row // plane.coarse, columns // plane.coarse
    assert (again.attractors == layers["attractors"][few]).all()
    assert (again.regimes == layers["regimes"][few]).all()
    assert TABLES[name].read()["value"][row] == pytest.approx(plane.upwards[row], rel=1e-5)


def test_rows_hold_what_cells_and_sweeps_give(monkeypatch):
    small = Plane(name="gamma", betas=(1.2, 1.4, 3), values=(100.0, 120.0, 3), coarse=2)
    monkeypatch.setitem(planes.PLANES, "gamma", small)
    for name in ("TRANSIENT", "KEPT", "EXPONENT_STEPS", "RANDOM_EXPONENT_STEPS"):
        monkeypatch.setattr(planes, name, 400)
    written = plane_rows("gamma", first=0, count=3)
    assert [row["value"] for row in written] == [100.0, 110.0, 120.0]
    assert [len(row["attractors"]) for row in written] == [2, 0, 2]
    for number, row in enumerate(written):
        alone = cells(small.across, gamma=row["value"], random=0)
        assert row["regime"] == "".join("abcde"[code] for code in alone.regime)
        rates = [int(rate) for rate in row["exponent"].split()]
        np.testing.assert_allclose(rates, 1000 * alone.exponent.value, atol=0.51)
        if number != 1:
            crowd = cells(small.across[::2], gamma=row["value"])
            assert row["attractors"] == "".join("abcdefghi"[code] for code in crowd.attractors)
            assert row["regimes"] == "".join("abcdefgh"[code] for code in crowd.regimes)


def test_two_ways_differ_where_an_attractor_was_lost_on_one(monkeypatch):
    # The cycle of 16 steps lives above 1.2686 only: from 1.268 up it is not found again, from
    # 1.2735 down it is kept.
    network = Network.document()
    sixteen = Context(np.array(SIXTEEN), 0)
    monkeypatch.setattr(planes, "start_of_planes", lambda: (network, sixteen, None))
    betas = np.linspace(1.268, 1.2735, 12)
    found = hysteresis(
        betas, gamma=np.array([network.gamma]), epsilon=np.array([0.02]), transient=30_000
    )
    assert found.shape == (1, 12)
    assert not found[0, 0]
    assert found[0, 3:].all()


def test_layers_are_read_as_they_were_written():
    layers = read_plane(GAMMA)
    stored = GAMMA.read()
    assert {name: layer.shape for name, layer in read_plane(EPSILON).items()} == {
        **dict.fromkeys(("regime", "exponent"), (200, 200)),
        **dict.fromkeys(("attractors", "regimes", "hysteresis"), (50, 50)),
    }
    for row, column in ((0, 0), (101, 60), (199, 199)):
        for name in ("regime", "attractors", "regimes", "hysteresis"):
            assert chr(97 + layers[name][row, column]) == stored[name][row][column]
        assert layers["exponent"][row, column] * 1000 == pytest.approx(
            int(stored["exponent"][row].split()[column])
        )
    assert layers["attractors"].min() >= 1
    assert set(np.unique(layers["hysteresis"])) == {0, 1}


def test_labels_of_the_planes_against_brute_force():
    """Labels of random cells against orbits recorded and compared, and growth by finite steps."""
    network, start, _ = start_of_planes()
    rng = numpy_generator(7)
    for name, table in TABLES.items():
        layers, plane = read_plane(table), PLANES[name]
        rows, columns = rng.integers(0, len(plane.across), (2, 96))
        where = {"beta": plane.across[columns], name: plane.upwards[rows]}
        orbit, _ = trajectory(network, start, steps=1024, transient=24_000, **where)
        # Two copies 1e-9 apart: growth over 100 steps at a time, by plain differences.
        near, growth = start, np.zeros(96)
        _, here = trajectory(network, near, steps=0, transient=24_000, **where)
        shift = rng.standard_normal(here.attention.shape)
        other = here.attention + 1e-9 * shift / np.linalg.norm(shift, axis=(1, 2), keepdims=True)
        for stretch in range(60):
            _, here = trajectory(network, here, steps=0, transient=40, **where)
            _, moved = trajectory(
                network,
                Context(other, (here.position - 40) % 4),
                steps=0,
                transient=40,
                **where,
            )
            gap = moved.attention - here.attention
            size = np.linalg.norm(gap, axis=(1, 2))
            growth += np.log(np.maximum(size, 1e-300) / 1e-9) * (stretch >= 10)
            other = here.attention + 1e-9 * gap / np.maximum(size, 1e-300)[:, None, None]
        growth /= 50 * 40
        label = layers["regime"][rows, columns]
        for code, path, rate in zip(label, orbit, growth, strict=True):
            returns = [p for p in range(4, 513, 4) if np.abs(path[p:] - path[:-p]).max() < 1e-6]
            if code == Regime.PERIODIC:
                assert rate < 0.02
            if code == Regime.QUASI_PERIODIC:
                assert abs(rate) < 0.02
            if code == Regime.CHAOTIC:
                assert not returns
        chaos = label == Regime.CHAOTIC
        assert (growth[chaos] > 0.01).mean() > 0.9
        cyclic = np.array(
            [
                any(np.abs(path[p:] - path[:-p]).max() < 1e-6 for p in range(4, 513, 4))
                for path in orbit
            ]
        )
        assert (cyclic == (label == Regime.PERIODIC)).mean() > 0.95
        stored = layers["exponent"][rows, columns]
        assert np.median(np.abs(growth - stored)[~chaos]) < 5e-3
        assert np.median(np.abs(growth - stored)[chaos]) < 0.02


def test_errors_of_the_agreement_are_the_scatter_over_maps():
    scores, errors = [], []
    for seed in range(80):
        noise = np.random.default_rng(seed).standard_normal((80, 80))
        smooth = gaussian_filter(noise, 1.5, mode="wrap")
        labels = np.digitize(smooth, np.quantile(smooth, [0.4, 0.5]))
        scores.append([agreement(labels)[code] for code in (0, 1, 2)])
        errors.append([agreement_errors(labels)[code] for code in (0, 1, 2)])
    ratio = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(scores, axis=0, ddof=1)
    assert (ratio > 0.75).all()
    assert (ratio < 1.35).all()


@pytest.mark.claim("C14")
def test_the_criterion_of_the_planes_by_counting():
    """The three quantities of the criterion, cell by cell, without the package's formulas."""
    for name, table in TABLES.items():
        layers = read_plane(table)
        regime = layers["regime"]
        scores = agreement(regime)
        assert set(scores) == {Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC}
        for code, score in scores.items():
            alike = asked = 0
            for row, column in zip(*np.nonzero(regime == code), strict=True):
                for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                    y, x = row + down, column + right
                    if 0 <= y < len(regime) and 0 <= x < len(regime):
                        asked += 1
                        alike += regime[y, x] == code
            share = (regime == code).mean()
            assert score == pytest.approx((alike / asked - share) / (1 - share))
            assert score > 0.5
            # With its error, all but one of the six are regions.
            strip = name == "epsilon" and code == Regime.QUASI_PERIODIC
            assert (score - 2 * agreement_errors(regime)[code] > 0.5) == (not strip)
            # The same labels, thrown about, are dust.
            thrown = np.random.default_rng(0).permutation(regime.ravel()).reshape(regime.shape)
            assert abs(agreement(thrown)[code]) < 0.05
        several = np.array([int(code).bit_count() > 1 for code in layers["regimes"].ravel()])
        assert (mixed(layers["regimes"]).ravel() == several).all()
        assert several.mean() < 0.1
        if name == "epsilon":
            # The condition of the claim: half the resolution, and the strip is no region.
            assert agreement(regime[::2, ::2])[Regime.QUASI_PERIODIC] < 0.5
        _, before, after = control_changes(name)
        assert share_interval(int((before != after).sum()), trials=800)[1] < 0.1


def test_labels_stay_when_every_transient_is_ten_times_longer_but_where_marked():
    for name, plane in PLANES.items():
        betas, values = control_cells(name)
        points, before, after = control_changes(name)
        assert len(set(zip(betas, values, strict=True))) == 800
        assert (points == np.stack([betas, values], axis=1)).all()
        # Cells of the first plane are those of the table.
        if name == "gamma":
            columns = np.searchsorted(plane.across, betas - 1e-9)
            rows = np.searchsorted(plane.upwards, values - 1e-9)
            assert (before == read_plane(GAMMA)["regime"][rows, columns]).all()
        # Marked is what changes, and nothing else, when it is run again.
        stay, move = np.flatnonzero(before == after)[:16], np.flatnonzero(before != after)[:8]
        for chosen, same in ((stay, True), (move, False)):
            late = cells(betas[chosen], transient=200_000, random=0, **{name: values[chosen]})
            assert ((late.regime == before[chosen]) == same).all()
            assert (late.regime == after[chosen]).all()


def test_control_cells_again():
    stored = CONTROL.read()
    betas, values = control_cells("epsilon")
    mine = np.flatnonzero(stored["plane"] == "epsilon")
    np.testing.assert_allclose(stored["beta"][mine], betas, rtol=1e-5)
    np.testing.assert_allclose(stored["value"][mine], values, rtol=1e-5)
    few = np.arange(0, 800, 160)
    again = cells(betas[few], transient=200_000, epsilon=values[few])
    for layer in ("regime", "period", "attractors", "regimes"):
        assert (getattr(again, layer) == stored[layer][mine[few]]).all()


def test_a_coarse_plane_is_a_part_of_the_stored_one():
    live = coarse_plane(PLANES["gamma"], every=40)
    stored = read_plane(GAMMA)
    assert (live["regime"] == stored["regime"][::40, ::40]).all()
    assert np.abs(live["exponent"] - stored["exponent"][::40, ::40]).max() < 6e-4


def test_diversity_is_an_entropy_of_the_named_regimes():
    rows = np.array([[0, 1, 2, 2], [0, 0, 0, 3], [3, 3, 3, 3], [4, 2, 2, 0]])
    third = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    np.testing.assert_allclose(diversity(rows), [1.5 * np.log(2), 0.0, 0.0, third])


# ---- longer windows


def test_a_longer_network_is_the_document_s_with_slower_bits():
    document = Network.document()
    for bits in (3, 4, 5):
        network = longer_network(bits, seed=3)
        assert network.context == network.positions == 2**bits
        assert (network.semantic == document.semantic).all()
        assert (network.position[..., -2:] == document.position).all()
        # What was drawn for fewer bits stays.
        assert (longer_network(bits + 1, seed=3).position[..., 1:] == network.position).all()
    assert (longer_network(4, seed=1).position != longer_network(4, seed=2).position).any()


def test_longer_diagrams_know_the_cycle_and_the_growth():
    network = longer_network(3, seed=0)
    found = longer_diagram(3, betas=np.array([0.9, 1.9]), seed=0, turns=2000)
    assert found.period[0] == 8
    assert found.regime[1] == Regime.CHAOTIC
    plain = lyapunov_spectrum_reference(
        network, found.context.select(0), 0.9, steps=160, count=1, align=80
    )
    assert found.exponents.value[0, 0] == pytest.approx(plain.value[0], abs=2e-3)
    limits = scaled_thresholds(4)
    assert limits.neutral == SHORT_STRETCHES.neutral / 4
    assert limits.longest == SHORT_STRETCHES.longest * 4


def test_a_stored_row_of_the_longer_windows_again():
    stored = LONGER.read()
    for bits, seed in ((2, 0), (3, 4)):
        (again,) = longer_rows(bits, seed=seed)
        mine = (stored["bits"] == bits) & (stored["seed"] == seed)
        for column, value in again.items():
            assert stored[column][mine][0] == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_the_onset_of_longer_windows_follows_the_closed_form():
    stored = LONGER.read()
    document = Network.document()
    mu = np.linalg.eigvals(document.pair_correlations("v", "o"))
    for bits in (2, 3, 4, 5):
        window = 2**bits
        mine = stored["bits"] == bits
        # z^T = (βμ/T) Σ z^s on the unit circle, by search over the angle.
        angle = np.linspace(1e-4, np.pi, 200_001)
        total = sum(np.exp(1j * s * angle) for s in range(window))
        best = np.inf
        for one in mu[np.abs(mu) > 1e-9]:
            factor = np.exp(1j * window * angle) * window / (one * total)
            crossing = np.flatnonzero(
                (factor.imag[1:] * factor.imag[:-1] < 0) & (factor.real[1:] > 0)
            )
            best = min([best, *factor.real[1:][crossing]])
        assert stored["predicted"][mine][0] == pytest.approx(best / 0.98, abs=2e-3)
        assert onset(longer_network(bits)).critical_beta == pytest.approx(best, abs=2e-3)
        assert np.median(np.abs(stored["onset"][mine] - best / 0.98)) < 0.02


def test_the_exponent_per_window_grows_slowly():
    stored = LONGER.read()
    power = []
    for seed in range(10):
        rates = [
            stored["rate"][(stored["bits"] == bits) & (stored["seed"] == seed)][0]
            for bits in (2, 3, 4, 5)
        ]
        power.append(np.polyfit(np.log([4, 8, 16, 32]), np.log(rates), 1)[0])
    low, high = mean_interval(power)
    assert -1.0 < low < high < -0.75
