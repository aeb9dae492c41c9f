"""Conditions written as text by people, read and decided here; nothing of them is executed.

A condition compares named values, numbers, strings and None; it may compute with
`+ - * / // %` and `abs(…)`, and join comparisons with `and`, `or`, `not`. The parameters of a
chapter (`requirements`) and the verdicts of the claims (`claims`) are held to such conditions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from bookmaker.errors import ConditionError

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_SIGNS: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def condition_names(condition: str) -> list[str]:
    """Return the names that a condition compares, in order.

    Raises ConditionError for a condition that holds anything but what this module names.

    >>> condition_names("dim % heads == 0 and abs(dim) > 1")
    ['dim', 'heads']
    """
    nodes = sorted(_names(_read(condition)), key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in nodes))


def is_met(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether `values` meet a condition.

    Raises ConditionError for a condition that holds anything but what this module names, and for
    one that cannot be decided with these values.

    >>> is_met("abs(slope - 3) < 0.1 and error < 0.02", {"slope": 3.03, "error": 0.006})
    True
    """
    expression = _read(condition)
    try:
        return bool(_value(expression, values))
    except (ArithmeticError, TypeError) as error:
        raise ConditionError(f"{condition!r} cannot be decided: {error}") from None
    except KeyError as error:
        raise ConditionError(f"{condition!r} compares {error.args[0]}, which is unknown") from None


def _read(condition: str) -> ast.expr:
    try:
        expression = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ConditionError(f"{condition!r} is no condition") from None
    _refuse_anything_else(expression)
    return expression


def _is_abs(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "abs"
        and len(node.args) == 1
        and not isinstance(node.args[0], ast.Starred)
        and not node.keywords
    )


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _names(node: ast.expr) -> list[ast.Name]:
    own = [node] if isinstance(node, ast.Name) else []
    return own + [name for part in _parts(node) for name in _names(part)]


def _refuse_anything_else(node: ast.expr) -> None:
    allowed = (
        isinstance(node, ast.Name)
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None))
        or (isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC)
        or (isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS)
        or isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops))
        or _is_abs(node)
    )
    if not allowed:
        raise ConditionError(
            f"{ast.unparse(node)!r} is not allowed in a condition: it may hold names, numbers, "
            "strings, None, + - * / // %, abs(…), comparisons, and, or, not"
        )
    for part in _parts(node):
        _refuse_anything_else(part)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.Call(args=[argument]):
            return abs(_value(argument, values))
        case ast.UnaryOp(op=op, operand=operand):
            return _SIGNS[type(op)](_value(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, values), _value(right, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others):
            terms = [_value(term, values) for term in (left, *others)]
            steps = zip(ops, terms, terms[1:], strict=False)
            return all(_COMPARISONS[type(op)](one, other) for op, one, other in steps)
    raise ConditionError(f"{ast.unparse(node)!r} is not allowed in a condition")
