"""Begin a chapter: its source, the values of its test run and its line in the contents."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bookmaker.errors import ChapterError
from bookmaker.files import write_atomically

_TEMPLATE = Path(__file__).with_name("template.md")
_NAME = re.compile(r"^\d\d[a-z]?_[a-z][a-z0-9_]*$")
_LISTED = re.compile(r"^(?P<indent>\s*)- file: notebooks/(?P<name>\w+)\s*$")
# What the parameters of the template become in the test run.
_VALUES = {"beta_high": 2.0, "count": 5}


def write_chapter(root: Path, name: str, title: str = "") -> list[Path]:
    """Write what a chapter called `name` begins with; return the files written.

    Raises ChapterError, and writes nothing, if the name does not fit or anything of it exists.
    """
    if not _NAME.match(name):
        raise ChapterError(
            "a chapter is called NN_words (two digits, a letter if need be, as in 11b_words), "
            f"got {name!r}"
        )
    source = root / "notebooks" / f"{name}.md"
    values = root / "tests" / "papermill" / f"{name}.json"
    contents = root / "_toc.yml"
    for path in (source, source.with_suffix(".ipynb"), values):
        if path.exists():
            raise ChapterError(f"{path.relative_to(root)} exists")
    number, _, words = name.partition("_")
    for path in (root / "notebooks").glob(f"{number}_*.md"):
        raise ChapterError(f"the number {number} is taken: notebooks/{path.name}")
    listing = listed(contents.read_text(encoding="utf-8"), name)
    text = _TEMPLATE.read_text(encoding="utf-8")
    finding = f"TODO a question or a finding about {words.replace('_', ' ')}"
    text = text.replace("TITLE", title or finding)
    text = text.replace("LABEL", words.replace("_", "-"))
    values.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(source, text)
    write_atomically(values, json.dumps(_VALUES) + "\n")
    write_atomically(contents, listing)
    return [source, values, contents]


def listed(text: str, name: str) -> str:
    """Return a table of contents with chapter `name` behind the next lower number, wherever it is.

    A section only where its neighbor of the same number is one. The chapters of the main path and
    the further results each have their own order.

    >>> toc = "- file: notebooks/10_a\\n  sections:\\n    - file: notebooks/10b_a\\n"
    >>> print(listed(toc, "20_b") + listed(toc, "10c_b"))
    - file: notebooks/10_a
      sections:
        - file: notebooks/10b_a
    - file: notebooks/20_b
    - file: notebooks/10_a
      sections:
        - file: notebooks/10b_a
        - file: notebooks/10c_b
    <BLANKLINE>
    """
    lines = text.splitlines()
    found = [(i, match) for i, line in enumerate(lines) if (match := _LISTED.match(line))]
    if any(match["name"] == name for _, match in found):
        raise ChapterError(f"_toc.yml lists notebooks/{name} already")
    if not found:
        raise ChapterError("_toc.yml lists no chapter; add the new one by hand")
    lower = [(i, match) for i, match in found if match["name"] < name]
    last, neighbor = max(lower, key=lambda item: item[1]["name"]) if lower else found[0]
    place = last + 1 if lower else last
    indent = neighbor["indent"]
    if neighbor["name"][:2] != name[:2]:
        indent = min((match["indent"] for _, match in found), key=len)
    lines.insert(place, f"{indent}- file: notebooks/{name}")
    return "\n".join(lines) + "\n"


def next_steps(name: str) -> str:
    """Return what to do with a chapter that was just begun."""
    command = "python -m bookmaker"
    return f"""
The chapter runs as it is. Next:
  1. write it in notebooks/{name}.md; every TODO says what belongs there
  2. {command} build {name}    executes it
  3. {command} check {name}    names what is missing, by file and line
  4. make html                 the pages; no warning is let through
  5. tests/papermill/{name}.json holds small values for the test run: a few seconds
CONTRIBUTING.md says where physics and its tests go."""
