"""Which values of parameters fit together, written in a chapter's source and checked here.

A line `# require: beta_low < beta_high` in the parameters cell states a condition that every run
must meet; words after another `#` say why:

    # require: dim % heads == 0  # every head takes as many channels

A condition compares parameters, numbers, strings and None; it may compute with `+ - * / // %` and
join comparisons with `and`, `or`, `not`. Nothing else is evaluated.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spinformer.chapters.errors import ParameterError

_LINE = re.compile(r"^\s*#\s*require\s*:(?P<condition>[^#]*)(?:#(?P<reason>.*))?$")
_ALMOST = re.compile(r"^\s*#\s*requires?\b(?!:)|^\s*#\s*requires\s*:", re.IGNORECASE)
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


@dataclass(frozen=True)
class Requirement:
    """A condition on the parameters of a chapter, and why it is asked for ("" if not said)."""

    condition: str
    reason: str = ""

    @classmethod
    def read(cls, line: str) -> Requirement | None:
        """Return the requirement of a line, None if it states none.

        Raises ParameterError for a condition that holds anything but what this module names.

        >>> Requirement.read("# require: low < high  # a diagram has a width")
        Requirement(condition='low < high', reason='a diagram has a width')
        >>> Requirement.read("low: float = 1.0  # lowest, in [0, 2]") is None
        True
        """
        match = _LINE.match(line)
        if match is None:
            if _ALMOST.match(line):
                raise ParameterError(f"write `# require: condition`, got {line.strip()!r}")
            return None
        found = cls(match["condition"].strip(), (match["reason"] or "").strip())
        _refuse_anything_else(found._expression())
        return found

    @property
    def names(self) -> list[str]:
        """The parameters that the condition compares, in order.

        >>> Requirement("dim % heads == 0 and dim > 1").names
        ['dim', 'heads']
        """
        nodes = sorted(
            (node for node in ast.walk(self._expression()) if isinstance(node, ast.Name)),
            key=lambda node: (node.lineno, node.col_offset),
        )
        return list(dict.fromkeys(node.id for node in nodes))

    def check_names(self, known: Iterable[str]) -> None:
        """Raise ParameterError if the condition compares something that is no parameter."""
        for name in self.names:
            if name not in set(known):
                raise ParameterError(f"{self.condition!r} compares {name}, which is no parameter")

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether `values` meet the condition.

        >>> Requirement("kind == 'flat' or 2 * low < high").holds(
        ...     {"kind": "steep", "low": 1, "high": 3}
        ... )
        True
        """
        return bool(_value(self._expression(), values))

    def _expression(self) -> ast.expr:
        try:
            return ast.parse(self.condition, mode="eval").body
        except SyntaxError:
            raise ParameterError(f"{self.condition!r} is no condition") from None


def check_together(requirements: Iterable[Requirement], values: Mapping[str, Any]) -> None:
    """Raise ParameterError for the first requirement that `values` do not meet."""
    for requirement in requirements:
        try:
            held = requirement.holds(values)
        except (ArithmeticError, TypeError) as error:
            raise ParameterError(f"{requirement.condition!r} cannot be decided: {error}") from None
        if not held:
            got = ", ".join(f"{name} = {values[name]!r}" for name in requirement.names)
            why = f" ({requirement.reason})" if requirement.reason else ""
            raise ParameterError(f"the chapter requires {requirement.condition}{why}, got {got}")


def _refuse_anything_else(node: ast.expr) -> None:
    allowed = (
        isinstance(node, ast.Name)
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None))
        or (isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC)
        or (isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS)
        or isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops))
    )
    if not allowed:
        raise ParameterError(
            f"{ast.unparse(node)!r} is not allowed in a condition: it may hold parameters, "
            "numbers, strings, None, + - * / // %, comparisons, and, or, not"
        )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _refuse_anything_else(child)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
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
    raise ParameterError(f"{ast.unparse(node)!r} is not allowed in a condition")
