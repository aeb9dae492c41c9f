"""Blocks: chaos by twins that part instead of tangents, first modes by differences, stored rows."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from compendium.c35b_scaling_and_blocks.blocks import BlockEnsemble, Blocks, block_step
from compendium.c35b_scaling_and_blocks.blocks_study import (
    BETAS,
    CENSUS,
    CONDITIONS,
    TOP,
    WINDOWS,
    block_rows,
    compare,
    first_mode,
    make_blocks,
)
from compendium.common.networks import draw_networks
from spinformer.core.checks import check_array
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset


def _parting(networks: dict[int, Network], condition: str) -> np.ndarray:
    """Share of systems (networks,) whose twins, 1e-9 apart after the wait, part to 1e-3."""
    betas = np.repeat(TOP * np.arange(1, BETAS + 1) / BETAS, WINDOWS)
    systems, windows = [], []
    for seed, network in networks.items():
        systems += [make_blocks(network, seed, condition=condition)] * len(betas)
        windows.append(np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, (len(betas), 4, 3)))
    beta = np.tile(betas, len(networks))
    one = BlockEnsemble(systems, np.concatenate(windows), beta=beta)
    one.advance(3000)
    start = check_array("start", one.window)
    two = BlockEnsemble(systems, start + 1e-9, beta=beta, position=one.position)
    for ensemble in (one, two):
        ensemble.advance(600)
    apart = np.abs(one.window - two.window).max(axis=(1, 2)) > 1e-3
    return apart.reshape(len(networks), -1).mean(axis=1)


@pytest.mark.claim("C23")
def test_chaos_of_the_census_by_twins_that_part() -> None:
    table = CENSUS.read()
    first = table["family"] == 0
    bare = first & (table["condition"] == "bare")
    picked = np.sort(table["network"][bare][np.argsort(-table["chaos"][bare])[:6]])
    drawn = list(
        draw_networks(family=0, features=3, segments=3, context=4, epsilon=0.02, count=120).items()
    )
    networks = dict(drawn[n] for n in picked)
    for condition in ("bare", "residual 1", "feed 1"):
        rows = first & (table["condition"] == condition) & np.isin(table["network"], picked)
        stored = table["chaos"][rows].mean()
        assert _parting(networks, condition).mean() == pytest.approx(stored, abs=0.06), condition


def test_intervals_in_pairs_are_those_of_a_library() -> None:
    table = CENSUS.read()
    for condition in list(CONDITIONS)[1:]:
        rows = [
            (table["condition"] == name) & (table["family"] == 1) for name in (condition, "bare")
        ]
        assert np.array_equal(*(table["network"][row] for row in rows))
        one, two = (table["dimension"][row] for row in rows)
        if not np.any(one - two):
            continue
        ends = ttest_rel(one, two).confidence_interval()
        found = compare(table, condition=condition, measure="dimension", family=1)
        assert found[1:] == pytest.approx((ends.low, ends.high), abs=1e-9)


def test_a_stored_row_comes_out_again() -> None:
    table = CENSUS.read()
    rows = block_rows("feed 1", family=1, chunk=0, size=3)
    stored = (table["condition"] == "feed 1") & (table["family"] == 1)
    for n, row in enumerate(rows):
        at = np.flatnonzero(stored & (table["network"] == n))[0]
        assert row["dimension"] == pytest.approx(table["dimension"][at], abs=0.1)
        assert row["chaos"] == pytest.approx(table["chaos"][at], abs=0.07)


def test_the_first_mode_is_the_closed_form_and_starts_to_grow_there() -> None:
    network = Network.document().with_parameters(epsilon=0.0)
    beta, turns = first_mode(Blocks(network=network))
    wanted = onset(network)
    assert beta == pytest.approx(wanted.critical_beta, rel=1e-6)
    assert turns == pytest.approx(wanted.critical_rotation, rel=1e-6)
    blocks = make_blocks(network, 3, condition="both 1/2, 1")
    beta, _ = first_mode(blocks)
    for factor, grows in ((0.97, False), (1.03, True)):
        window = 1e-6 * np.random.default_rng(0).standard_normal((4, 3))
        for _ in range(1500):
            window, _ = block_step(blocks, window, position=0, beta=factor * beta)
        assert (np.abs(window).max() > 1e-4) == grows
