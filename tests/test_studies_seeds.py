"""The sweep of chapter 21 over its seed: one row again, and the mean that it is held against."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from spinformer.chapters.points import read_points
from spinformer.chapters.source import Chapter
from spinformer.studies.seeds import (
    COMMAND,
    free_energy_rest,
    mean_square_limits,
    read_seeds,
    rest_by_loops,
)

ROOT = Path(__file__).resolve().parents[1]


def test_a_row_computed_again() -> None:
    table = read_seeds()
    row = 3
    found = free_energy_rest(16, beta=0.5, systems=200, seed=int(table["seed"][row]) + 1)
    assert abs(found.value - table["B2.log_z"][row]) < 6e-5
    assert abs(found.error - table["B2.log_z_error"][row]) < 6e-5


def test_the_command_asks_for_the_rows_that_are_stored() -> None:
    match = re.search(r"sweep (\w+) -p (\w+) (\S+) -o", COMMAND)
    assert match is not None
    points = read_points(Chapter(ROOT, match[1]), [(match[2], match[3])])
    assert [point.values["seed"] for point in points] == read_seeds()["seed"].tolist()


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


def test_loops_of_two_spins_and_of_very_many() -> None:
    drawn = np.random.default_rng(0).standard_normal(4_000_000) / np.sqrt(2)
    exact = np.log(np.cosh(0.8 * drawn)).mean() - 2 * 0.8**2 / 4
    assert rest_by_loops(2, beta=0.8) == pytest.approx(exact, abs=3e-4)
    assert rest_by_loops(10**6, beta=0.7) == pytest.approx(0.25 * np.log(0.51), abs=1e-5)


def test_limits_hold_the_mean_square_of_normal_numbers() -> None:
    drawn = (np.random.default_rng(1).standard_normal((20_000, 12)) ** 2).mean(axis=1)
    low, high = mean_square_limits(12, level=0.9)
    assert np.mean(drawn < low) == pytest.approx(0.05, abs=0.006)
    assert np.mean(drawn > high) == pytest.approx(0.05, abs=0.006)
