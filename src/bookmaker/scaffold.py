"""Begin a chapter: its source, the values of its test run and its line in the contents."""

import json
import re
from pathlib import Path

from bookmaker.errors import BookError
from bookmaker.files import write_atomically

_TEMPLATE = Path(__file__).with_name("template.md")
# What the parameters of the template become in the test run.
_VALUES = {"beta_high": 2.0, "count": 5}


def write_chapter(root: Path, name: str, title: str = "") -> list[Path]:
    """Write what a chapter called `name` begins with; return the files written.

    Its line in the contents stands behind the chapter whose number comes before. Raises
    BookError, and writes nothing, if the name does not fit or its number is taken.
    """
    number, _, words = name.partition("_")
    if not re.fullmatch(r"\d\d[a-z]?_[a-z][a-z0-9_]*", name):
        raise BookError(f"a chapter is called NN_words or, between two, 11b_words, got {name!r}")
    if taken := list((root / "notebooks").glob(f"{number}_*")):
        raise BookError(f"the number {number} is taken: notebooks/{taken[0].name}")
    contents = root / "_toc.yml"
    lines = contents.read_text(encoding="utf-8").splitlines(keepends=True)
    chapters = [n for n, line in enumerate(lines) if "file: notebooks/" in line]
    place = max((n for n in chapters if lines[n].split("/")[1] < name), default=chapters[0] - 1)
    indent = lines[chapters[0]].partition("-")[0]
    lines.insert(place + 1, f"{indent}- file: notebooks/{name}\n")
    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("TITLE", title or "TODO a question or a finding")
    written = {
        root / "notebooks" / f"{name}.md": text.replace("LABEL", words.replace("_", "-")),
        root / "tests" / "papermill" / f"{name}.json": json.dumps(_VALUES) + "\n",
        contents: "".join(lines),
    }
    for path, content in written.items():
        write_atomically(path, content)
    return list(written)
