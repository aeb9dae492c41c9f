"""What all parts of the tool stand on: errors that are one message, whole files, the checkout."""

import csv
import io
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml


class BookError(ValueError):
    """The message is complete and says where; `exit_code` is what the command line returns."""

    exit_code = 2


class ParameterError(BookError):
    """A parameter that a chapter does not have or a value that it does not take."""


class RunError(BookError):
    """A chapter that did not run to its end: a cell failed, a kernel or a worker died."""

    exit_code = 1


class Lost(RunError):
    """A unit of work whose process died; the unit itself need not be the reason."""


@dataclass(frozen=True, order=True)
class Fault:
    """Something wrong in a file that a person edits; `line` counts from 1."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """As compilers write it, so that editors jump there."""
        return f"{self.path}:{self.line}: {self.message}"


class SourceError(BookError):
    """A source that cannot be read; the message lists its faults, one in a line."""

    def __init__(self, faults: list[Fault]) -> None:
        """Keep `faults` for a caller that collects them."""
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`: a reader sees the old file or the whole new one."""
    partial = path.with_name(f".{uuid4().hex}.part")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def csv_text(names: Sequence[str], rows: Iterable[Mapping[str, Any]], **settings: Any) -> str:
    """Return rows as comma-separated values; settings are those of `csv.DictWriter`.

    A column that is not named is a ValueError without them.

    >>> csv_text(["a", "b"], [{"b": 2}])
    'a,b\\n,2\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", **settings)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def project_root() -> Path:
    """Return the checkout around the working directory: the first folder that holds `_toc.yml`."""
    for folder in [Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[2]]:
        if (folder / "_toc.yml").is_file():
            return folder
    raise BookError("no checkout of the book here: expected a folder with _toc.yml")


def repository_address(root: Path) -> str:
    """Return the public address of the repository, "" while it has none.

    It is `Repository` of `[project.urls]` in pyproject.toml and nothing else: what is written
    into tracked files must not depend on the clone.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project.get("project", {}).get("urls", {}).get("Repository", ""))


def contents(root: Path) -> list[tuple[str, list[str]]]:
    """Return the captions of the table of contents, each with the files below it."""
    listed = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [
        (part.get("caption", ""), [chapter["file"] for chapter in part.get("chapters", [])])
        for part in listed.get("parts", [listed])
    ]
