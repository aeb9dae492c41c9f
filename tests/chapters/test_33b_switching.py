"""Switching: the parts by counting without an operator, distances by plain loops, stored tables."""

from itertools import groupby

import numpy as np
import pytest

from compendium.c33b_lifetimes.slow_modes import phase_surrogate
from compendium.c33b_lifetimes.switching import (
    FLASH,
    GROWTH,
    ORBITS,
    calm_parts,
    chaotic_orbits,
    followed,
    shuffled_blocks,
)
from compendium.c34_memory_beyond_window.study import autocorrelation


@pytest.mark.claim("C21")
def test_the_parts_of_the_chaos_by_counting():
    """No operator: the overlap's size in stretches of 20 flashes, and how slowly it forgets."""
    points, _ = chaotic_orbits(1.266, count=8, flashes=12_000, seed=21)
    assert len(points) == 8

    def memory(series):
        """Tokens until the size of the motion has forgotten all but 1/e, over all orbits."""
        size = (series**2).sum(axis=-1).reshape(len(series), -1, 20).mean(axis=-1)
        falling = autocorrelation(size, lags=60, unbiased=True).mean(axis=0)
        at = int(np.argmax(falling < np.exp(-1.0)))
        return FLASH * 20 * (at - (np.exp(-1.0) - falling[at]) / (falling[at - 1] - falling[at]))

    slow = memory(points)
    twin = phase_surrogate(points, seed=0)
    mixed = shuffled_blocks(points[:, :12_000], block=20, seed=0)
    wild, _ = chaotic_orbits(1.28, count=8, flashes=12_000, seed=21)
    table = ORBITS.read()
    mine = table["slow"][table["beta"] == 1.266].mean()
    assert slow == pytest.approx(mine, rel=0.4)
    assert max(memory(twin), memory(mixed), memory(wild)) < slow / 3.0
    # Every orbit has stretches of both kinds, split at the middle of two well-parted sizes.
    size = np.abs(points[..., 0]).reshape(8, -1, 20).max(axis=-1)
    calm = (size < 0.24).mean(axis=1)
    assert (calm > 0.1).all()
    assert (calm < 0.9).all()
    parts = calm_parts(points)
    state = np.round(parts.state.reshape(8, -1, 20).mean(axis=-1))
    assert ((state == 0) == (size < 0.24))[:, 5:].mean() > 0.85
    # Whatever sign the eigenvector comes with, the wild part is upwards.
    for orbit in points:
        alone = calm_parts(orbit[None]).value[0]
        assert np.corrcoef(alone, np.abs(orbit).max(axis=-1))[0, 1] > 0.0
    # Long dwells have no memory: beyond two lags of the operator they scatter as exponentials do.
    runs = [(part, len(list(run))) for row in parts.state for part, run in groupby(row.tolist())]
    for part in (0, 1):
        left = np.array([length - 32 for which, length in runs if which == part and length > 32])
        assert len(left) > 100
        assert left.std(ddof=1) / left.mean() == pytest.approx(1.0, abs=0.2)


def test_shuffling_keeps_blocks_whole_and_following_is_counted():
    points = np.arange(48.0).reshape(2, 24, 1)
    mixed = shuffled_blocks(points, block=4, seed=1)
    assert sorted(mixed[0].ravel()) == sorted(points[0].ravel())
    inner = np.diff(mixed[:, :, 0], axis=1).reshape(2, -1)
    assert (inner[:, [n for n in range(23) if n % 4 != 3]] == 1.0).all()
    assert not np.array_equal(mixed[0], points[0])
    near = np.array([0.0, 0.01, 0.5, 0.0, 0.0, 0.0]).reshape(1, 6, 1)
    runs = followed(near, structure=np.zeros((1, 1)), rounds=3)
    assert runs[0].tolist() == [False, False, False, True, True, True]


@pytest.mark.nightly
def test_stored_rows_come_out_again():
    rows = ORBITS.rows(1.266, seed=5, count=2)
    table = ORBITS.read()
    here = table["beta"] == 1.266
    for name, tolerance in (("slow", 0.5), ("surrogate", 0.2), ("shuffled", 0.2), ("calm", 0.3)):
        mean = np.mean([row[name] for row in rows])
        assert mean == pytest.approx(table[name][here].mean(), rel=tolerance), name


@pytest.mark.nightly
def test_the_growth_of_either_part_is_that_of_a_stored_orbit():
    from test_tables import deviations  # which imports the tables of all chapters

    assert deviations(GROWTH) == []
