"""Parameters of a chapter: read from its source, checked before a kernel starts.

papermill accepts a misspelt name and enforces no type, so a run with `-p bet 2` would quietly
show the default. Each line of a chapter's parameters cell therefore carries a type and, at the
end of its comment, the values allowed; lines of comment say which values fit together, and why:

    beta_low: float = 0.5  # lowest inverse temperature, in [0, 10]
    beta_high: float = 1.5  # highest inverse temperature, in [0, 10]; tests use 1.0
    network: str = "document"  # which network, one of {document | random}
    text: str = ""  # text to read, path of {file}
    # require: beta_low < beta_high  # the figure runs from the one to the other

`path of {file}` and `path of {folder}` allow the absolute path of one that exists, or nothing.
`tests use` says a value for the test run, which should take seconds.
Such conditions, and the criteria of the claims, stand in the book's own files, so Python decides
them; of its functions they know `abs`.
"""

import ast
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bookmaker.base import ParameterError

# What papermill reads, too: no `|` in the type, and no other `=`.
_LINE = re.compile(
    r"(?P<name>\w+) *: *(?P<type>int|float|str) *= *(?P<default>[^=]*?) *# *(?P<help>[^=]*?)"
    r"(?:,? *(?:in (?P<range>[\[(][^\s,]+, [^\s,]+[\])])"
    r"|one of \{(?P<choices>[^{}]*)\}|path of \{(?P<path>file|folder)\}))?"
    r"(?:; tests use (?P<small>[^=;]+?))?"
)
TESTS_USE = re.compile(r"; tests use [^=;\n]+$", re.MULTILINE)
# What was probably meant to be one of those at the end.
_ALMOST = re.compile(r"\btests use\b|\bin \[|\bin \([-\d]|\b(?:one|path) of ?[\[{(]")
_REQUIRE = re.compile(r"^\s*# requires?\b:?(?P<condition>[^#]*)#?(?P<reason>.*)$")
_EXISTS = {"file": os.path.isfile, "folder": os.path.isdir}
_TYPES = ("int", "float", "str")
# Python also takes 1_0, digits of other alphabets and words such as infinity.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_FUNCTIONS = {"abs": abs}


def read_number(text: str, kind: str) -> int | float:
    """Return the number, an int or a float, that a text states; ValueError if it states none.

    >>> read_number("-1.5e3", "float")
    -1500.0
    >>> read_number("1_0", "int")
    Traceback (most recent call last):
    ValueError: '1_0' is no number
    """
    if not _NUMBER.fullmatch(text.strip(" ")):
        raise ValueError(f"{text!r} is no number")
    return int(text) if kind == "int" else float(text)


@dataclass
class Parameter:
    """One parameter of a chapter: an int, a float or a str, and what it may be, as it is written.

    Numbers lie in `range`, words are among `choices`, texts lead to a `path` ("file", "folder"),
    if there is any. `small` is its value in the test run, None where that is the default.
    """

    name: str
    type: str
    default: Any
    help: str
    range: str
    choices: str
    path: str
    small: Any

    @property
    def allowed(self) -> str:
        """The values allowed, as a reader writes them."""
        if self.choices:
            return f"one of {self.choices}"
        if self.path:
            return f"the absolute path of a {self.path} or empty"
        return f"{self.type} in {self.range}" if self.range else self.type

    def parse(self, stated: object) -> Any:
        """Return what a text, or a value, stands for; ParameterError if it is not allowed."""
        with suppress(ValueError):
            value = str(stated) if self.type == "str" else read_number(str(stated), self.type)
            if self._allows(value):
                return value
        raise ParameterError(
            f"{self.name} must be {self.allowed}, got {str(stated) or repr(''):.60}"
        )

    def _allows(self, value: Any) -> bool:
        if self.choices:
            return value in map(str.strip, self.choices.split("|"))
        if self.path:
            # A chapter runs in a folder of its own: a relative path would lead elsewhere there.
            return not value or (os.path.isabs(value) and _EXISTS[self.path](value))
        if self.type == "str":
            return True
        low, high = self.range[1:-1].split(", ") if self.range else ("-inf", "inf")
        above = value > float(low) or (value == float(low) and self.range.startswith("["))
        below = value < float(high) or (value == float(high) and self.range.endswith("]"))
        return above and below and math.isfinite(value)


