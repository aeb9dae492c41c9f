"""Parameters of a chapter: read from its source, checked before a kernel starts.

papermill accepts a misspelt name and enforces no type, so a run with `-p bet 2` would quietly
show the default. Each line of a chapter's parameters cell therefore carries a type and, at the
end of its comment, the values allowed; lines of comment say which values fit together:

    beta_low: float = 0.5  # lowest inverse temperature, in [0, 10]
    beta_high: float = 1.5  # highest inverse temperature, in [0, 10]
    network: str = "document"  # which network, one of {document | random}
    text: str = ""  # text to read, path of {file}
    # require: beta_low < beta_high

`path of {file}` and `path of {folder}` allow the absolute path of one that exists, or nothing.
"""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nbformat
from papermill.translators import papermill_translators

from bookmaker.conditions import Requirement, check_together, read_requirement
from bookmaker.errors import ParameterError

_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf)"
_RANGE = re.compile(
    rf",?\s*in\s*(?P<left>[\[(])\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*(?P<right>[\])])$"
)
_CHOICES = re.compile(r",?\s*one of\s*\{(?P<choices>[^{}]*)\}$")
_PATH = re.compile(r",?\s*path of\s*\{\s*(?P<kind>file|folder)\s*\}$")
_EXISTS = {"file": os.path.isfile, "folder": os.path.isdir}
# What was probably meant to be one of those above.
_HALF_LIMITS = re.compile(
    rf"\bin\s*(?:\[|\(\s*{_NUMBER})|\bin\s+{_NUMBER}\s*,|\b(?:one|path) of\s*[{{\[(]"
)
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
_FORM = "every line must read `name: type = default  # help`"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter.

    `type` is int, float, str or bool; `optional` says whether None is allowed. `low` and
    `high` bound numbers (open ends where `open_low`, `open_high`), `choices` lists the only
    strings allowed (empty: any), `path` says what a string must lead to ("file", "folder" or "").
    """

    name: str
    type: type[Any]
    default: Any
    help: str
    optional: bool = False
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    path: str = ""

    @property
    def allowed(self) -> str:
        """The values allowed, as a reader writes them."""
        if self.choices:
            text = "one of " + " | ".join(self.choices)
        elif self.path:
            text = f"the absolute path of a {self.path} or empty"
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
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = {"true": True, "false": False, "inf": math.inf}.get(text.lower(), text)
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return `value` in this parameter's type; ParameterError if it is not allowed."""
        if value is None and self.optional:
            return None
        wrong = ParameterError(f"{self.name} must be {self.allowed}, got {_short(value)}")
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                value = float(value)
            except OverflowError:
                raise wrong from None
        if not isinstance(value, self.type) or (self.type is int and isinstance(value, bool)):
            raise wrong
        if self.choices and value not in self.choices:
            raise wrong
        if self.path and value:
            # A chapter runs in a folder of its own: a relative path would lead elsewhere there.
            whole = os.path.expanduser(value)
            if not (os.path.isabs(whole) and _EXISTS[self.path](whole)):
                raise wrong
        if self.type in (int, float):
            above = value > self.low if self.open_low else value >= self.low
            below = value < self.high if self.open_high else value <= self.high
            finite = isinstance(value, int) or math.isfinite(value)
            if not (above and below and finite):
                raise wrong
        return value


@dataclass(frozen=True)
class ParameterCell:
    """What the cell tagged `parameters` says; `faults` are (line in the cell from 1, message)."""

    parameters: list[Parameter]
    requirements: list[Requirement]
    faults: list[tuple[int, str]]


def parse_parameters(source: str) -> ParameterCell:
    """Return parameters, requirements and all faults of a parameters cell."""
    found: dict[str, Parameter] = {}
    lines: dict[str, int] = {}
    faults: list[tuple[int, str]] = []
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        return ParameterCell([], [], [(error.lineno or 1, f"not Python: {error.msg}")])
    for node in statements:
        try:
            parameter = _parameter(node, source)
        except ParameterError as error:
            faults.append((node.lineno, str(error)))
            continue
        if parameter.name in found:
            faults.append(
                (
                    node.lineno,
                    f"{parameter.name} stands in line {lines[parameter.name]} of the cell already",
                )
            )
        found.setdefault(parameter.name, parameter)
        lines.setdefault(parameter.name, node.lineno)
    requirements = []
    for number, line in enumerate(source.splitlines(), start=1):
        try:
            requirement = read_requirement(line, found)
            if requirement is None:
                continue
            if not faults:
                check_together([requirement], {p.name: p.default for p in found.values()})
            requirements.append(requirement)
        except ParameterError as error:
            faults.append((number, str(error)))
    return ParameterCell(list(found.values()), requirements, sorted(faults))


