"""The points of a sweep: what the command line and a file ask for, as values of parameters.

`-p beta 1.2:1.3:11` asks for eleven values from 1.2 to 1.3, `-p kind flat,steep` for two; several
options, and a file, multiply. A file is YAML: a mapping of names to values, lists or ranges is a
grid, a list of mappings is a list of points. A point that a chapter does not allow is a point all
the same: it fails alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bookmaker.errors import ChapterError, ParameterError
from bookmaker.parameters import Parameter, values_from_pairs
from bookmaker.source import Chapter
from bookmaker.sweeps.store import key_of

Texts = dict[str, str]


@dataclass(frozen=True)
class Point:
    """One point: what was asked for, the value of every parameter, and why it is refused.

    `key` is the name of the point in a folder of results; it depends on the values alone. `values`
    are complete, those that are not asked for at their defaults; those of a point that is refused
    are as they were asked for.
    """

    key: str
    asked: Texts
    values: Mapping[str, Any]
    error: str = ""

    def __str__(self) -> str:
        """As on the command line."""
        return ", ".join(f"{name} = {text}" for name, text in self.asked.items()) or "the defaults"


def read_points(
    chapter: Chapter, pairs: Sequence[tuple[str, str]], file: Path | None = None
) -> list[Point]:
    """Return the points that options `pairs` and a `file` ask for, each once, in order.

    Raises ParameterError for a name that the chapter does not have, a range that is none, or where
    no point at all is allowed, and ChapterError for a file that holds no points.
    """
    known = {parameter.name: parameter for parameter in chapter.parameters}
    grid = _grid(chapter, known, values_from_pairs(pairs))
    listed = _listed(chapter, known, file) if file else [{}]
    found: dict[str, Point] = {}
    for first, second in product(listed, grid):
        if twice := sorted(set(first) & set(second)):
            raise ParameterError(f"{twice[0]} is given by the file and by an option")
        point = _point(chapter, {**first, **second})
        found.setdefault(point.key, point)
    if found and all(point.error for point in found.values()):
        raise ParameterError(next(iter(found.values())).error)
    return list(found.values())


def _point(chapter: Chapter, texts: Texts) -> Point:
    try:
        checked = chapter.check_values(texts, text=True)
    except ParameterError as error:
        return Point(key_of({"asked": texts}), texts, texts, str(error))
    values = {p.name: checked.get(p.name, p.default) for p in chapter.parameters}
    return Point(key_of(values), texts, values)


def _grid(
    chapter: Chapter, known: Mapping[str, Parameter], asked: Mapping[str, str | list[str]]
) -> list[Texts]:
    """The product of the values of several parameters, the last one changing fastest."""
    _check_names(chapter, known, asked)
    lists = {name: [text] if isinstance(text, str) else text for name, text in asked.items()}
    values = [[v for t in texts for v in _values(known[name], t)] for name, texts in lists.items()]
    return [dict(zip(asked, chosen, strict=True)) for chosen in product(*values)]


def _check_names(chapter: Chapter, known: Mapping[str, Parameter], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ParameterError(
                f"{chapter.name}: no parameter named {name}; there are: {', '.join(known)}"
            )


def _listed(chapter: Chapter, known: Mapping[str, Parameter], file: Path) -> list[Texts]:
    try:
        # Every scalar as it is written: YAML would make a number of sixties of 1:2:3.
        asked = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ChapterError(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if isinstance(asked, dict) and asked:
        return _grid(chapter, known, asked)
    if isinstance(asked, list) and asked and all(isinstance(point, dict) for point in asked):
        _check_names(chapter, known, (name for point in asked for name in point))
        return [{name: str(text) for name, text in point.items()} for point in asked]
    raise ChapterError(f"{file} holds neither a grid (name: values) nor a list of points")


def _values(parameter: Parameter, text: str) -> list[str]:
    """The values that a text asks for; only the numbers of a range are computed."""
    parts = [part.strip() for part in text.split(",")]
    if parameter.type not in (int, float):
        return [text] if parameter.path else parts
    return [value for part in parts for value in _range(parameter, part)]


def _range(parameter: Parameter, text: str) -> list[str]:
    if ":" not in text:
        return [text]
    wrong = f"{parameter.name}: a range reads low:high:count, 1.2:1.3:11 say, got {text!r}"
    try:
        low, high, count = (kind(part) for kind, part in zip(_PARTS, text.split(":"), strict=True))
    except ValueError:
        raise ParameterError(wrong) from None
    if not (math.isfinite(low) and math.isfinite(high) and 1 <= count <= 10**6):
        raise ParameterError(wrong)
    # Twelve digits: 1.23, not 1.2300000000000002.
    found = [float(f"{value:.12g}") for value in np.linspace(low, high, int(count))]
    if parameter.type is float:
        return [repr(value) for value in found]
    if any(value != round(value) for value in found):
        raise ParameterError(f"{parameter.name}: {text} does not go in whole steps")
    return [str(round(value)) for value in found]


_PARTS = (float, float, int)
