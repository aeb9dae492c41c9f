"""The points of a sweep: what the command line asks for, as values of parameters.

`-p beta 1.2:1.3:11` asks for eleven values from 1.2 to 1.3, `-p kind flat,steep` for two; several
options multiply. A point that a chapter does not allow is a point all the same: it fails alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bookmaker.errors import ParameterError
from bookmaker.parameters import Parameter, values_from_pairs
from bookmaker.source import Chapter
from bookmaker.sweeps.store import key_of


@dataclass(frozen=True)
class Point:
    """One point: what was asked for, the value of every parameter, and why it is refused.

    `key` is the name of the point in a folder of results; it depends on the values alone. `values`
    are complete, those that are not asked for at their defaults; those of a point that is refused
    are as they were asked for.
    """

    key: str
    asked: Mapping[str, str]
    values: Mapping[str, Any]
    error: str = ""

    def __str__(self) -> str:
        """As on the command line."""
        return ", ".join(f"{name} = {text}" for name, text in self.asked.items()) or "the defaults"


def read_points(chapter: Chapter, pairs: Sequence[tuple[str, str]]) -> list[Point]:
    """Return the points that options `pairs` ask for, each once, in order.

    Raises ParameterError for a name that the chapter does not have, a range that is none, or where
    no point at all is allowed.
    """
    known = {parameter.name: parameter for parameter in chapter.parameter_cell.parameters}
    asked = values_from_pairs(pairs)
    for name in asked:
        if name not in known:
            raise ParameterError(f"no parameter named {name}; there are: {', '.join(known)}")
    lists = [_values(known[name], text) for name, text in asked.items()]
    found: dict[str, Point] = {}
    for chosen in product(*lists):
        texts = dict(zip(asked, chosen, strict=True))
        try:
            checked = chapter.check_values(texts)
            values = {name: checked.get(name, known[name].default) for name in known}
            point = Point(key_of(values), texts, values)
        except ParameterError as error:
            point = Point(key_of({"asked": texts}), texts, texts, str(error))
        found.setdefault(point.key, point)
    if all(point.error for point in found.values()):
        raise ParameterError(next(iter(found.values())).error)
    return list(found.values())


def _values(parameter: Parameter, text: str) -> list[str]:
    """The values that a text asks for; only the numbers of a range are computed."""
    if parameter.path:
        return [text]
    found: list[str] = []
    for part in text.split(","):
        if ":" not in part or parameter.type is str:
            found.append(part.strip())
            continue
        try:
            low, high, count = part.split(":")
            values = np.linspace(float(low), float(high), int(count))
        except ValueError:
            raise ParameterError(
                f"{parameter.name}: a range reads low:high:count, 1.2:1.3:11 say, got {part!r}"
            ) from None
        # Twelve digits: 1.23, not 1.2300000000000002; whole numbers without a point.
        found += [f"{value:.12g}" for value in values]
    return found
