"""Conditions written as text: on the parameters of a chapter, and the criteria of the claims.

A condition compares named values, numbers, strings and None; it may compute with
`+ - * / // %` and `abs(…)`, and join comparisons with `and`, `or`, `not`. Python decides it, once
it is known to hold nothing else. In the parameters cell a line states what every run must meet;
words after another `#` say why:

    # require: dim % heads == 0  # every head takes as many channels
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bookmaker.errors import ConditionError, ParameterError

# No power: 9**9**9 would not end.
_ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd),
    *(ast.Not, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.Is, ast.IsNot),
)
_LINE = re.compile(r"^\s*#\s*require\s*:(?P<condition>[^#]*)(?:#(?P<reason>.*))?$")
_ALMOST = re.compile(r"^\s*#\s*requires?\b(?!:)|^\s*#\s*requires\s*:", re.IGNORECASE)


def _read(condition: str) -> ast.Expression:
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError):
        raise ConditionError(f"{condition!r} is no condition") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
                allowed = not isinstance(argument, ast.Starred)
            case ast.Constant(value=value):
                allowed = isinstance(value, int | float | str | None)
            case ast.Name(id="abs"):
                allowed = id(node) in called
            case _:
                allowed = isinstance(node, _ALLOWED)
        if not allowed:
            raise ConditionError(
                f"{ast.unparse(node)!r} is not allowed in a condition: it may hold names, numbers, "
                "strings, None, + - * / // %, abs(…), comparisons, and, or, not"
            )
    return tree


def condition_names(condition: str) -> list[str]:
    """Return the names that a condition compares, in order; ConditionError if it is none.

    >>> condition_names("dim % heads == 0 and abs(dim) > 1")
    ['dim', 'heads']
    """
    found = [node for node in ast.walk(_read(condition)) if isinstance(node, ast.Name)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in found if node.id != "abs"))


def is_met(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether `values` meet a condition.

    Raises ConditionError for what is no condition or cannot be decided with these values.

    >>> is_met("abs(slope - 3) < 0.1 and error < 0.02", {"slope": 3.03, "error": 0.006})
    True
    """
    code = compile(_read(condition), "condition", "eval")
    try:
        return bool(eval(code, {"__builtins__": {}, "abs": abs}, dict(values)))
    except NameError as error:
        raise ConditionError(f"{condition!r} compares {error.name}, which is unknown") from None
    except (ArithmeticError, TypeError) as error:
        raise ConditionError(f"{condition!r} cannot be decided: {error}") from None


@dataclass(frozen=True)
class Requirement:
    """A condition on the parameters of a chapter, and why it is asked for ("" if not said)."""

    condition: str
    reason: str = ""

    @property
    def names(self) -> list[str]:
        """The parameters that the condition compares, in order."""
        return condition_names(self.condition)

    def __str__(self) -> str:
        """As a reader is told."""
        return f"{self.condition} ({self.reason})" if self.reason else self.condition


def read_requirement(line: str, known: Iterable[str]) -> Requirement | None:
    """Return the requirement that a line states, None if it states none.

    Raises ParameterError for what is no condition or compares something that is not `known`.

    >>> read_requirement("# require: low < high  # a diagram has a width", ["low", "high"])
    Requirement(condition='low < high', reason='a diagram has a width')
    """
    match = _LINE.match(line)
    if match is None:
        if _ALMOST.match(line):
            raise ParameterError(f"write `# require: condition`, got {line.strip()!r}")
        return None
    found = Requirement(match["condition"].strip(), (match["reason"] or "").strip())
    try:
        unknown = [name for name in found.names if name not in set(known)]
    except ConditionError as error:
        raise ParameterError(str(error)) from None
    if unknown:
        raise ParameterError(f"{found.condition!r} compares {unknown[0]}, which is no parameter")
    return found


def check_together(requirements: Iterable[Requirement], values: Mapping[str, Any]) -> None:
    """Raise ParameterError for the first requirement that `values` do not meet."""
    for requirement in requirements:
        try:
            held = is_met(requirement.condition, values)
        except ConditionError as error:
            raise ParameterError(str(error)) from None
        if not held:
            got = ", ".join(f"{name} = {values[name]!r}" for name in requirement.names)
            raise ParameterError(f"the chapter requires {requirement}, got {got}")
