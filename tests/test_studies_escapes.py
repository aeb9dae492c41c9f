"""Escapes from the cycles of the document's network: stored tables against other arithmetic."""

import numpy as np
import pytest

from compendium.c33g_escapes.action import path_action
from compendium.c33g_escapes.study import (
    ACTIONS,
    ESCAPES,
    chain_lifetimes,
    coexisting_cycles,
    escape_row,
    first_guesses,
)
from spinformer.dmft.network import Network


def slopes(table, beta, cycle, seed):
    """Slope against N of ln τ and of ln τ/√N, and χ² of lines in N and in ln N, by least squares.

    ln of a lifetime from k escapes has the variance 1/k.
    """
    rows = (table["beta"] == beta) & (table["cycle"] == cycle) & (table["seed"] == seed)
    size = table["size"][rows].astype(float)
    ended = table["escaped"][rows]
    logs = np.log(table["total"][rows] / ended)
    weight = np.sqrt(ended)
    found = []
    for x, y in ((size, logs), (size, logs - 0.5 * np.log(size)), (np.log(size), logs)):
        line = np.polyfit(x, y, 1, w=weight)
        found.append((line[0], ((weight * (y - np.polyval(line, x))) ** 2).sum()))
    return found


@pytest.mark.claim("C18d")
def test_times_to_escape_grow_exponentially_at_the_rate_of_the_least_action():
    table, actions = ESCAPES.read(), ACTIONS.read()["action"]
    for seed in (0, 1):
        four = [slopes(table, 3.0, cycle, seed) for cycle in range(4)]
        all_five = [*four, slopes(table, 1.27, 1, seed)]
        exponential, power = (sum(one[k][1] for one in all_five) for k in (0, 2))
        assert power - exponential > 50
        assert exponential < 40  # of about 19 expected: five lines through 29 points
        ratio = np.array([[one[k][0] for k in (0, 1)] for one in four]) / actions[:, None]
        assert 1.05 < ratio[:, 0].mean() < 1.35
        assert abs(ratio[:, 1].mean() - 1.0) < 0.1


def test_a_unit_of_the_table_comes_out_again():
    table = ESCAPES.read()
    rows = (table["beta"] == 3.0) & (table["cycle"] == 0) & (table["seed"] == 0)
    at = np.flatnonzero(rows & (table["size"] == 1200))[0]
    found = escape_row(3.0, cycle=0, size=1200, seed=0)[0]
    assert found["texts"] == table["texts"][at] == 128
    # Rounding may move single texts; 128 exponential times know their mean to 9 %.
    assert found["lifetime"] == pytest.approx(table["lifetime"][at], rel=0.2)
    assert found["escaped"] >= 0.9 * table["escaped"][at]


def test_cycles_are_four_and_guesses_begin_and_end_on_them():
    known = coexisting_cycles(3.0)
    assert known.periods.tolist() == [24] * 4
    apart = np.abs(known.overlaps[:, None] - known.overlaps).max(axis=(2, 3))
    assert (apart + np.eye(4) > 0.05).all()
    network = Network.document()
    guesses = first_guesses(0, size=900, texts=20)
    costs = []
    for fields, position, ends in guesses:
        assert ends != 0
        cost = path_action(network, fields, beta=3.0, position=position)
        costs.append(cost.sum())
        # After the escape the guess follows the dynamics; only the join at the end costs.
        assert cost[-40:-4].sum() < 1e-9
    assert costs == sorted(costs)
    # An action of a sampled path is far above the least one, which no path may undercut.
    assert min(costs) > ACTIONS.read()["action"][0]


def test_one_bit_flips_after_the_time_of_its_odds():
    signs, none = np.ones((4, 1, 1)), np.ones((4, 1, 0))
    coin = Network(semantic=signs, position=none, context=1, gamma=1.0, epsilon=0.0)
    found = chain_lifetimes(coin, np.array([1, 3]), beta=1.0)
    assert found[0] == pytest.approx(1 + np.exp(2.0))
    # Three bits: two states up; leave either with the chance of at most one bit up.
    stay = []
    for mean in (1.0 / 3.0, 1.0):
        up = 0.5 * (1 + np.tanh(mean))
        stay.append((3 * up**2 * (1 - up), up**3))
    (a, b), (c, d) = stay
    expected = np.linalg.solve(np.array([[1 - a, -b], [-c, 1 - d]]), np.ones(2))[1]
    assert found[1] == pytest.approx(expected)
