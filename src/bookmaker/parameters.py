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
from dataclasses import dataclass, replace
from typing import Any

import nbformat
from papermill.translators import papermill_translators

from bookmaker.conditions import Requirement, check_together, read_requirement
from bookmaker.errors import ParameterError

_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf)"
# What the end of a comment may allow, and the types it may be said of.
_LIMITS: dict[str, tuple[str, tuple[type, ...]]] = {
    rf",?\s*in\s*([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])$": ("range", (int, float)),
    r",?\s*one of\s*\{([^{}]*)\}$": ("list of choices", (str,)),
    r",?\s*path of\s*\{\s*(file|folder)\s*\}$": ("path", (str,)),
}
_EXISTS = {"file": os.path.isfile, "folder": os.path.isdir}
# What was probably meant to be one of those above.
_HALF_LIMITS = re.compile(
    rf"\bin\s*(?:\[|\(\s*{_NUMBER})|\bin\s+{_NUMBER}\s*,|\b(?:one|path) of\s*[{{\[(]"
)
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str}
_FORM = "every line must read `name: type = default  # help`"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter.

    `type` is int, float or str. `low` and `high` bound numbers (open ends where `open_low`,
    `open_high`), `choices` lists the only strings allowed (empty: any), `path` says what a string
    must lead to ("file", "folder" or "").
    """

    name: str
    type: type[Any]
    default: Any
    help: str
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
            return "one of " + " | ".join(self.choices)
        if self.path:
            return f"the absolute path of a {self.path} or empty"
        if not (math.isfinite(self.low) or math.isfinite(self.high)):
            return self.type.__name__
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        low, high = (f"{x:.0f}" if x.is_integer() else f"{x:g}" for x in (self.low, self.high))
        return f"{self.type.__name__} in {left}{low}, {high}{right}"

    def parse(self, text: str) -> Any:
        """Return the value that `text` from a command line stands for; ParameterError if none."""
        if self.type is str:
            return self.check(text)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = math.inf if text.lower() == "inf" else text
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return `value` in this parameter's type; ParameterError if it is not allowed."""
        wrong = ParameterError(f"{self.name} must be {self.allowed}, got {_short(value)}")
        if self.type is float and type(value) is int:
            try:
                value = float(value)
            except OverflowError:
                raise wrong from None
        if type(value) is not self.type or (self.choices and value not in self.choices):
            raise wrong
        if self.path and value:
            # A chapter runs in a folder of its own: a relative path would lead elsewhere there.
            whole = os.path.expanduser(value)
            if not (os.path.isabs(whole) and _EXISTS[self.path](whole)):
                raise wrong
        if self.type in (int, float):
            above = value > self.low if self.open_low else value >= self.low
            below = value < self.high if self.open_high else value <= self.high
            if not (above and below and abs(value) < math.inf):
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
    found: dict[str, tuple[int, Parameter]] = {}
    faults: list[tuple[int, str]] = []
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        return ParameterCell([], [], [(error.lineno or 1, f"not Python: {error.msg}")])
    for node in statements:
        try:
            parameter = _parameter(node, source)
            line, _ = found.setdefault(parameter.name, (node.lineno, parameter))
            if line != node.lineno:
                raise ParameterError(f"{parameter.name} stands in line {line} of the cell already")
        except ParameterError as error:
            faults.append((node.lineno, str(error)))
    parameters = [parameter for _, parameter in found.values()]
    requirements = []
    for number, text in enumerate(source.splitlines(), start=1):
        try:
            if requirement := read_requirement(text, found):
                if not faults:
                    check_together([requirement], {p.name: p.default for p in parameters})
                requirements.append(requirement)
        except ParameterError as error:
            faults.append((number, str(error)))
    return ParameterCell(parameters, requirements, sorted(faults))


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
    name, line = node.target.id, source.splitlines()[node.lineno - 1]
    cell = nbformat.v4.new_code_cell(line)
    seen = papermill_translators.find_translator("python3", "python").inspect(cell)
    if [p.name for p in seen] != [name]:
        raise ParameterError(
            f"{_FORM}; papermill drops this one (a `|` in the type, an `=` in the comment?)"
        )
    try:
        default = ast.literal_eval(node.value)
    except ValueError:
        raise ParameterError(f"the default of {name} must be a plain value") from None
    annotation = (seen[0].inferred_type_name or "").strip().strip("'\"")
    if annotation not in _TYPES:
        raise ParameterError(f"{name} needs a type among {sorted(_TYPES)}, got {annotation!r}")
    comment = (seen[0].help or "").strip()
    if not comment:
        raise ParameterError(f"{name} needs a comment that says what it is")
    limits, text = _limits(name, _TYPES[annotation], comment)
    found = Parameter(name, _TYPES[annotation], None, text, **limits)
    try:
        return replace(found, default=found.check(default))
    except ParameterError as error:
        raise ParameterError(f"the default is not allowed: {error}") from None


def _limits(name: str, kind: type, comment: str) -> tuple[dict[str, Any], str]:
    """Return the limits that the end of a comment sets, and the comment before them."""
    for pattern, (what, kinds) in _LIMITS.items():
        if not (match := re.search(pattern, comment)):
            continue
        if kind not in kinds:
            raise ParameterError(f"{name} has a {what}, but is no {kinds[0].__name__}")
        text = comment[: match.start()].strip()
        if what == "path":
            return {"path": match[1]}, text
        if what != "range":
            return {"choices": tuple(map(str.strip, match[1].split("|")))}, text
        left, low, high, right = match.groups()
        if float(low) > float(high):
            raise ParameterError(f"the range of {name} is empty: {low} > {high}")
        ends = {"open_low": left == "(", "open_high": right == ")"}
        return {"low": float(low), "high": float(high), **ends}, text
    if match := _HALF_LIMITS.search(comment):
        raise ParameterError(
            f"{name} has a range that cannot be read, {comment[match.start() :]!r}; the comment "
            "must end with `in [low, high]`, `(` and `)` for open ends, `one of {a | b}`, "
            "`path of {file}` or `path of {folder}`"
        )
    return {}, comment
