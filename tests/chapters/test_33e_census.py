"""Census and gauge of networks against plain runs, libraries, random matrices and enumeration."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from known_networks import COIN
from open_cells import run_open_cells
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, roc_auc_score

from compendium.c33e_census import study
from compendium.c33e_census.study import (
    OTHER_SIZES,
    document_size_table,
    judge,
    longer_table,
    select,
    sweep,
)
from compendium.common.gauge import canonical_code, canonical_form, count_networks, random_gauge
from compendium.common.networks import draw_networks
from compendium.common.rows import rows_of
from spinformer.dmft.attractors import Regime
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network


def test_no_network_of_the_tables_is_counted_twice():
    seen = set()
    for table in (document_size_table, OTHER_SIZES):
        for row in rows_of(table.read()):
            if row["epsilon"] == 0.02:
                key = row["features"], row["segments"], row["context"], row["code"]
                assert key not in seen
                seen.add(key)
    assert len(seen) >= 1000
    drawn = draw_networks(family=0, features=1, segments=2, context=2, epsilon=0.1, count=20)
    assert len({canonical_code(network) for network in drawn.values()}) == 20
    assert list(drawn) == sorted(drawn) != list(range(20))


@pytest.mark.nightly
@pytest.mark.claim("C16")
def test_the_share_of_networks_with_all_three_regimes():
    wide = [row for row in rows_of(document_size_table.read()) if row["epsilon"] == 0.02]
    for family in (0, 1):
        rows = [row for row in wide if row["family"] == family]
        both = sum(row["seen_chaos"] > 0 and row["seen_quasi"] > 0 for row in rows)
        assert binomtest(both, len(rows)).proportion_ci(method="wilson").low > 0.05
    # The labels behind it: neighboring orbits part where they say chaos only.
    for seed in [int(row["seed"]) for row in wide if row["seen_chaos"] > 3][:3]:
        network = Network.segmented(seed, gamma=220.0 / 3**0.5, epsilon=0.02)
        found = sweep(network, seed, fine=0, contexts=2)
        chaotic = np.flatnonzero((found["regime"] == Regime.CHAOTIC).all(axis=1))
        calm = np.flatnonzero((found["regime"] == Regime.PERIODIC).all(axis=1))
        assert len(chaotic) + len(calm) > 10
        for at, apart in ((chaotic, True), (calm, False)):
            for number in at[:2]:
                assert parts(network, seed, float(found["betas"][number])) == apart


def test_what_the_chapter_quotes_of_other_sizes_and_longer_waits():
    table = OTHER_SIZES.read()
    ours = select(document_size_table.read(), family=0, epsilon=0.02)
    features = np.append(table["features"], ours["features"][:9])
    chaos = np.append(table["seen_chaos"], ours["seen_chaos"][:9]) > 0
    assert (chaos.sum(), len(chaos)) == (106, 324)
    few = chaos[features == 2].mean()
    many = chaos[features == 6].mean()
    assert many == pytest.approx(2 * few, rel=0.1)
    late = longer_table.read()
    assert len(late["seed"]) == 50
    assert late["stayed"].sum() / late["systems"].sum() == pytest.approx(0.99, abs=0.005)
    for epsilon, share in ((0.02, 0.27), (0.1, 0.61)):
        rows = select(document_size_table.read(), family=0, epsilon=epsilon)
        assert (rows["seen_chaos"][:100] > 0).mean() == pytest.approx(share)


def parts(network, seed, beta):
    """Whether two orbits that differ by 1e-9 part; after a long transient."""
    start = random_contexts(network, seed, count=1).attention
    _, settled = trajectory(network, Context(start, 0), beta=beta, steps=0, transient=20_000)
    twins = Context(np.concatenate([settled.attention, settled.attention + 1e-9]), settled.position)
    one, two = trajectory(network, twins, beta=beta, steps=0, transient=2000)[1].attention
    return bool(np.abs(one - two).max() > 1e-4)


@pytest.mark.nightly
def test_transient_chaos_is_told_from_lasting_chaos():
    # Lifetimes of chapter 33b: 200,000 steps at 1.274, no end seen at 1.4.
    network = Network.poclopez2024()
    betas = np.array([1.274, 1.4])
    start = Context(random_contexts(network, 0, count=2).attention, 0)
    many = Context(np.tile(start.attention, (2, 1, 1, 1)), 0)
    _, states = trajectory(network, many, beta=betas[:, None], steps=0, transient=2000)
    found = {"betas": betas, "ends": states.attention, "exponent": np.full((2, 2), 0.15)}
    found["regime"] = np.full((2, 2), Regime.CHAOTIC)
    ended = study.chaos_ends(network, found, position=states.position, seed=0, horizon=400_000)
    assert ended.tolist() == [True, False]


@pytest.mark.nightly
def test_driven_networks_are_those_of_one_cycle():
    network = Network.poclopez2024()
    found = sweep(network, 0, even=12, fine=0, contexts=3)
    start = random_contexts(network, 5, count=1).attention
    both = Context(np.concatenate([start, -0.3 * start]), 0)
    for beta, driven in list(zip(found["betas"], found["driven"], strict=True))[2:8:2]:
        _, ends = trajectory(network, both, beta=beta, steps=0, transient=1000)
        _, later = trajectory(network, ends, beta=beta, steps=0, transient=4)
        apart = np.abs(later.attention - ends.attention[0]).max()
        assert (apart < 1e-6) == driven
    # Two states of rest are none of them the clock's.
    assert sweep(COIN, 0, even=4, fine=0, contexts=4)["driven"].tolist() == [True] + [False] * 3
    # One context agrees with itself, but a cycle of 24 steps is not the clock's.
    assert not sweep(network, 0, even=2, fine=0, contexts=1)["driven"].any()
    wide = Network.segmented(0, features=4, segments=16)
    assert sweep(wide, 0, even=2, fine=0, contexts=1)["betas"].tolist() == [3.0, 6.0]
    # Fine values surround the onset.
    fine = sweep(network, 0, even=12, fine=6, contexts=2)
    betas = fine["betas"]
    driven = fine["driven"]
    lost = betas[:12][~driven[:12]].min()
    assert np.abs(betas[12:] - lost).max() < 0.25
    assert set(driven[12:].tolist()) == {False, True}


def test_areas_are_those_of_the_library_and_a_threshold_is_judged_where_it_was_not_set():
    rng = np.random.default_rng(1)
    label = rng.random(2000) < 0.5
    score = np.round(rng.normal(size=2000) + 2.0 * label, 1)
    found = judge(score, label=label, draws=400)
    held = label[1::2]
    area = roc_auc_score(held, score[1::2])
    assert found.area == pytest.approx(area)
    assert found.low < 0.921 < found.high
    # Hanley and McNeil's error of an area.
    n = held.sum()
    m = (~held).sum()
    one = area / (2 - area)
    two = 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (n - 1) * (one - area**2) + (m - 1) * (two - area**2)
    assert (found.high - found.low) / 3.92 == pytest.approx(np.sqrt(spread / n / m), rel=0.25)
    assert found.threshold == pytest.approx(1.0, abs=0.4)
    called = score[1::2] >= found.threshold
    assert (found.confusion == confusion_matrix(held, called)).all()
    # What holds in one half only is worth nothing in the other.
    score[1::2] = rng.normal(size=1000)
    assert judge(score, label=label, draws=50).area == pytest.approx(0.5, abs=0.06)


def test_the_open_cells_take_the_census_of_the_package():
    cells = run_open_cells("33e_census")
    assert cells["count"] == 100
    # The package's own step, onset and exponents, for some of the networks.
    for number in (0, 7, 21, 40):
        roles = np.stack([cells["w_output"][number, 0], *cells["semantic"][:, number, 0]])
        position = np.concatenate([np.ones((1, 3, 2)), cells["positional"][:, number, 0]])
        network = Network(
            semantic=roles, position=position, context=4, gamma=220 / 3**0.5, epsilon=0.02
        )
        predicted = onset(network, epsilon=0.0)
        assert cells["onsets"][number].min() == pytest.approx(predicted.critical_beta)
        turning = 1e-9 < abs(np.angle(predicted.mu[0])) < np.pi - 1e-9
        assert cells["is_complex"][number] == turning
        begin = np.random.default_rng(number).uniform(-1.0, 1.0, (4, 3))
        everywhere = np.broadcast_to(begin.T, (100, 12, 3, 4))
        cell = everywhere
        for t in range(3):
            cell = cells["next_windows"](cell, t, cells["beta"])
        for place, beta in enumerate(cells["beta"]):
            context = Context(begin, 0)
            for _ in range(3):
                context, _ = step(network, context, float(beta))
            assert context.attention == pytest.approx(cell[number, place].T, abs=1e-12)
    found = [
        (cells["is_chaotic"] & kind).sum() / kind.sum()
        for kind in (cells["is_complex"], ~cells["is_complex"])
    ]
    table = select(document_size_table.read(), family=0, epsilon=0.02)
    turns = study.scores(table)["rotation"] > 0
    chaos = table["seen_chaos"] > 0
    # At fewer temperatures, and from one start.
    assert found == pytest.approx([chaos[turns].mean(), chaos[~turns].mean()], abs=0.2)


def test_scores_say_what_they_are_named_for():
    network = Network.poclopez2024()
    row = study.network_row(network, 0, even=4, fine=0, contexts=1)
    columns = {name: np.array([row[name], row[name]]) for name in ("angle", "predicted")}
    columns |= {"features": np.array([3, 3]), "segments": np.array([3, 3])}
    columns["angle"][1] = 0.0
    found = study.scores(columns)
    assert found["rotation"].tolist() == [1.0, 0.0]
    reach = 3.0 / onset(network, epsilon=0.02).critical_beta
    assert found["both"] == pytest.approx([reach, 0.0])


def fingerprint(network):
    """What no relabeling of fields or clock can change: sums over all images of one start."""
    total = np.zeros(12)
    start = np.array([[0.9, 0.4, -0.6], [-0.2, 0.7, 0.3]])[:, : network.features]
    patterns, readout = network.output_patterns()
    seen = readout[1:].any(axis=(0, 1))
    for order in permutations(range(network.features)):
        for signs in product((1.0, -1.0), repeat=network.features):
            for position in range(network.positions):
                # Attention vectors along an orbit of the plain reference.
                context = Context(start[:, list(order)] * signs, position)
                vectors = []
                for _ in range(6):
                    vectors.append(context.attention[0])
                    context, _ = step(network, context, 1.7)
                fields = np.array(vectors) @ patterns[seen].T
                total += np.concatenate([(fields**2).sum(axis=1), (fields**4).sum(axis=1)])
    return tuple(np.round(total, 8))


def gauges(semantic, position):
    """Weights after each of the changes that generate all gauges; W^{o,pos} is left out."""
    _, features, segments = semantic.shape
    for sign in 1 - 2 * np.eye(segments, dtype=int):
        yield semantic * sign, position
    if segments > 1:
        yield np.roll(semantic, 1, axis=2), position
        yield semantic[:, :, [1, 0, *range(2, segments)]], position
    for roles, marks in (([0, 1], [0]), ([2, 3], [1, 2])):
        one = semantic.copy()
        two = position.copy()
        one[roles, 0] *= -1
        two[marks, 0] *= -1
        yield one, two
        if features > 1:
            one = semantic.copy()
            two = position.copy()
            one[roles] = one[roles][:, ::-1]
            two[marks] = two[marks][:, ::-1]
            yield one, two
    if position.shape[2]:
        yield semantic, np.concatenate([-position[..., :1], position[..., 1:]], axis=2)


def orbits(features, segments, bits):
    """One network of each orbit, by enumeration."""
    size = 4 * features * segments
    width = size + 3 * features * bits
    # All signs of a network as rows of integers; a gauge moves numbered places and turns signs.
    signs = 1 - 2 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1)
    place = 1 + np.arange(width)
    semantic = place[:size].reshape(4, features, segments)
    position = place[size:].reshape(3, features, bits)
    start = np.arange(2**width)
    graph = 0
    for one, two in gauges(semantic, position):
        moved = np.concatenate([one.ravel(), two.ravel()])
        image = signs[:, np.abs(moved) - 1] * np.sign(moved)
        end = (1 - image) // 2 @ (1 << np.arange(width))
        graph = graph + coo_array((np.ones(2**width), (start, end)), (2**width, 2**width))
    _, label = connected_components(graph, directed=False)
    for row in signs[np.unique(label, return_index=True)[1]]:
        position = np.append(np.ones(features * bits), row[size:])
        yield Network(
            semantic=row[:size].reshape(4, features, segments),
            position=position.reshape(4, features, bits),
            context=2,
            gamma=2.0,
            epsilon=0.3 if bits else 0.0,
        )


@pytest.mark.parametrize(
    "sizes",
    [
        *((1, 1, 0), (1, 1, 1), (1, 2, 1)),
        *(pytest.param(sizes, marks=pytest.mark.nightly) for sizes in [(2, 1, 1), (2, 2, 0)]),
    ],
)
def test_counts_and_forms_against_enumeration(sizes):
    features, segments, bits = sizes
    found = list(orbits(features, segments, bits))
    assert len(found) == count_networks(features=features, segments=segments, bits=bits)
    forms = [canonical_form(network) for network in found]
    prints = [fingerprint(network) for network in found]
    # Networks of one form move alike (where anything moves), and few others do.
    pairs = {pair for pair in zip(forms, prints, strict=True) if len(pair[0]) > 1}
    assert len(pairs) == len({form for form, _ in pairs})
    assert 0.7 * len(pairs) < len({motion for _, motion in pairs})


@pytest.mark.parametrize("sizes", [(3, 3, 2), (2, 5, 1), (4, 3, 3), (6, 16, 3), (3, 4, 0)])
def test_a_gauge_changes_neither_code_nor_motion(sizes):
    features, segments, bits = sizes
    for seed in range(6):
        network = Network.segmented(
            seed,
            features=features,
            segments=segments,
            bits=bits,
            epsilon=0.1 if bits else 0.0,
            context=2,
            gamma=3.0,
        )
        other = random_gauge(network, seed + 1)
        assert canonical_code(other) == canonical_code(network)
        if features < 4 and seed == 0:
            assert fingerprint(other) == pytest.approx(fingerprint(network))
        # One sign more or less is another network.
        semantic = network.semantic.copy()
        semantic[seed % 4, 0, 0] *= -1
        assert canonical_code(replace(network, semantic=semantic)) != canonical_code(network)


def test_the_documents_size():
    assert count_networks(features=3, segments=3, bits=2) == 84_032_999_680


def test_nearly_equal_averages_are_told_apart():
    network = Network.segmented(0, features=2, segments=2, bits=1)
    near = replace(network, fractions=np.array([0.501, 0.499]))
    assert canonical_code(near) != canonical_code(network)


def test_a_finer_grid_counts_networks_that_show_a_regime(monkeypatch):
    seen = [(0, 0), (3, 0), (0, 1), (2, 5), (1, 1)]
    grids = []

    def row(network, seed, *, even, fine):
        grids.append((even, fine))
        chaos, quasi = seen[len(grids) - 1]
        return {"seen_chaos": chaos, "seen_quasi": quasi}

    monkeypatch.setattr(study, "network_row", row)
    (found,) = study.finer_table.rows(64, family=1500, networks=5)
    assert found == {"networks": 5, "all": 2, "chaos": 3, "quasi": 3}
    # All values of β that were asked for, three quarters of them even ones.
    assert set(grids) == {(48, 16)}
