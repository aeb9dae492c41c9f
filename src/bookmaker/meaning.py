"""What the code of a chapter means: a digest that a comment, a docstring or a format leaves alone.

The digest covers the code cells and every module of the checkout that they need, as syntax trees
without comments and docstrings, and the data files beside those modules. It does not depend on
the version of Python that computes it. The `__init__` of a package gives its modules and says
what it is: it decides no number.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

SOURCE = Path(__file__).resolve().parents[1]
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Where a name stands, comments on types, and how a string was prefixed: not part of the meaning.
_SKIPPED = {"ctx", "type_ignores", "type_comment", "kind"}


def code_digest(notebook: NotebookNode) -> str:
    """Return the SHA-256 of what the code cells mean, with what they import from the checkout."""
    sources = [cell.source for cell in code_cells(notebook) if not has_tag(cell, "install")]
    waiting = set[Path]().union(*(imported(cell_tree(source)) for source in sources))
    files: dict[Path, bytes] = {}
    while waiting:
        file = waiting.pop()
        files[file], needed = _module(file, file.stat().st_mtime_ns)
        waiting |= needed - files.keys()
        for path in set(file.parent.glob("[!.]*.*[!~]")) - files.keys():
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                files[path] = path.read_bytes().replace(b"\r\n", b"\n")
    parts = [cell_meaning(source).encode() for source in sources]
    for file in sorted(files):
        parts += [file.relative_to(SOURCE).as_posix().encode(), files[file]]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def outputs_digest(notebook: NotebookNode) -> str:
    """Return the SHA-256 of the outputs and execution counts of the code cells."""
    results = [[cell.execution_count, cell.outputs] for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_tag(cell: NotebookNode, tag: str) -> bool:
    """Return whether a cell carries `tag`."""
    return tag in cell.metadata.get("tags", [])


def python_source(source: str) -> str:
    """Return a cell with its magics written as the calls that IPython makes of them."""
    return TransformerManager().transform_cell(source)


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
    # A string alone in a cell is shown, and a semicolon at the end keeps a value from being shown.
    return meaning(cell_tree(source).body) + ";" * source.rstrip().endswith(";")


def meaning(node: object) -> str:
    """Return a syntax tree in words, without docstrings and what only some Pythons write."""
    if isinstance(node, list):
        return f"[{','.join(map(meaning, node))}]"
    if isinstance(node, ast.Constant) or not isinstance(node, ast.AST):
        return repr(getattr(node, "value", node))
    fields = dict(ast.iter_fields(node))
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
    # Newer versions of Python add fields that are empty in older code.
    told = {k: v for k, v in fields.items() if k not in _SKIPPED and v not in (None, [])}
    return f"{type(node).__name__}({','.join(f'{k}={meaning(v)}' for k, v in told.items())})"


def imported(tree: ast.Module) -> set[Path]:
    """Return the files of the checkout that some code imports itself."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {SOURCE / f"{name.replace('.', '/')}.py" for name in names}
    return {path for path in paths if path.is_file()}


@cache
def _module(path: Path, _changed: int) -> tuple[bytes, set[Path]]:
    """Return the digest of what a module means, and the files that it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return hashlib.sha256(meaning(tree).encode()).digest(), imported(tree)
