"""What a run with other parameters marks: the cells that show what a stored table holds."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookmaker.execution import STORED, mark_stored
from bookmaker.provenance import stored_cells

STUDY = """\
def size(table):
    return len(table)

def curve():
    return rates() / 2

def rates():
    return RATES.read()["rate"]
"""


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "src" / "compendium" / "c01_small" / "study.py"
    path.parent.mkdir(parents=True)
    path.write_text(STUDY, encoding="utf-8")
    return tmp_path


def notebook(*sources):
    shown = new_output("display_data", data={"text/plain": "1"})
    cells = [
        new_code_cell(source, id=f"c{place}", outputs=[shown])
        for place, source in enumerate(sources)
    ]
    return new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("sources", "marked"),
    [
        (["TABLE.read()"], [0]),
        (["rows = TABLE.read()", "print(beta)", "rows['x']"], [0, 2]),
        (["for row in TABLE.read():\n    last = row", "last"], [0, 1]),
        # What is computed from it is stored, too; a name that is bound anew is not.
        (["rows = TABLE.read()", "low = min(rows)", "rows = run(beta)", "rows", "low"], [0, 1, 4]),
        (["def rate():\n    return TABLE.read()", "rate()"], [0, 1]),
        (["from compendium.c01_small.study import curve, size", "curve()", "size([])"], [1]),
        (["from compendium.c01_small.study import rates as r", "r()"], [1]),
        (["from compendium.c01_small.other import rates", "rates()", "file.read(3)"], []),
        (["for in", "TABLE.read()"], [1]),
    ],
)
def test_cells_that_use_a_stored_table_are_known_by_their_code(root, sources, marked):
    assert stored_cells(root, notebook(*sources)) == {f"c{place}" for place in marked}


def test_the_mark_stands_below_what_is_shown(root):
    made = notebook("rows = TABLE.read()", "print(beta)", "rows")
    made.cells[0].outputs = []
    mark_stored(root, made)
    assert [cell.source for cell in made.cells] == [
        "rows = TABLE.read()",
        "print(beta)",
        "rows",
        STORED,
    ]
