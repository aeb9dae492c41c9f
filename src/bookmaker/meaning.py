"""What the code of a chapter means: a digest that a comment, a docstring or a format leaves alone.

The digest covers the code cells and every module of the checkout that they need, as syntax trees
without comments and docstrings, and the data files beside those modules. It does not depend on
the version of Python that computes it.

Importing a module of the package defines names and does nothing else. An `__init__` that only
passes names on therefore counts as what it passes on: a chapter that takes one name from a room
does not depend on the rest of the room.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

SOURCE = Path(__file__).resolve().parents[1]
# What a chapter may import of the checkout.
PACKAGES = ("spinformer", "compendium", "bookmaker")

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Where a name stands, comments on types, and how a string was prefixed: not part of the meaning.
_SKIPPED = {"ctx", "type_ignores", "type_comment", "kind"}


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """Return the SHA-256 of what the code cells mean, with what they import from the package."""
    sources = [cell.source for cell in code_cells(notebook) if not has_tag(cell, "install")]
    sha = hashlib.sha256()
    for source in sources:
        sha.update(cell_meaning(source).encode() + b"\0")
    for path in imported_files("\n".join(map(python_source, sources))):
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
    return TransformerManager().transform_cell(source)


def cell_meaning(source: str) -> str:
    """Return what a cell means, equal for cells that do the same.

    >>> cell_meaning("x = [1,2]  # two") == cell_meaning("x = [\\n    1,\\n    2,\\n]")
    True
    >>> cell_meaning("x = 1") == cell_meaning("x = 2")
    False
    """
    tree = ast.parse(python_source(source))
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


def imported_files(code: str) -> list[Path]:
    """Return the files of the package that `code` needs, directly or through one another."""
    found: set[Path] = set()
    waiting = list(_references(ast.parse(code), ()))
    seen = set(waiting)
    while waiting:
        for file, more in _resolve(*waiting.pop()):
            found.add(file)
            waiting.extend(reference for reference in more if reference not in seen)
            seen.update(more)
    return sorted(found)


# A dotted module and a name in it ("" for all).
Reference = tuple[tuple[str, ...], str]


def module_tree(name: str) -> ast.Module | None:
    """Return the syntax tree of a module of the checkout, None if there is no such module."""
    parts = tuple(name.split("."))
    path = _plain(parts) if _plain(parts).is_file() else _init(parts)
    return _module_tree(path) if path.is_file() else None


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
def _file_meaning(path: Path, _changed: int) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".py":
        data = module_meaning(data.decode()).encode()
    elif b"\0" not in data:
        data = data.replace(b"\r\n", b"\n")
    return hashlib.sha256(data).digest()


@cache
def _tree(path: Path, _changed: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _module_tree(path: Path) -> ast.Module:
    return _tree(path, path.stat().st_mtime_ns)


def _file_references(path: Path, package: tuple[str, ...]) -> Sequence[Reference]:
    return _known_references(path, package, path.stat().st_mtime_ns)


@cache
def _known_references(path: Path, package: tuple[str, ...], _changed: int) -> Sequence[Reference]:
    return list(_references(_tree(path, _changed), package))


def _resolve(module: tuple[str, ...], name: str) -> Iterator[tuple[Path, Sequence[Reference]]]:
    """Yield files that a reference needs, each with the references it makes itself."""
    below = (*module, name)
    if name and (_init(below).is_file() or _plain(below).is_file()):
        module, name = below, ""
    # Importing a module runs the __init__ of every package above it.
    for depth in range(1, len(module) + 1):
        folder = SOURCE.joinpath(*module[:depth])
        init = folder / "__init__.py"
        if init.is_file():
            yield from ((path, ()) for path in folder.glob("*.*") if _is_data(path))
            if depth < len(module) and not _passes_names_on(init):
                yield init, _file_references(init, module[:depth])
    if _plain(module).is_file():
        yield _plain(module), _file_references(_plain(module), module[:-1])
    elif _init(module).is_file():
        references = _file_references(_init(module), module)
        if name and _passes_names_on(_init(module)):
            origin = _origin(_module_tree(_init(module)), module, name)
            if origin is not None:
                yield from _resolve(*origin)
                return
        yield _init(module), references


def _plain(module: tuple[str, ...]) -> Path:
    return SOURCE.joinpath(*module).with_suffix(".py")


def _init(module: tuple[str, ...]) -> Path:
    return SOURCE.joinpath(*module, "__init__.py")


def _is_data(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name.endswith("~")
    return path.is_file() and path.suffix not in (".py", ".pyc") and not hidden


def _passes_names_on(init: Path) -> bool:
    """Return whether a module holds nothing but imports, strings and plain constants."""
    for statement in _module_tree(init).body:
        constant = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) and all(
            isinstance(node, _HARMLESS) for node in ast.walk(statement)
        )
        if not constant and not isinstance(statement, ast.Import | ast.ImportFrom):
            return False
    return True


_HARMLESS = (
    ast.Assign,
    ast.AnnAssign,
    ast.Expr,
    ast.Name,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.expr_context,
)


def _references(tree: ast.AST, package: tuple[str, ...]) -> Iterator[Reference]:
    """Yield what `tree` imports from the package; `package` is where relative imports start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                if parts[0] in PACKAGES:
                    yield parts, ""
        elif isinstance(node, ast.ImportFrom):
            module = _source_module(node, package)
            if module is not None:
                for alias in node.names:
                    yield module, "" if alias.name == "*" else alias.name


def _source_module(node: ast.ImportFrom, package: tuple[str, ...]) -> tuple[str, ...] | None:
    parts = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        return (*package[: len(package) - node.level + 1], *parts)
    return parts if parts[:1] and parts[0] in PACKAGES else None


def _origin(tree: ast.Module, package: tuple[str, ...], name: str) -> Reference | None:
    """Return where an `__init__` takes `name` from, None if it does not pass it on."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = _source_module(node, package)
                if (alias.asname or alias.name) == name and module is not None:
                    return module, alias.name
    return None
