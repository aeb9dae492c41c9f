"""Stored tables: what their columns are, what an interruption leaves, what is refused."""

import numpy as np
import pytest

from bookmaker.tables import Table


def test_columns_keep_their_kinds_and_rows_their_order(tmp_path):
    table = Table(
        path=tmp_path / "kinds.csv",
        units=[{"arm": "plain", "seed": 3}, {"arm": "with, comma", "seed": 1}],
        rows=lambda arm, seed: [{"value": seed / 3, "none": float("nan")}],
    )
    table.make()
    found = table.read()
    assert list(found) == ["arm", "seed", "value", "none"]
    assert list(found["arm"]) == ["plain", "with, comma"]
    assert found["seed"].dtype == np.int64
    np.testing.assert_allclose(found["value"], [1.0, 0.333333], rtol=1e-12)
    assert np.isnan(found["none"]).all()
    assert table.path.read_text("utf-8").startswith(f"# {table.command}\n")


def test_an_interrupted_table_goes_on_and_the_old_one_stays_until_the_new_is_whole(tmp_path):
    calls = []
    path = tmp_path / "sums.csv"
    path.write_text("# old\nseed\n7\n", "utf-8")

    def rows(seed):
        calls.append(seed)
        if seed == 2 and calls.count(2) == 1:
            raise KeyboardInterrupt
        return [{"twice": 2 * seed}]

    table = Table(path=path, units=[{"seed": seed} for seed in range(4)], rows=rows)
    with pytest.raises(KeyboardInterrupt):
        table.make()
    assert list(table.read()["seed"]) == [7]
    table.make()
    assert calls == [0, 1, 2, 2, 3]
    assert list(table.read()["twice"]) == [0, 2, 4, 6]
    assert [file.name for file in tmp_path.iterdir()] == ["sums.csv"]


def test_rows_of_other_columns_and_a_missing_table_are_refused(tmp_path):
    table = Table(
        path=tmp_path / "odd.csv",
        units=[{"seed": 0}, {"seed": 1}],
        rows=lambda seed: [{"a" if seed else "b": 0}],
    )
    with pytest.raises(ValueError, match="fieldnames"):
        table.make()
    with pytest.raises(FileNotFoundError, match="odd"):
        table.read()
