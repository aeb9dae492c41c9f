"""Parameters of a chapter: read from its source, checked before a kernel starts.

papermill accepts a misspelt name and enforces no type, so a run with `-p bet 2` would quietly
show the default. Each line of a chapter's parameters cell therefore carries a type and, at the
end of its comment, the values allowed:

    beta: float = 1.27  # inverse temperature of the output, in [0, 10]
    network: str = "document"  # which network, one of {document | random}
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nbformat
from papermill.translators import papermill_translators

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|inf)"
_RANGE = re.compile(
    rf",?\s*in\s*(?P<left>[\[(])\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*(?P<right>[\])])$"
)
_CHOICES = re.compile(r",?\s*one of\s*\{(?P<choices>[^}]*)\}$")
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


class ParameterError(ValueError):
    """A parameter that a chapter does not have or a value that it does not take."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter.

    `type` is int, float, str or bool; `optional` says whether None is allowed. `low` and
    `high` bound numbers (open ends where `open_low`, `open_high`), `choices` lists the only
    strings allowed (empty: any).
    """

    name: str
    type: type
    default: Any
    help: str
    optional: bool = False
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The values allowed, as a reader writes them."""
        if self.choices:
            text = "one of " + " | ".join(self.choices)
        elif self.type in (int, float) and (math.isfinite(self.low) or math.isfinite(self.high)):
            left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
            low, high = (f"{x:.0f}" if x.is_integer() else f"{x:g}" for x in (self.low, self.high))
            text = f"{self.type.__name__} in {left}{low}, {high}{right}"
        else:
            text = self.type.__name__
        return f"{text} or None" if self.optional else text

    def parse(self, text: str) -> Any:
        """Return the value that `text` from a command line stands for; ParameterError if none."""
        if self.type is str:
            return self.check(None if self.optional and text == "None" else text)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = {"true": True, "false": False, "inf": math.inf}.get(text.lower(), text)
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return `value` in this parameter's type; ParameterError if it is not allowed."""
        if value is None and self.optional:
            return None
        wrong = ParameterError(f"{self.name} must be {self.allowed}, got {value!r}")
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.type) or (self.type is int and isinstance(value, bool)):
            raise wrong
        if self.choices and value not in self.choices:
            raise wrong
        if self.type in (int, float):
            above = value > self.low if self.open_low else value >= self.low
            below = value < self.high if self.open_high else value <= self.high
            if not (above and below and math.isfinite(value)):
                raise wrong
        return value


def read_parameters(notebook: nbformat.NotebookNode) -> list[Parameter]:
    """Return the parameters of the cell tagged `parameters`, in order, as papermill sees them.

    Raises ParameterError for a line that papermill would drop or that lacks type or help.
    """
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParameterError(f"expected one cell tagged parameters, found {len(cells)}")
    found = papermill_translators.find_translator("python3", "python").inspect(cells[0])
    targets = [
        node.target.id
        for node in ast.parse(cells[0].source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    statements = len(ast.parse(cells[0].source).body)
    if targets != [p.name for p in found] or statements != len(targets):
        raise ParameterError(
            "every line of the parameters cell must read `name: type = default  # help`; "
            f"papermill sees {[p.name for p in found]} of {targets}"
        )
    return [_parameter(p.name, p.inferred_type_name, p.default, p.help) for p in found]


def check_values(
    parameters: Sequence[Parameter], values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Return `values` checked against `parameters` (`text`: they come from a command line).

    Raises ParameterError for an unknown name or a value that is not allowed.
    """
    known = {parameter.name: parameter for parameter in parameters}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ParameterError(f"no parameter named {unknown[0]}; there are: {', '.join(known)}")
    return {
        name: known[name].parse(value) if text else known[name].check(value)
        for name, value in values.items()
    }


def _parameter(name: str, annotation: str, default: str, comment: str) -> Parameter:
    annotation = (annotation or "").strip().strip("'\"")
    optional = annotation.startswith("Optional[")
    inner = annotation.removeprefix("Optional[").removesuffix("]") if optional else annotation
    if inner not in _TYPES:
        raise ParameterError(f"{name} needs a type among {sorted(_TYPES)}, got {annotation!r}")
    comment = comment.strip()
    if not comment:
        raise ParameterError(f"{name} needs a comment that says what it is")
    limits: dict[str, Any] = {}
    if match := _RANGE.search(comment):
        limits = {
            "low": float(match["low"]),
            "high": float(match["high"]),
            "open_low": match["left"] == "(",
            "open_high": match["right"] == ")",
        }
    elif match := _CHOICES.search(comment):
        limits = {"choices": tuple(c.strip() for c in match["choices"].split("|"))}
    text = comment[: match.start()].strip() if match else comment
    bare = Parameter(name, _TYPES[inner], None, text, optional, **limits)
    value = ast.literal_eval(default)
    try:
        return Parameter(name, _TYPES[inner], bare.check(value), text, optional, **limits)
    except ParameterError as error:
        raise ParameterError(f"the default is not allowed: {error}") from None
