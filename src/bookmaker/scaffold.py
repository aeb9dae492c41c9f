"""Begin a chapter: its source, the values of its test run and its line in the contents."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bookmaker.errors import ChapterError
from bookmaker.files import write_atomically

_TEMPLATE = Path(__file__).with_name("template.md")
_NAME = re.compile(r"^\d\d[a-z]?_[a-z][a-z0-9_]*$")
_LISTED = re.compile(r"^ *- file: notebooks/(\w+)$", re.MULTILINE)
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
    for path in (source, source.with_suffix(".ipynb"), values):
        if path.exists():
            raise ChapterError(f"{path.relative_to(root)} exists")
    number, _, words = name.partition("_")
    for path in (root / "notebooks").glob(f"{number}_*.md"):
        raise ChapterError(f"the number {number} is taken: notebooks/{path.name}")
    contents = root / "_toc.yml"
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
    """Return a table of contents with chapter `name` behind the one whose number comes before it.

    >>> print(listed("- file: notebooks/10_a\\n- file: notebooks/20_b\\n", "11_c"), end="")
    - file: notebooks/10_a
    - file: notebooks/11_c
    - file: notebooks/20_b
    """
    lines = {match[1]: match for match in _LISTED.finditer(text)}
    if name in lines or not lines:
        state = f"lists notebooks/{name} already" if lines else "lists no chapter"
        raise ChapterError(f"_toc.yml {state}")
    lower = [other for other in lines if other < name]
    line = lines[max(lower) if lower else min(lines)]
    added = line[0].replace(line[1], name)
    place = line.end() + 1 if lower else line.start()
    return f"{text[:place]}{added}\n{text[place:]}"


def next_steps(name: str) -> str:
    """Return what to do with a chapter that was just begun."""
    command = "python -m bookmaker"
    return f"""
The chapter runs as it is. Next:
  1. write it in notebooks/{name}.md; every TODO says what belongs there; its line in _toc.yml may
     move to another part
  2. {command} build {name}    executes it
  3. {command} check {name}    names what is missing, by file and line
  4. make html                 the pages; no warning is let through
  5. tests/papermill/{name}.json holds small values for the test run: a few seconds
CONTRIBUTING.md says where physics and its tests go."""
