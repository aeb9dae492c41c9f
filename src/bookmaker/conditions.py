"""Conditions written as text: on the parameters of a chapter, and the criteria of the claims.

They stand in the book's own files, so Python decides them; of its functions they know `abs`.
"""

from collections.abc import Mapping
from typing import Any

_FUNCTIONS = {"abs": abs}


def condition_names(condition: str) -> list[str]:
    """Return the names that a condition compares, in order; ValueError if it is none.

    >>> condition_names("dim % heads == 0 and abs(dim) > 1")
    ['dim', 'heads']
    """
    try:
        names = compile(condition, "condition", "eval").co_names
    except SyntaxError:
        raise ValueError(f"{condition!r} is no condition") from None
    return [name for name in names if name not in _FUNCTIONS]


def is_met(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether `values` meet a condition; ValueError if they cannot decide it.

    >>> is_met("abs(slope - 3) < 0.1 and error < 0.02", {"slope": 3.03, "error": 0.006})
    True
    """
    try:
        return bool(eval(condition, {"__builtins__": _FUNCTIONS}, dict(values)))
    except (ArithmeticError, NameError, SyntaxError, TypeError) as error:
        raise ValueError(f"{condition!r} cannot be decided: {error}") from None