@dataclass(frozen=True)
class ParameterCell:
    """What the cell tagged `parameters` says; `faults` are (line in the cell from 1, message).

    `requirements` are conditions that the values must meet together, each with its reason.
    """

    parameters: dict[str, Parameter]
    requirements: dict[str, str]
    faults: list[tuple[int, str]]

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of all parameters where none is given."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    @property
    def small(self) -> dict[str, Any]:
        """The values of the test run, of those parameters that it changes."""
        parameters = self.parameters.values()
        return {
            parameter.name: parameter.small
            for parameter in parameters
            if parameter.small is not None
        }

    def check(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Return `values`, or what texts stand for, each checked for itself and together.

        Raises ParameterError for an unknown name, a value that is not allowed, or values that do
        not fit together or to the defaults of the others.
        """
        checked = {name: self.named(name).parse(value) for name, value in values.items()}
        whole = self.defaults | checked
        for condition, reason in self.requirements.items():
            if not is_met(condition, whole):
                got = ", ".join(f"{name} = {whole[name]!r}" for name in condition_names(condition))
                raise ParameterError(f"the chapter requires {condition}{reason}, got {got}")
        return checked

    def named(self, name: str) -> Parameter:
        """Return a parameter; ParameterError if there is none of this name."""
        if name not in self.parameters:
            there = ", ".join(self.parameters)
            raise ParameterError(f"no parameter named {name}; there are: {there}")
        return self.parameters[name]


def parse_parameters(source: str) -> ParameterCell:
    """Return parameters, requirements and all faults of a parameters cell."""
    cell = ParameterCell({}, {}, [])
    # Requirements last: they may stand before what they are about.
    for add in (_add_parameter, _add_requirement):
        for number, line in enumerate(source.splitlines(), start=1):
            try:
                add(cell, line)
            except ParameterError as error:
                cell.faults.append((number, str(error)))
    return cell


def _add_requirement(cell: ParameterCell, line: str) -> None:
    if match := _REQUIRE.match(line):
        condition = match["condition"].strip()
        reason = match["reason"].strip()
        cell.requirements[condition] = f" ({reason})" if reason else ""
        for name in condition_names(condition):
            cell.named(name)
        cell.check({})
        cell.check(cell.small)


def _add_parameter(cell: ParameterCell, line: str) -> None:
    if line.strip()[:1] in ("", "#"):
        return
    match = _LINE.fullmatch(line.rstrip())
    if not match or not match["help"]:
        raise ParameterError(
            "every line must read `name: type = default  # help`, the type one of "
            f"{', '.join(_TYPES)}, without an `=` in the comment"
        )
    parameter = Parameter(**match.groupdict(""))
    name = parameter.name
    text = parameter.type == "str"
    if _ALMOST.search(parameter.help):
        raise ParameterError(
            f"{name} has a range that cannot be read: the comment must end with `in [low, high]`, "
            "`(` and `)` for open ends, `one of {a | b}`, `path of {file}` or `path of {folder}`, "
            "and behind it for the test run `; tests use 3`"
        )
    if parameter.range if text else parameter.choices or parameter.path:
        raise ParameterError(f"{name} has limits that are not those of a {parameter.type}")
    try:
        default = ast.literal_eval(parameter.default)
    except (SyntaxError, ValueError) as error:
        raise ParameterError(f"{name}: {error}") from None
    parameter.default = parameter.parse(default)
    parameter.small = parameter.parse(parameter.small) if parameter.small else None
    if parameter.small == parameter.default:
        raise ParameterError(f"the tests use the default of {name}: leave that out")
    cell.parameters[name] = parameter


def condition_names(condition: str) -> list[str]:
    """Return the names that a condition compares, in order; ParameterError if it is none.

    >>> condition_names("dim % heads == 0 and abs(dim) > 1")
    ['dim', 'heads']
    """
    try:
        names = compile(condition, "condition", "eval").co_names
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParameterError(f"{condition!r} is no condition") from None
    return [name for name in names if name not in _FUNCTIONS]


def is_met(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether `values` meet a condition; ParameterError if they cannot decide it.

    >>> is_met("abs(slope - 3) < 0.1 and error < 0.02", {"slope": 3.03, "error": 0.006})
    True
    """
    try:
        return bool(eval(condition, {"__builtins__": _FUNCTIONS}, dict(values)))
    except Exception as error:
        # Whatever Python may raise in a line that somebody wrote.
        raise ParameterError(f"{condition!r} cannot be decided: {error}") from None
