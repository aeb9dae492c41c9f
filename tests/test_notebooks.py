"""Every chapter: up to date, clean outputs, alt text, and running with other parameters.

That the default parameters reproduce the committed numbers is nbval's part of the test run.
"""

import json
from pathlib import Path

import matplotlib
import pytest
from small_runs import FOLDER, differences, gives

from bookmaker.checking import all_faults
from bookmaker.places import read_place
from bookmaker.source import chapters, read_notebook
from spinformer.language.minilm import ModelUnavailable

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = chapters(ROOT)
every_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=[c.name for c in CHAPTERS])


def test_no_chapter_lacks_anything_and_no_file_of_the_book_has_a_fault():
    """A stale notebook, one without source, a figure without words, a row without its test."""
    assert [str(fault) for fault in all_faults(ROOT)] == []


@every_chapter
def test_cells_ran_in_order_and_no_link_is_empty(chapter):
    """Which outputs are clean `check` says, of all chapters, in the test before."""
    cells = read_notebook(chapter.notebook_path).cells
    for cell in cells:
        # A link within a chapter can be read outside of the book.
        assert cell.cell_type != "markdown" or "[](#" not in cell.source, cell.id
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@every_chapter
def test_runs_with_other_parameters(chapter):
    """And gives what it gave: of further chapters the whole run is compared at night only."""
    try:
        given, drawn = gives(chapter)
    except ModelUnavailable as error:
        pytest.skip(str(error))
    assert drawn or not read_place(chapter).figure
    path = FOLDER / f"{chapter.name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        again = f"if it is right, keep it: python tests/small_runs.py {chapter.name}"
        assert differences(given, kept) == [], again
