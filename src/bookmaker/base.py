"""What all parts of the tool stand on: errors that are one message, whole files, the checkout."""

import csv
import errno
import io
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

CONTENTS = "_toc.yml"
# What belongs to the project at the top of a checkout.
OWN_FOLDERS = (
    *("notebooks", "book", "src", "tests", "benchmarks", "documents", "_build"),
    *(".ci", ".git", ".github", ".venv"),
)
# A disk, a quota or a file that can take no more, a disk that fails.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class BookError(ValueError):
    """The message is complete and says where; `exit_code` is what the command line returns."""

    exit_code = 2


class ParameterError(BookError):
    """A parameter that a chapter does not have or a value that it does not take."""


class RunError(BookError):
    """A chapter that did not run to its end: a cell failed, a kernel or a worker died."""

    exit_code = 1


class WorkerDied(RunError):
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
    """Write `content` to `path`: a reader sees the old file or the whole new one.

    Raises an OSError that names `path`, which is then what it was.
    """
    partial = path.with_name(f".{uuid4().hex}.part")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError as error:
        # The system does not say to which file it could not write, and nobody knows `partial`.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def has_no_room(error: BaseException) -> bool:
    """Return whether the disk could not take what was written."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


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
        if (folder / CONTENTS).is_file():
            return folder
    raise BookError("no checkout of the book here: expected a folder with _toc.yml")


def missing_library(error: ModuleNotFoundError) -> str:
    """Return which extra brings the library that is missing; raises `error` if it is our own."""
    library = (error.name or "").partition(".")[0]
    if library in ("", "spinformer", "compendium", "bookmaker"):
        raise error
    return (
        f"{library} is missing: bookmaker needs the libraries of the extra `book`, "
        "`pip install 'spinformer[book]'` or, in a checkout, `pip install '.[book]'`"
    )


def refuse_own_folders(root: Path, output: Path) -> None:
    """Raise BookError if `output` is the checkout at `root` or lies in a folder of the project.

    What stands there is committed, or made from what is; nobody's results belong between.
    """
    # `Path.resolve` raises for links that lead in a circle.
    path = Path(os.path.realpath(output))
    root = root.resolve()
    inside = path.is_relative_to(root) and path.relative_to(root).parts[:1]
    if path == root or (inside and inside[0] in OWN_FOLDERS):
        raise BookError(f"output must not be a folder of the project itself, got {output}")


def read_yaml(root: Path, file: str, kind: type) -> tuple[Any, list[int]]:
    """Return what a YAML file of the checkout holds, and the line where each entry begins.

    `kind` is what it must hold: `list` or `dict`. Raises SourceError, with the line, if the file is
    not there, is not YAML or holds something else.
    """
    # What else is here needs no library.
    import yaml

    # Ten times as fast, where it is.
    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    line = 1
    try:
        loader = safe((root / file).read_text(encoding="utf-8"))
        node = loader.get_single_node()
        content = loader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = f"the file cannot be read: {getattr(error, 'problem', None) or error}"
    except (OSError, ValueError, RecursionError) as error:
        # Text that is not UTF-8, a date that does not exist, brackets without end.
        problem = f"the file cannot be read: {error}"
    else:
        if isinstance(content, kind):
            entries = [entry[0] if kind is dict else entry for entry in node.value]
            return content, [entry.start_mark.line + 1 for entry in entries]
        line = node.start_mark.line + 1 if node else 1
        held = "nothing" if content is None else f"a {type(content).__name__}"
        problem = f"the file must hold a {kind.__name__}, got {held}"
    raise SourceError([Fault(file, line, " ".join(problem.split()))])


def read_project(root: Path) -> dict[str, Any]:
    """Return the table `[project]` of pyproject.toml; SourceError if it cannot be read."""
    file = "pyproject.toml"
    try:
        project = tomllib.loads((root / file).read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        line = re.search(r"at line (\d+)", str(error))
        raise SourceError([Fault(file, int(line[1]) if line else 1, str(error))]) from None
    if not isinstance(project, dict) or not isinstance(project.get("urls", {}), dict):
        raise SourceError([Fault(file, 1, "`project` and its `urls` must be tables")])
    return project


def repository_address(root: Path) -> str:
    """Return the public address of the repository, "" while it has none.

    It is `Repository` of `[project.urls]` in pyproject.toml and nothing else: what is written
    into tracked files must not depend on the clone.
    """
    return str(read_project(root).get("urls", {}).get("Repository", ""))


def pages_address(root: Path) -> str:
    """Return the public address of the built pages, with a slash at its end, "" if there is none.

    It is `Documentation` of `[project.urls]`, or else where GitHub shows the pages of `Repository`.
    """
    if named := str(read_project(root).get("urls", {}).get("Documentation", "")):
        return named.rstrip("/") + "/"
    place = re.fullmatch(
        r"https://github\.com/([^/]+)/([^/]+?)(?:\.git)?/?", repository_address(root)
    )
    return f"https://{place[1].lower()}.github.io/{place[2]}/" if place else ""


def contents(root: Path) -> list[tuple[str, list[str]]]:
    """Return the captions of the table of contents, each with the files below it.

    Raises SourceError where it is damaged.
    """
    listed, _ = read_yaml(root, CONTENTS, dict)
    parts = listed.get("parts", [listed])
    try:
        return [
            (str(part.get("caption", "")), [str(c["file"]) for c in part.get("chapters", [])])
            for part in parts
        ]
    except (AttributeError, KeyError, TypeError):
        expected = "expected `parts`, each with `chapters`, each with `- file: NAME`"
        raise SourceError([Fault(CONTENTS, 1, expected)]) from None
