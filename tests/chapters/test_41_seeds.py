"""Sweeps of chapters 21 and 21a over the seed: rows again, and what they are held against."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import compendium.c41_seeds.study as seeds_study
from bookmaker.points import read_points
from bookmaker.source import Chapter
from compendium.c21_ising.study import approximation_errors
from compendium.c41_seeds.study import (
    COMMANDS,
    effective_number,
    free_energy_rest,
    mean_square_limits,
    monte_carlo_pulls,
    read_seeds,
    rest_by_loops,
)
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact

ROOT = Path(__file__).resolve().parents[2]


def test_rows_computed_again() -> None:
    table = read_seeds()
    row = 3
    found = free_energy_rest(16, beta=0.5, systems=200, seed=int(table["seed"][row]) + 1)
    assert abs(found.value - table["B2.log_z"][row]) < 6e-5
    assert abs(found.error - table["B2.log_z_error"][row]) < 6e-5
    row = 20
    couplings, fields = sherrington_kirkpatrick(
        16, seed=int(table["seed"][row]) + 2, count=40, field_std=0.5
    )
    for beta, method in ((0.5, "naive"), (0.5, "tap"), (1.0, "adaptive")):
        truth = solve_exact(couplings, fields=fields, beta=beta)
        found = approximation_errors(
            couplings, fields=fields, beta=beta, method=method, truth=truth
        )
        assert np.median(found.moments) == pytest.approx(table[f"B7.{method}"][row], rel=0.06)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_commands_ask_for_the_rows_that_are_stored(name: str) -> None:
    match = re.search(r"sweep (\w+) -p (\w+) (\S+) -o", COMMANDS[name])
    assert match is not None
    points = read_points(Chapter(ROOT, match[1]), [(match[2], match[3])])
    assert [point.values["seed"] for point in points] == read_seeds()["seed"].tolist()
    stored = Path(seeds_study.__file__).with_name(name).read_text(encoding="utf-8")
    assert stored.startswith(f"# {COMMANDS[name]}\n")


def test_pulls_of_spins_that_stray_together() -> None:
    """Two spins bound by a coupling: the second follows the first, and the scatter is theirs."""
    each = monte_carlo_pulls(2, beta=2.0, runs=400, sweeps=2000, field_std=0.05, seed=5)
    # By hand: one coupling J, ⟨s_1 s_2⟩ = tanh βJ; of long averages the slow mode is the pair's.
    coupling = sherrington_kirkpatrick(2, seed=5)[0][0, 1]
    bound = np.tanh(2.0 * coupling)
    assert abs(bound) > 0.9
    together = np.corrcoef(each.T)[0, 1]
    assert together * np.sign(bound) > abs(bound) - 0.05
    assert np.mean(each**2) == pytest.approx(1.0, abs=0.25)
    squares = np.mean(each**2, axis=1)
    expected = 2 / effective_number(np.corrcoef(each.T))
    assert squares.var(ddof=1) == pytest.approx(expected, rel=0.4)


def test_the_effective_number_is_that_of_the_variance_of_mean_squares() -> None:
    rng = np.random.default_rng(2)
    common, own = rng.standard_normal((200_000, 1)), rng.standard_normal((200_000, 6))
    drawn = np.sqrt(0.4) * common + np.sqrt(0.6) * own
    variance = np.mean(drawn**2, axis=1).var()
    correlations = np.full((6, 6), 0.4) + 0.6 * np.eye(6)
    assert 2 / effective_number(correlations) == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize(("size", "beta"), [(3, 0.5), (5, 0.4), (6, 0.5)])
def test_loops_give_the_mean_over_many_systems(size: int, beta: float) -> None:
    """Plain sums over the states of couplings drawn here."""
    rng = np.random.default_rng(5)
    states = np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    pairs = np.array(list(itertools.combinations(range(size), 2)))
    products = states[:, pairs[:, 0]] * states[:, pairs[:, 1]]
    couplings = rng.standard_normal((100_000, len(pairs))) / np.sqrt(size)
    log_z = np.log(np.exp(beta * couplings @ products.T).sum(axis=1))
    # Less what varies most, whose mean is exactly zero or known.
    control = 0.5 * beta**2 * ((couplings**2).sum(axis=1) - (size - 1) / 2)
    rest = log_z - control - size * (np.log(2.0) + beta**2 / 4)
    error = rest.std() / np.sqrt(len(rest))
    assert error < 4e-4
    assert abs(rest.mean() - rest_by_loops(size, beta=beta)) < 4 * error + beta**10 / size


def test_loops_of_two_spins_and_limits_of_mean_squares() -> None:
    drawn = np.random.default_rng(0).standard_normal(4_000_000) / np.sqrt(2)
    exact = np.log(np.cosh(0.8 * drawn)).mean() - 2 * 0.8**2 / 4
    assert rest_by_loops(2, beta=0.8) == pytest.approx(exact, abs=3e-4)
    assert rest_by_loops(10**6, beta=0.7) == pytest.approx(0.25 * np.log(0.51), abs=1e-5)
    drawn = (np.random.default_rng(1).standard_normal((20_000, 12)) ** 2).mean(axis=1)
    low, high = mean_square_limits(12, level=0.9)
    assert np.mean(drawn < low) == pytest.approx(0.05, abs=0.006)
    assert np.mean(drawn > high) == pytest.approx(0.05, abs=0.006)
