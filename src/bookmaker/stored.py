"""Which cells of a chapter print what a stored table holds, and not what their run computed.

A stored table (`bookmaker/tables.py`) does not depend on the parameters of a run. A number that a
cell prints from one is therefore no result of the run. Which cells do so follows from their code:
a table is read by `TABLE.read()` or by a function of the package that calls such a one, directly
or through others; a name that is bound to what was read carries it on, to names computed from it
and to functions that use it; and a cell prints it if a statement that prints uses such a name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache

import nbformat

from bookmaker.meaning import Reference, definition, imported_names, python_source

READ = "read"
_PRINTS = ("print", "display")
_FILLS = ("append", "extend", "insert", "add", "update")


def prints_stored(notebook: nbformat.NotebookNode) -> list[bool]:
    """Return for each cell of a chapter whether it prints what a stored table holds.

    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> cells = ["a, b = TABLE.read(), 2", "print(b)", "c = a['x'].mean()", "print(b, f'{c:.1f}')"]
    >>> prints_stored(new_notebook(cells=[new_code_cell(cell) for cell in cells]))
    [False, False, False, True]
    """
    names = _Names()
    return [
        cell.cell_type == "code" and names.run(ast.parse(python_source(cell.source)).body)
        for cell in notebook.cells
    ]


class _Names:
    """What the names of a notebook hold, while its cells are followed statement by statement."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.printing: set[str] = set(_PRINTS)
        self.imported: dict[str, Reference] = {}

    def run(self, body: Sequence[ast.stmt]) -> bool:
        """Follow statements; whether one of them prints what was stored."""
        found = False
        for statement in body:
            found |= self._follow(statement)
        return found

    def _follow(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.ImportFrom | ast.Import):
            self.imported |= imported_names(statement, ())
            return False
        if isinstance(statement, ast.FunctionDef):
            return self._define(statement)
        if isinstance(statement, ast.If):
            before = set(self.stored)
            found = self.run(statement.body)
            after, self.stored = self.stored, before
            found |= self.run(statement.orelse)
            self.stored |= after
            return found
        if isinstance(statement, ast.For | ast.While | ast.With):
            if isinstance(statement, ast.For):
                self._assign(statement.target, statement.iter)
            # Twice, since a loop may use above what it binds below.
            once = self.run(statement.body)
            return self.run(statement.body) or once
        for node in ast.walk(statement):
            for target, value, whole in _bindings(node):
                if whole:
                    self._assign(target, value)
                else:
                    self._fill(target, self._uses(value), whole=False)
        return self._prints(statement) and self._uses(statement)

    def _define(self, function: ast.FunctionDef) -> bool:
        # A function carries on what it uses, and prints where it is called.
        arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        outside, self.stored = self.stored, self.stored - arguments
        stored = self.run(function.body) or self._uses(function)
        self.stored = outside
        self._bind(function.name, stored)
        if self._prints(function):
            self.printing.add(function.name)
        return False

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            # `a, b = x, y` binds each name to its own value.
            held = [self._uses(part) for part in value.elts]
            if len(target.elts) == len(held):
                for part, stored in zip(target.elts, held, strict=True):
                    self._fill(part, stored)
                return
        self._fill(target, self._uses(value))

    def _fill(self, target: ast.expr, stored: bool, *, whole: bool = True) -> None:
        for name, all_of_it in _bound(target, whole):
            if stored or all_of_it:
                self._bind(name, stored)

    def _bind(self, name: str, stored: bool) -> None:
        (self.stored.add if stored else self.stored.discard)(name)

    def _prints(self, node: ast.AST) -> bool:
        return any(
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id in self.printing
            for part in ast.walk(node)
        )

    def _uses(self, node: ast.AST) -> bool:
        """Whether a statement reads a table or uses a name that holds what was read."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                if part.id in self.stored:
                    return True
            elif isinstance(part, ast.Call) and _calls_reader(part, self.imported):
                return True
        return False


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """Each target that a node binds, its value, and whether what was there before is gone."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value, True) for target in node.targets)
    elif isinstance(node, ast.AugAssign):
        yield node.target, node.value, False
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
        yield node.target, node.value, True
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FILLS
    ):
        # `rows.append(found)` fills `rows`.
        yield from ((node.func.value, value, False) for value in node.args)


def _bound(target: ast.expr, whole: bool) -> Iterator[tuple[str, bool]]:
    """The names that an assignment to `target` changes, and whether all of what each holds."""
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _bound(part, whole)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, whole)
    elif isinstance(target, ast.Subscript | ast.Attribute):
        yield from _bound(target.value, False)
    elif isinstance(target, ast.Name):
        yield target.id, whole


def _calls_reader(call: ast.Call, imported: dict[str, Reference]) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        if function.attr == READ and not call.args:
            return True
        if isinstance(function.value, ast.Name) and function.value.id in imported:
            module, name = imported[function.value.id]
            below = (*module, name) if name else module
            return _is_reader(below, function.attr)
    elif isinstance(function, ast.Name) and function.id in imported:
        return _is_reader(*imported[function.id])
    return False


@cache
def _is_reader(module: tuple[str, ...], name: str) -> bool:
    """Whether a function of the package reads a table, directly or through others."""
    return _reads(module, name, frozenset())


def _reads(module: tuple[str, ...], name: str, seen: frozenset[Reference]) -> bool:
    found = None if (module, name) in seen else definition(module, name)
    if found is None:
        return False
    seen |= {(module, name)}
    for part in ast.walk(found.node):
        if not isinstance(part, ast.Call):
            continue
        function = part.func
        if isinstance(function, ast.Attribute) and function.attr == READ and not part.args:
            return True
        if isinstance(function, ast.Name):
            place = found.imported.get(function.id, (found.module, function.id))
            if _reads(*place, seen):
                return True
    return False
