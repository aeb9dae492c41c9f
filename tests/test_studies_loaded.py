"""Many features: stored rows again, the limit of the load by a closed form, powers by a library."""

import numpy as np
import pytest
from scipy.stats import linregress

from compendium.c35b_scaling_and_blocks.loaded import resting_state
from compendium.c35b_scaling_and_blocks.loaded_study import (
    LIMITS,
    ONSETS,
    PATHS,
    REST,
    SCORES,
    largest_load,
    loaded_onset,
    path_rows,
    power,
    rest_rows,
    score_rows,
)
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset


@pytest.mark.claim("C22")
def test_the_powers_of_the_tables_by_a_plain_line() -> None:
    scores, paths = SCORES.read(), PATHS.read()
    wanted = {"fixed": -0.5, "unit, P = 3 + alpha N": 0.0, "unit, P = 3": 1.0}
    for rule, exponent in wanted.items():
        rows = scores["rule"] == rule
        line = linregress(np.log(scores["size"][rows]), np.log(scores["deviation"][rows]))
        assert line.slope == pytest.approx(exponent, abs=0.1), rule
        fitted = power(scores, column="deviation", chosen=rows).slope.value
        assert fitted == pytest.approx(line.slope, abs=0.06)
    unit = scores["rule"] == "unit, P = 3 + alpha N"
    assert scores["deviation"][unit].mean() == pytest.approx(1.0, abs=0.1)
    line = linregress(np.log(paths["size"]), np.log(paths["with"]))
    assert line.slope == pytest.approx(-0.5, abs=4 * line.stderr)
    assert (paths["without"] / paths["with"])[paths["size"] == 2400].mean() > 3.0


def test_stored_rows_come_out_again() -> None:
    scores, paths, rest = SCORES.read(), PATHS.read(), REST.read()
    (row,) = score_rows("fixed", size=300, seed=1)
    assert row["deviation"] == pytest.approx(scores["deviation"][0], rel=1e-3)
    (row,) = path_rows(300, seed=1)
    assert row["with"] == pytest.approx(paths["with"][0], rel=1e-3)
    (row,) = rest_rows(0.25, beta=1.0, seed=1)
    assert row["noise"] == pytest.approx(rest["noise"][0], rel=1e-3)


def test_the_largest_load_is_where_the_gain_meets_the_onset() -> None:
    limits, onsets = LIMITS.read(), ONSETS.read()
    critical = onset(Network.document().with_parameters(epsilon=0.0)).critical_beta
    assert limits["onset"][0] == pytest.approx(critical, rel=1e-4)
    edge = largest_load(limits)
    start, _, gain = loaded_onset(0.3)
    row = np.flatnonzero(limits["load"] == 0.3)[0]
    wanted = tuple(float(limits[name][row]) for name in ("onset", "gain"))
    assert (start, gain) == pytest.approx(wanted, rel=1e-3)
    # On a grid of temperatures no gain at a larger load, and one at a smaller, is enough.
    betas = np.linspace(2.0, 8.0, 7)
    above, below = (
        max(resting_state(float(beta), load=load, context=4).gain for beta in betas)
        for load in (edge + 0.03, edge - 0.05)
    )
    assert above < critical < below
    # Large beta: the gain is that of a Gaussian density at zero.
    rest = resting_state(20.0, load=1.0, context=4)
    assert rest.gain == pytest.approx(np.sqrt(2.0 / (np.pi * rest.noise)), rel=0.01)
    for load in np.unique(onsets["load"]):
        small, large = (
            onsets["overlap"][(onsets["load"] == load) & (onsets["size"] == size)].mean()
            for size in (300, 1200)
        )
        assert (small / large < 1.25) if load < edge else (small / large > 1.6)
