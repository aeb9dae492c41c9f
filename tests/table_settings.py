"""With which settings the stored tables were made, kept in `data/table_settings.json`.

    python tests/table_settings.py   # keeps them anew, once the tables were made with them

A setting is a constant that is named by the functions of a study or by those of the package that
they call, or the default of an argument. Many are in no column of a table, and a unit is computed
again at night at most: a constant that was changed later would stand beside a table that was made
with another one. How exactly it must be the same is kept as well, so that nothing makes it coarser
unseen.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from bookmaker.tables import Table, tables_of

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "data" / "table_settings.json"
# Longer ones are texts and drawn data.
_LONGEST = 1500
# Whose functions are read: a study's own, and those of the package that it calls in the end.
_OURS = ("compendium.", "spinformer.")
# No setting: what the machine has, and what Python gives every module.
_GIVEN = {"_CORES", "__name__", "__package__"}


def described(value: Any) -> str | None:
    """A number, a word, a function by its name, or some of them together; None of anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return described(value.tolist())
    if isinstance(value, float):
        # The last digits of a sine are the processor's.
        return repr(float(f"{value:.14g}"))
    if value is None or isinstance(value, bool | int | str | range):
        return repr(value)
    if inspect.isfunction(value) or inspect.isclass(value):
        return str(value.__qualname__)
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if not isinstance(value, tuple | list):
        return None
    parts = [described(part) for part in value]
    known = [part for part in parts if part is not None]
    return f"({', '.join(known)})" if len(known) == len(parts) else None


def names_in(function: Callable[..., Any]) -> set[str]:
    """The names that the code of a function reads, also in functions inside of it."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return names


def read_by(value: Any, seen: dict[Any, dict[str, str]]) -> None:
    """Add to `seen` what each of our functions reads that `value` calls in the end."""
    if isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if inspect.isclass(value) and value not in seen:
        # Of a record the defaults of its fields.
        fields = getattr(value, "_field_defaults", None) or {}
        seen[value] = {
            f"{value.__module__}.{value.__qualname__}({name})": words
            for name, default in fields.items()
            if value.__module__.startswith(_OURS) and (words := described(default)) is not None
        }
        for method in vars(value).values():
            if inspect.isfunction(method):
                read_by(method, seen)
    if not inspect.isfunction(value) or not value.__module__.startswith(_OURS):
        return
    if value in seen:
        return
    seen[value] = {
        f"{value.__module__}.{value.__qualname__}({name})": words
        for name, argument in inspect.signature(value).parameters.items()
        if argument.default is not argument.empty
        and (words := described(argument.default)) is not None
    }
    names = names_in(value)
    own = sys.modules[value.__module__]
    modules = [one for name in names if isinstance(one := vars(own).get(name), ModuleType)]
    for module in [own, *modules]:
        if not module.__name__.startswith(_OURS):
            continue
        for name in sorted(names & vars(module).keys() - _GIVEN):
            inner = vars(module)[name]
            if callable(inner):
                read_by(inner, seen)
            elif (words := described(inner)) is not None and len(words) < _LONGEST:
                seen[value][f"{module.__name__}.{name}"] = words


def settings(tables: list[Table]) -> dict[str, str]:
    """Constants and defaults behind tables, by module and name."""
    seen: dict[Any, dict[str, str]] = {}
    for table in tables:
        read_by(table.rows, seen)
        # How exactly a unit that is computed again must be the same.
        exactness = described((table.rtol, dict(table.within)))
        seen[table.path.stem, table.path] = {
            f"{table.path.parent.name}.{table.path.stem} within": str(exactness)
        }
        # Of a grid of trainings its splits and rates, which are in no unit either.
        if isinstance(table.rows, functools.partial):
            given = [*table.rows.args, *table.rows.keywords.values()]
            parts = [part for one in given for part in (one if isinstance(one, tuple) else [one])]
            words = ", ".join(filter(None, map(described, parts)))
            seen[table.path] = {f"{table.path.parent.name}.{table.path.stem}": words}
    found = {name: words for one in seen.values() for name, words in one.items()}
    return {name.removeprefix("compendium."): found[name] for name in sorted(found)}


if __name__ == "__main__":
    CHAPTERS = sorted(
        path.name.removeprefix("c") for path in (ROOT / "src" / "compendium").glob("c[0-9]*_*")
    )
    FOUND = settings([table for chapter in CHAPTERS for table in tables_of(chapter).values()])
    KEPT.write_text(json.dumps(FOUND, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(len(FOUND))
