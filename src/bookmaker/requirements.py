"""Which values of parameters fit together, written in a chapter's source and checked here.

A line `# require: beta_low < beta_high` in the parameters cell states a condition that every run
must meet; words after another `#` say why:

    # require: dim % heads == 0  # every head takes as many channels

What a condition may hold is said in `conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bookmaker.conditions import condition_names, is_met
from bookmaker.errors import ConditionError, ParameterError

_LINE = re.compile(r"^\s*#\s*require\s*:(?P<condition>[^#]*)(?:#(?P<reason>.*))?$")
_ALMOST = re.compile(r"^\s*#\s*requires?\b(?!:)|^\s*#\s*requires\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Requirement:
    """A condition on the parameters of a chapter, and why it is asked for ("" if not said)."""

    condition: str
    reason: str = ""

    @classmethod
    def read(cls, line: str) -> Requirement | None:
        """Return the requirement of a line, None if it states none.

        Raises ParameterError for a condition that holds anything but what `conditions` names.

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
        try:
            condition_names(found.condition)
        except ConditionError as error:
            raise ParameterError(str(error)) from None
        return found

    @property
    def names(self) -> list[str]:
        """The parameters that the condition compares, in order.

        >>> Requirement("dim % heads == 0 and dim > 1").names
        ['dim', 'heads']
        """
        return condition_names(self.condition)

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
        return is_met(self.condition, values)


def check_together(requirements: Iterable[Requirement], values: Mapping[str, Any]) -> None:
    """Raise ParameterError for the first requirement that `values` do not meet."""
    for requirement in requirements:
        try:
            held = requirement.holds(values)
        except ConditionError as error:
            raise ParameterError(str(error)) from None
        if not held:
            got = ", ".join(f"{name} = {values[name]!r}" for name in requirement.names)
            why = f" ({requirement.reason})" if requirement.reason else ""
            raise ParameterError(f"the chapter requires {requirement.condition}{why}, got {got}")
