"""Which cells of a chapter print what a stored table holds, and not what their run computed.

A stored table (`bookmaker/tables.py`) does not depend on the parameters of a run. A number that a
cell prints from one is therefore no result of the run. Which cells do so follows from their code:
a table is read by `TABLE.read()` or by a function of the checkout that calls such a one, directly
or through others; a name that is bound to what was read carries it on, to names computed from it
and to functions that use it; and a cell prints it if a statement that prints uses such a name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from nbformat import NotebookNode

from bookmaker.meaning import PACKAGES, cell_tree, module_tree

_FILLS = ("append", "extend", "insert", "add", "update")


def prints_stored(cells: Sequence[NotebookNode]) -> list[bool]:
    """Return for each cell of a chapter whether it prints what a stored table holds.

    >>> from nbformat.v4 import new_code_cell
    >>> cells = ["a, b = TABLE.read(), 2", "print(b)", "c = a['x'].mean()", "print(b, f'{c:.1f}')"]
    >>> prints_stored([new_code_cell(cell) for cell in cells])
    [False, False, False, True]
    """
    stored, printing, imported = set[str](), {"print", "display"}, dict[str, str]()
    found = []
    for cell in cells:
        tree = cell_tree(cell.source if cell.cell_type == "code" else "")
        imported |= _imports(tree)
        followed = [_follow(node, stored, printing, imported) for node in tree.body]
        found.append(any(followed))
    return found


def _follow(
    statement: ast.stmt, stored: set[str], printing: set[str], imported: dict[str, str]
) -> bool:
    """Note what a statement binds; return whether it prints what was stored."""
    function = statement if isinstance(statement, ast.FunctionDef) else None
    held = stored
    if function is not None:
        # It carries on what it uses, and prints where it is called.
        held = stored - {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    # Twice, since a loop may use above what it binds below.
    for node in [*ast.walk(statement), *ast.walk(statement)]:
        for target, value in _bindings(node):
            if _uses(value, held, imported):
                held |= _names(target)
            elif isinstance(target, ast.Name | ast.Tuple) and not isinstance(statement, ast.If):
                held -= _names(target)
    uses = _uses(statement, held, imported)
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    prints = any(isinstance(call, ast.Name) and call.id in printing for call in calls)
    if function is None:
        return prints and uses
    (stored.add if uses else stored.discard)(function.name)
    if prints:
        printing.add(function.name)
    return False


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target that a node binds or fills, and the value."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from zip(names, values, strict=False)
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            # `x += y` keeps what was there.
            yield target, ast.Tuple([target, value]) if isinstance(node, ast.AugAssign) else value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.For(target=target, iter=value):
            yield target, value
        case ast.Call(func=ast.Attribute(value=target, attr=attr), args=args) if attr in _FILLS:
            yield from ((target, value) for value in args)


def _names(target: ast.expr) -> set[str]:
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _uses(node: ast.AST, stored: set[str], imported: dict[str, str]) -> bool:
    """Whether some code reads a table or a name that holds what was read."""
    return any(
        (isinstance(part, ast.Name) and part.id in stored and not isinstance(part.ctx, ast.Store))
        or (isinstance(part, ast.Call) and _reads(part, imported))
        for part in ast.walk(node)
    )


def _reads(call: ast.Call, imported: dict[str, str]) -> bool:
    match call.func:
        case ast.Attribute(attr="read") if not call.args:
            return True
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in imported:
            return _is_reader(f"{imported[name]}.{attr}")
        case ast.Name(id=name) if name in imported:
            return _is_reader(imported[name])
    return False


@cache
def _is_reader(name: str) -> bool:
    """Whether a function of the checkout reads a table, directly or through others."""
    module, _, last = name.rpartition(".")
    tree = module_tree(module)
    if tree is None:
        return False
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if last not in defined:
        return False
    known = {other: f"{module}.{other}" for other in defined if other != last} | _imports(tree)
    calls = (node for node in ast.walk(defined[last]) if isinstance(node, ast.Call))
    return any(_reads(call, known) for call in calls)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return what each name that a file imports from the checkout refers to."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
    }