def read_parameters(notebook: nbformat.NotebookNode) -> ParameterCell:
    """Return what the cell tagged `parameters` says, as papermill sees it.

    Raises ParameterError for a line that papermill would drop or that lacks type or help.
    """
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParameterError(f"expected one cell tagged parameters, found {len(cells)}")
    cell = parse_parameters(cells[0].source)
    if cell.faults:
        raise ParameterError("; ".join(message for _, message in cell.faults))
    return cell


def check_values(
    cell: ParameterCell, values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Return `values` checked, each for itself and together (`text`: from a command line).

    Raises ParameterError for an unknown name, a value that is not allowed, or values that do
    not fit together or to the defaults of the others.
    """
    known = {parameter.name: parameter for parameter in cell.parameters}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ParameterError(f"no parameter named {unknown[0]}; there are: {', '.join(known)}")
    checked = {
        name: known[name].parse(value) if text else known[name].check(value)
        for name, value in values.items()
    }
    check_together(cell.requirements, {n: p.default for n, p in known.items()} | checked)
    return checked


def values_from_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return names with their values; ParameterError if a name comes twice.

    >>> values_from_pairs([("beta", "1"), ("seed", "2")])
    {'beta': '1', 'seed': '2'}
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise ParameterError(f"{name} is given twice: {values[name]} and {value}")
        values[name] = value
    return values


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer longer than Python prints
        text = "a very long integer"
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


def _parameter(node: ast.stmt, source: str) -> Parameter:
    if not (
        isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    ) or (node.lineno != node.end_lineno):
        raise ParameterError(_FORM)
    line = source.splitlines()[node.lineno - 1]
    cell = nbformat.v4.new_code_cell(line)
    seen = papermill_translators.find_translator("python3", "python").inspect(cell)
    if [p.name for p in seen] != [node.target.id]:
        raise ParameterError(
            f"{_FORM}; papermill drops this one (a `|` in the type, an `=` in the comment?)"
        )
    try:
        default = ast.literal_eval(node.value)
    except ValueError:
        raise ParameterError(f"the default of {node.target.id} must be a plain value") from None
    (line,) = seen
    return _from_line(line.name, line.inferred_type_name, default, line.help)


def _from_line(name: str, annotation: str, default: Any, comment: str) -> Parameter:
    annotation = (annotation or "").strip().strip("'\"")
    optional = annotation.startswith("Optional[")
    inner = annotation.removeprefix("Optional[").removesuffix("]") if optional else annotation
    if inner not in _TYPES:
        raise ParameterError(f"{name} needs a type among {sorted(_TYPES)}, got {annotation!r}")
    comment = (comment or "").strip()
    if not comment:
        raise ParameterError(f"{name} needs a comment that says what it is")
    limits, text = _limits(name, _TYPES[inner], comment)
    bare = Parameter(name, _TYPES[inner], None, text, optional, **limits)
    try:
        return Parameter(name, _TYPES[inner], bare.check(default), text, optional, **limits)
    except ParameterError as error:
        raise ParameterError(f"the default is not allowed: {error}") from None


def _limits(name: str, kind: type, comment: str) -> tuple[dict[str, Any], str]:
    """Return the limits that the end of a comment sets, and the comment before them."""
    if match := _RANGE.search(comment):
        low, high = float(match["low"]), float(match["high"])
        if kind not in (int, float):
            raise ParameterError(f"{name} has a range, but is no number")
        if low > high:
            raise ParameterError(f"the range of {name} is empty: {match['low']} > {match['high']}")
        limits = {
            "low": low,
            "high": high,
            "open_low": match["left"] == "(",
            "open_high": match["right"] == ")",
        }
        return limits, comment[: match.start()].strip()
    if match := _CHOICES.search(comment):
        if kind is not str:
            raise ParameterError(f"{name} has choices, but is no str")
        choices = tuple(choice.strip() for choice in match["choices"].split("|"))
        return {"choices": choices}, comment[: match.start()].strip()
    if match := _PATH.search(comment):
        if kind is not str:
            raise ParameterError(f"{name} is a path, but is no str")
        return {"path": match["kind"]}, comment[: match.start()].strip()
    if match := _HALF_LIMITS.search(comment):
        raise ParameterError(
            f"{name} has a range that cannot be read, {comment[match.start() :]!r}; the comment "
            "must end with `in [low, high]`, `(` and `)` for open ends, `one of {a | b}`, "
            "`path of {file}` or `path of {folder}`"
        )
    return {}, comment
