"""Which cells of a chapter show what was read from a stored table, which no parameter changes.

Read from the code alone: a name is stored if it is assigned from `TABLE.read()`, from a stored
name, or by a function of the chapter's studies that reads a table. A cell that uses one is marked,
even if it computes something beside it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from bookmaker.source import cell_tree, code_cells

READ = "read"
STUDIES = "compendium."


def stored_cells(root: Path, notebook: NotebookNode) -> set[str]:
    """Return the ids of the code cells that use what was read from a stored table."""
    stored: set[str] = set()
    marked = set()
    for cell in code_cells(notebook):
        try:
            tree = cell_tree(cell.source)
        except SyntaxError:
            continue  # a cell that a run has stopped at says so itself
        shows = False
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom):
                stored |= _imported(root, statement)
            elif _is_stored(statement, stored):
                stored |= set(_targets(statement))
                shows = True
            else:
                stored -= set(_targets(statement))
        if shows:
            marked.add(cell.id)
    return marked


def _imported(root: Path, statement: ast.ImportFrom) -> set[str]:
    """Return the names that a statement imports of functions that read a stored table."""
    module = statement.module or ""
    path = (root / "src" / module.replace(".", "/")).with_suffix(".py")
    if not module.startswith(STUDIES) or not path.is_file():
        return set()
    readers: set[str] = set()
    # Once more, for functions that call one which stands below them.
    for _ in range(2):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and _is_stored(node, readers):
                readers.add(node.name)
    return {name.asname or name.name for name in statement.names if name.name in readers}


def _is_stored(tree: ast.AST, stored: set[str]) -> bool:
    """Return whether a stored name, or a call `TABLE.read()`, stands in some code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in stored:
            return True
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == READ:
            return True
    return False


def _targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, its loops' and functions' too."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef):
            yield node.name
