"""Every chapter shows its subject in a few open cells that run in an empty notebook.

That they give what the package gives is tested beside each chapter, by `run_open_cells`.
"""

import ast

import pytest
from open_cells import LIBRARIES, LONGEST, MOST, ROOT, imported, run_open_cells, sources

from bookmaker.source import Chapter, chapters

NAMES = [chapter.name for chapter in chapters(ROOT)]


def assigned(source):
    """Names that a cell gives a value, outside of its functions."""
    return {
        node.id
        for statement in ast.parse(source).body
        if not isinstance(statement, ast.FunctionDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


@pytest.mark.parametrize("name", NAMES)
def test_open_cells_are_few_short_and_alone(name):
    cells = sources(name)
    assert 1 <= len(cells) <= MOST
    for source in cells:
        assert len(source.strip().splitlines()) <= LONGEST
        assert imported(source) <= LIBRARIES
    # In the chapter they run among its other cells, whose parameters they must not move.
    given = set(Chapter(ROOT, name).parameter_cell.parameters)
    assert not given & set().union(*map(assigned, cells))


@pytest.mark.parametrize("name", NAMES)
def test_open_cells_run_in_an_empty_notebook(name):
    run_open_cells(name)
    tests = (ROOT / "tests/chapters" / f"test_{name}.py").read_text("utf-8")
    assert f'run_open_cells("{name}")' in tests
