"""Every chapter: up to date, clean outputs, alt text, and running with other parameters.

That the default parameters reproduce the committed numbers is nbval's part of the test run.
"""

import linecache
import sys
import warnings
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest
import torch
from IPython.display import display

from bookmaker.checking import all_faults
from bookmaker.places import read_place
from bookmaker.source import chapters, has_tag, python_source, read_notebook
from spinformer.language.minilm import ModelUnavailable

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

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
def test_runs_with_other_parameters(chapter, monkeypatch):
    place = read_place(chapter)
    figures: list[Figure] = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()) or plt.close("all"))
    try:
        run_here(chapter, chapter.parameter_cell.small)
    except ModelUnavailable as error:
        pytest.skip(str(error))
    assert figures or not place.figure


def run_here(chapter, values):
    """Run the cells of a chapter in this process: what chapters share is compiled only once.

    nbval runs every chapter in a kernel of its own; that papermill passes the values on is tested
    with a small chapter. A warning is an error here as in every test.
    """
    # Classes that a cell defines look for their module.
    module = ModuleType("chapter")
    # A kernel offers this without an import.
    module.__dict__["display"] = display
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(), warnings.catch_warnings():
        # Python shows this one to the developers of a library only.
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.setitem(sys.modules, "chapter", module)
        threads = torch.get_num_threads()
        for cell in chapter.template.cells:
            if cell.cell_type == "code" and not has_tag(cell, "install"):
                name = f"{chapter.name}, {cell.id}"
                code = python_source(cell.source)
                # So that a traceback shows the lines of the cell.
                linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
                exec(compile(code, name, "exec"), module.__dict__)
                if has_tag(cell, "parameters"):
                    module.__dict__.update(values)
        torch.set_num_threads(threads)
