"""What the code of a chapter means: a digest that a comment, a docstring or a format leaves alone.

The digest covers the code cells and every module of the checkout that they need, as syntax trees
without comments and docstrings, and the data files beside those modules. It does not depend on
the version of Python that computes it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

SOURCE = Path(__file__).resolve().parents[1]
# What a chapter may import of the checkout.
PACKAGES = ("spinformer", "compendium", "bookmaker")

# A dotted module.
Parts = tuple[str, ...]

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Where a name stands, comments on types, and how a string was prefixed: not part of the meaning.
_SKIPPED = {"ctx", "type_ignores", "type_comment", "kind"}


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """Return the SHA-256 of what the code cells mean, with what they import from the package."""
    sources = [cell.source for cell in code_cells(notebook) if not has_tag(cell, "install")]
    sha = hashlib.sha256()
    for source in sources:
        sha.update(cell_meaning(source).encode() + b"\0")
    for path in imported_files(map(cell_tree, sources)):
        sha.update(path.relative_to(SOURCE).as_posix().encode() + b"\0")
        sha.update(_file_meaning(path, path.stat().st_mtime_ns))
    return sha.hexdigest()


def outputs_digest(notebook: nbformat.NotebookNode) -> str:
    """Return the SHA-256 of the outputs and execution counts of the code cells."""
    results = [[cell.execution_count, cell.outputs] for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_tag(cell: nbformat.NotebookNode, tag: str) -> bool:
    """Return whether a cell carries `tag`."""
    return tag in cell.metadata.get("tags", [])


def python_source(source: str) -> str:
    """Return a cell with its magics written as the calls that IPython makes of them."""
    try:
        ast.parse(source)
    except SyntaxError:
        return TransformerManager().transform_cell(source)
    return source


@cache
def cell_tree(source: str) -> ast.Module:
    """Return the syntax tree of a cell; SyntaxError if it has none."""
    return ast.parse(python_source(source))


def cell_meaning(source: str) -> str:
    """Return what a cell means, equal for cells that do the same.

    >>> cell_meaning("x = [1,2]  # two") == cell_meaning("x = [\\n    1,\\n    2,\\n]")
    True
    >>> cell_meaning("x = 1") == cell_meaning("x = 2")
    False
    """
    tree = cell_tree(source)
    # A string alone in a cell is shown, and a semicolon at the end keeps a value from being shown.
    code = [line for line in source.splitlines() if line.strip() and line.strip()[0] != "#"]
    quiet = bool(code) and code[-1].partition("#")[0].rstrip().endswith(";")
    return f"{_canonical(tree, documented=False)}{';' if quiet else ''}"


def module_meaning(source: str) -> str:
    """Return what a module means: its syntax tree without comments and docstrings.

    >>> module_meaning('def f(x):\\n    "Twice."\\n    return 2 * x') == module_meaning(
    ...     "def f(x):  # twice\\n    return (2 * x)"
    ... )
    True
    """
    return _canonical(ast.parse(source))


def imported_files(trees: Iterable[ast.Module]) -> list[Path]:
    """Return the files of the package that code needs, directly or through one another."""
    waiting = {
        file for tree in trees for module in _modules(tree, ()) for file in _files(module, SOURCE)
    }
    found = set[Path]()
    while waiting:
        file = waiting.pop()
        found.add(file)
        if file.suffix == ".py":
            waiting |= _needs(file, file.stat().st_mtime_ns) - found
    return sorted(found)


def module_tree(name: str) -> ast.Module | None:
    """Return the syntax tree of a module of the checkout, None if there is no such module."""
    path = _file(tuple(name.split(".")), SOURCE)
    return _tree(path, path.stat().st_mtime_ns) if path else None


@cache
def _tree(path: Path, _changed: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _canonical(node: object, *, documented: bool = True) -> str:
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, list):
        return f"[{','.join(map(_canonical, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name in node._fields:
        value = getattr(node, name, None)
        if documented and name == "body" and isinstance(node, _DOCUMENTED):
            value = _without_docstring(node.body)
        if isinstance(node, ast.JoinedStr):
            value = [part for part in node.values if getattr(part, "value", None) != ""]
        # Newer versions of Python add fields that are empty in older code.
        if name not in _SKIPPED and value not in (None, []):
            parts.append(f"{name}={_canonical(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return body[1:] if isinstance(first.value.value, str) else body
    return body


@cache
def _file_meaning(path: Path, changed: int) -> bytes:
    if path.suffix == ".py":
        return hashlib.sha256(_canonical(_tree(path, changed)).encode()).digest()
    data = path.read_bytes()
    if b"\0" not in data:
        data = data.replace(b"\r\n", b"\n")
    return hashlib.sha256(data).digest()


@cache
def _needs(path: Path, changed: int) -> set[Path]:
    package = path.relative_to(SOURCE).parent.parts
    modules = set(_modules(_tree(path, changed), package))
    return {file for module in modules for file in _files(module, SOURCE)}


@cache
def _files(module: Parts, source: Path) -> set[Path]:
    """Return the file of a module, and the data of the packages on the way to it.

    The `__init__` of a package gives its modules and says what it is: it decides no number.
    """
    found = set[Path]()
    for depth in range(1, len(module) + 1):
        path = _file(module[:depth], source)
        if path is None:
            break
        found |= (
            set(filter(_is_data, path.parent.glob("*.*"))) if path.stem == "__init__" else {path}
        )
    return found


def _file(module: Parts, source: Path) -> Path | None:
    """Return where a module or package of the checkout is written."""
    plain = source.joinpath(*module).with_suffix(".py")
    init = source.joinpath(*module, "__init__.py")
    return next((path for path in (plain, init) if path.is_file()), None)


def _is_data(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name.endswith("~")
    return path.is_file() and path.suffix not in (".py", ".pyc") and not hidden


def _modules(tree: ast.AST, package: Parts) -> Iterator[Parts]:
    """Yield what `tree` imports of the checkout, a module with each name that may be one below it.

    `package` is where relative imports start.
    """
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        # Statements alone: expressions import nothing.
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, block, ())
        if isinstance(node, ast.Import):
            found = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module or "").split("."))
            found = [(*filter(None, module), alias.name) for alias in node.names]
        else:
            continue
        yield from (parts for parts in found if parts[0] in PACKAGES)
