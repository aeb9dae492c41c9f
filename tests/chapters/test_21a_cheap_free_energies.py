"""Chapter 21a: what its rows state, by other simulation and and the glass."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from open_cells import run_open_cells
from scipy.integrate import quad
from scipy.stats import norm

from bookmaker.source import Chapter
from bookmaker.sweeping import read_points
from bookmaker.tables import read_columns
from compendium.c21a_cheap_free_energies import settings, study
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.mean_field import belief_propagation, solve_mean_field
from spinformer.spins.monte_carlo import parallel_tempering, sample_ising
from spinformer.spins.replica_symmetry import almeida_thouless_beta, replica_symmetric_state

ROOT = Path(__file__).resolve().parents[2]
# The chapter's figures of B7 at many seeds.
CHEAP = Path(study.__file__).with_name("cheap.csv")


def test_the_chapter_at_other_seeds():
    """The command of the sweep asks for the rows that are there, and at each B7 is met."""
    table = read_columns(CHEAP)
    first = CHEAP.read_text(encoding="utf-8").splitlines()[0]
    match = re.search(r"sweep (\w+) -p (\w+) (\S+) -o", first)
    assert match is not None
    points = read_points(Chapter(ROOT, match[1]), {match[2]: match[3]})
    assert [point.values["seed"] for point in points] == table["seed"].tolist()
    assert len(points) == 24
    assert (table["B7.naive"] > 5 * table["B7.tap"]).all()
    assert (table["B7.tap"] < 0.015).all()


@pytest.mark.nightly
def test_a_row_of_the_sweep_computed_again():
    table = read_columns(CHEAP)
    seed = int(table["seed"][20]) + 2
    couplings, fields = sherrington_kirkpatrick(16, seed=seed, count=40, field_std=0.5)
    for beta, method in ((0.5, "naive"), (0.5, "tap"), (1.0, "adaptive")):
        truth = solve_exact(couplings, fields=fields, beta=beta)
        moments, _, _ = study.approximation_errors(
            couplings, fields=fields, beta=beta, method=method, truth=truth
        )
        assert np.median(moments) == pytest.approx(table[f"B7.{method}"][20], rel=0.06)


def test_the_open_cells_give_the_solutions():
    cells = run_open_cells("21a_cheap_free_energies")
    system = {"fields": cells["two_fields"], "beta": 1.0}
    for theory, *solution in (
        ("naive", *cells["solutions"]["naive"]),
        ("tap", *cells["solutions"]["TAP"]),
    ):
        found = solve_mean_field(cells["two_couplings"], method=theory, **system)
        assert solution == pytest.approx(
            [*found.magnetization, float(found.log_partition)], abs=1e-8
        )


def _errors(kind, size, copies, sweeps=800):
    """Mean squared errors against the other sampler of the package, two runs a system."""
    wrong = []
    for copy in range(copies):
        couplings, fields = study.draw_system(kind, size=size, seed=10_000 + 97 * copy + size)
        system = {"fields": fields, "beta": study.BETAS[kind]}
        run = {"sweeps": sweeps, "burn_in": 100, "chains": 2, **system}
        one = sample_ising(couplings, **run, seed=copy).magnetization.value
        other = sample_ising(couplings, **run, seed=copy + 50).magnetization.value
        found = [solve_mean_field(couplings, **system, method=m).value for m in study.THEORIES[:-1]]
        found.append(belief_propagation(couplings, **system).value)
        wrong.append([np.mean((m - one) * (m - other)) for m in found])
    return dict(zip(study.THEORIES, np.mean(wrong, axis=0), strict=True))


@pytest.mark.claim("B7b")
def test_which_theory_becomes_exact_by_other_simulation():
    small = _errors("gaussian", 24, 8)
    large = _errors("gaussian", 150, 3)
    assert large["naive"] > 0.5 * small["naive"]
    assert large["tap"] < 0.4 * small["tap"]
    assert large["adaptive"] < 0.3 * large["tap"]
    for kind in ("patterns", "rotated"):
        found = _errors(kind, 150, 2)
        assert found["adaptive"] < 0.15 * found["tap"], kind
    # Short loops, which beliefs do not see, are fewer in a larger graph; the error of the others
    # has nothing to do with them.
    little = _errors("sparse", 24, 12, 2000)
    sparse = _errors("sparse", 250, 2, 2000)
    assert sparse["beliefs"] < 0.6 * little["beliefs"]
    assert sparse["adaptive"] > 0.5 * little["adaptive"]


@pytest.mark.claim("B7c")
def test_the_susceptibility_by_other_means():
    # The estimator from four copies against the exact correlations of a small system.
    couplings, fields = sherrington_kirkpatrick(9, seed=3, field_std=0.3)
    run = parallel_tempering(
        couplings, fields=fields, betas=np.array([0.5, 1.2]), sweeps=20_000, burn_in=100, replicas=4
    )
    exact = solve_exact(couplings, fields=fields, beta=1.2)
    assert study.glass_susceptibility(run.overlaps[:, 1], size=9) == pytest.approx(
        (exact.susceptibility**2).sum() / 9, rel=0.05
    )
    # The stored averages, unweighted.
    table = study.OVERLAPS.read()
    rows = (table["beta"] == 0.8) & (table["size"] == 256)
    limit = replica_symmetric_state(0.8, field_std=0.2).susceptibility
    assert table["susceptibility"][rows].mean() == pytest.approx(limit, abs=0.3)
    assert table["halves"].mean() == pytest.approx(1.0, abs=0.02)


def test_adaptive_tap_falls_faster_than_the_others():
    """The stored errors by an unweighted fit of their means; medians of sizes 64 against 512."""
    table = study.errors_table.read()
    at = {n: (table["kind"] == "gaussian") & (table["size"] == n) for n in np.unique(table["size"])}
    slopes = {}
    fallen = {}
    for theory in ("tap", "adaptive", "beliefs"):
        means = {n: table[theory][rows].mean() for n, rows in at.items()}
        seen = np.log([(n, mean) for n, mean in means.items() if mean > 0])
        slopes[theory] = np.polyfit(*seen.T, 1)[0]
        few = np.median(table[theory][at[64]])
        many = np.median(table[theory][at[512]])
        fallen[theory] = np.log(few / many) / np.log(8)
    assert slopes["adaptive"] < min(-1.3, slopes["tap"] - 0.3)
    assert min(slopes["tap"], slopes["beliefs"]) > -1.3
    assert fallen["adaptive"] > 1.3 > fallen["tap"]


def test_the_squared_error_carries_no_noise():
    rng = np.random.default_rng(0)
    truth = rng.uniform(-1, 1, 400)
    values = [
        study.squared_error(truth + 0.1, copies=truth + 0.5 * rng.standard_normal((4, 400)))
        for _ in range(200)
    ]
    assert np.mean(values) == pytest.approx(0.01, abs=4 * np.std(values) / np.sqrt(200))


def test_exponents_own_up_to_scatter():
    for key, fall in study.fall_of_errors().items():
        keep = fall.value > fall.error
        x = np.log(fall.sizes[keep])
        y = np.log(fall.value[keep])
        weights = (fall.value / fall.error)[keep]
        fits = [np.polyfit(x, y, 1, w=weights, cov=how) for how in ("unscaled", True)]
        assert fall.slope.value == pytest.approx(fits[0][0][0]), key
        assert fall.slope.error == pytest.approx(max(cov[0, 0] ** 0.5 for _, cov in fits)), key


def test_ensembles_have_unit_rows_and_their_spectra():
    memory = study.draw_system("patterns", size=600, seed=1)[0]
    rotated = study.draw_system("rotated", size=600, seed=1)[0]
    graph = study.draw_system("sparse", size=600, seed=1)[0]
    for j in (memory, rotated, graph):
        assert (j == j.T).all()
        assert not np.diagonal(j).any()
        assert (j**2).sum(1).mean() == pytest.approx(1, abs=0.02)
    assert ((graph != 0).sum(1) == 4).all()
    off = np.abs(np.abs(np.linalg.eigvalsh(rotated)) - 1)
    assert off.max() < 0.2
    assert off.mean() < 0.05
    # Marchenko and Pastur: eigenvalues of the memory end at (1 + sqrt 2)^2/sqrt 2 - sqrt 2.
    assert np.linalg.eigvalsh(memory)[-1] == pytest.approx(
        (1 + np.sqrt(2)) ** 2 / np.sqrt(2) - np.sqrt(2), abs=0.1
    )
    assert not np.array_equal(graph, study.draw_system("sparse", size=600, seed=2)[0])


def test_exact_sums_approach_the_limit_as_one_over_the_size():
    beta = 0.8
    std = 0.5
    limit = replica_symmetric_state(beta, field_std=std)
    squares = []
    for size, count in ((6, 4000), (12, 1000)):
        couplings, fields = sherrington_kirkpatrick(size, seed=1, count=count, field_std=std)
        exact = solve_exact(couplings, fields=fields, beta=beta)
        spread = (exact.susceptibility**2).sum((1, 2)) / size
        squares.append(float(spread.mean()))
    # Extrapolated as a + b/N the difference goes away.
    assert squares[0] < squares[1] < limit.susceptibility
    assert 2 * squares[1] - squares[0] == pytest.approx(limit.susceptibility, abs=0.12)


def test_the_line_without_a_field_near_it_and_on_it():
    assert almeida_thouless_beta() == 1.0
    assert replica_symmetric_state(0.9).susceptibility == pytest.approx(1 / (1 - 0.81))
    # q = (b - 1) + O((b-1)^2) just beyond the edge, and no stable state there.
    cold = replica_symmetric_state(1.02)
    assert cold.overlap == pytest.approx(0.02, rel=0.1)
    assert cold.stability > 1.0
    assert cold.susceptibility == np.inf
    line = [almeida_thouless_beta(field_std=h) for h in (0.2, 0.5, 1.0)]
    assert line == sorted(line)
    for h, beta in zip((0.2, 0.5, 1.0), line, strict=True):
        assert replica_symmetric_state(beta, field_std=h).stability == pytest.approx(1, abs=1e-8)
    # At low temperature q → 1, and E sech⁴ u is 4/3 of the density of u at zero.
    strong = 0.75 * np.sqrt(2.0 * np.pi) * np.hypot(1.0, 100.0)
    assert almeida_thouless_beta(field_std=100.0) == pytest.approx(strong, rel=1e-6)
    with pytest.raises(ValueError, match="field_std must be a finite number in"):
        almeida_thouless_beta(field_std=101.0)


CASES = [(0.8, 0.5), (1.7, 0.0), (3.0, 1.0), (20.0, 5.0), (20.0, 50.0), (3.0, 900.0)]


@pytest.mark.parametrize(("beta", "std"), CASES)
def test_the_state_by_other_quadrature(beta, std):
    """q and the stability over u = β(field), on whose scale sech² is smooth however cold."""
    found = replica_symmetric_state(beta, field_std=std)
    width = beta * np.hypot(np.sqrt(found.overlap), std)

    def average(power):
        def weighed(u):
            return norm.pdf(u, scale=width) / np.cosh(u) ** power

        return 2 * quad(weighed, 0, 40, epsabs=1e-13, limit=200)[0]

    assert 1 - found.overlap == pytest.approx(average(2), rel=1e-8)
    assert found.stability == pytest.approx(beta**2 * average(4), rel=1e-8)


def test_bad_input_is_named():
    for change in ({"beta": 21.0}, {"field_std": 2000.0}):
        with pytest.raises(ValueError, match=next(iter(change))):
            replica_symmetric_state(**{"beta": 1.0} | change)


def test_a_line_of_widths_by_hand():
    """One group: weighted least squares in logarithms, and the side that is asked for."""
    pools = [study.OVERLAPS.read(), study.OVERLAPS_AGAIN.read()]
    table = {name: np.concatenate([pool[name] for pool in pools]) for name in pools[0]}
    for beta, sign in ((0.8, -1), (3.0, 1)):
        here = (table["beta"] == beta) & (table["copy"] % 12 == 4)
        sizes, logs, weights = [], [], []
        for size in np.unique(table["size"]):
            spread = table["spread"][here & (table["size"] == size)]
            error = spread.std(ddof=1) / len(spread) ** 0.5
            sizes.append(np.log(size))
            logs.append(np.log(spread.mean()))
            weights.append(spread.mean() / error)
        slope = np.polyfit(sizes, logs, 1, w=weights)[0]
        line = settings.settings_b7c.rows(beta=beta, group=4)[0]
        assert line["value"] == pytest.approx(sign * (slope + 1 / 3), abs=1e-6)
        assert line["low"] < line["value"] < line["high"]


def test_groups_that_confirm_are_fresh_systems_and_give_back_known_exponents(monkeypatch):
    """Errors and widths that are powers of N, of which the lines must say by how much they fall."""
    power = {"naive": 0.0, "tap": 1.0, "adaptive": 1.6, "beliefs": 2.3, "saddle": 0.5}
    seeds = []

    def scatter(seed):
        return 1.1 if seed % 2 else 0.9

    sizes = np.repeat([32, 64, 192], 6)
    scattered = np.array([scatter(number) for number in range(len(sizes))])
    table = {name: scattered * sizes**-one for name, one in power.items()} | {"size": sizes}
    for clause, (_, theory, rival, bound) in settings.CLAUSES.items():
        row = settings.clause_row(clause, table, np.full(len(sizes), True))
        if rival is None:
            away = -power[theory] - bound
            wanted = away if theory == "naive" else -away
        else:
            wanted = power[theory] - power[rival] - bound
        assert row["value"] == pytest.approx(wanted, abs=0.02)

    def run(size, *, sweeps, seed, ladder):
        seeds.append(seed)
        # At β = 0.6 like N^(−1/2), and the slower the colder.
        spread = scatter(seed) * size ** (-0.5 + 0.1 * (ladder - 0.6))
        wave = np.tile([1.0, -1.0], 10)
        return SimpleNamespace(overlaps=wave[:, None] * spread)

    monkeypatch.setattr(settings, "overlap_run", run)
    for group in range(12):
        for row in settings.confirm_b7c.rows(group):
            assert row["value"] == pytest.approx(1 / 6 - 0.1 * (row["beta"] - 0.6), abs=0.02)
    assert len(set(seeds)) == len(seeds)


def test_errors_are_per_spin(monkeypatch):
    """Two copies of a system that do not touch have its errors, of ln Z per spin, too."""
    couplings, fields = sherrington_kirkpatrick(5, seed=3, field_std=0.5)
    twice = np.kron(np.eye(2), couplings)
    errors = []
    for one, field in ((couplings, fields), (twice, np.tile(fields, 2))):
        truth = solve_exact(one, fields=field, beta=0.8)
        found = study.approximation_errors(one, fields=field, beta=0.8, method="naive", truth=truth)
        errors.append([float(found[0]), float(found[1])])
        # Naive theory is a lower bound of ln Z.
        assert errors[-1][1] < -1e-3
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)
