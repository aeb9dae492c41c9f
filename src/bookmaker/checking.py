"""Everything a chapter needs to be part of the book: what is missing, and how one begins.

What the build of the pages refuses by itself (a source that is not cited rightly, a page that does
not exist) is not asked again here.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbformat import NotebookNode

from bookmaker import claims, numbers
from bookmaker.base import BookError, Fault, SourceError, contents, write_atomically
from bookmaker.pictures import SVG
from bookmaker.source import Chapter, chapters, code_cells, has_tag, read_notebook

_TEMPLATE = Path(__file__).with_name("template.md")
# What the parameters of the template become in the test run.
_VALUES = {"beta_high": 2.0, "count": 5}


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the claims: none named)."""
    listed = {file for _, files in contents(root) for file in files}
    found: list[Fault] = []
    rows: list[claims.Claim] = []
    read: numbers.Reads | None = None
    try:
        rows = claims.read_claims(root)
        read = numbers.all_reads(root, rows)
    except SourceError as error:
        found += error.faults
    for chapter in chapters(root, names):
        if f"notebooks/{chapter.name}" not in listed:
            found.append(Fault("_toc.yml", 1, f"does not list notebooks/{chapter.name}"))
        found += chapter.faults() or _chapter_faults(chapter, rows, read)
    if not names:
        for path in (root / "notebooks").glob("*.ipynb"):
            if not path.with_suffix(".md").is_file():
                found.append(Fault(f"notebooks/{path.name}", 1, "has no source"))
        found += numbers.page_faults(root)
        # Rows that cannot be read settle nothing.
        found += [] if read is None else _claim_faults(root, rows)
    return sorted(set(found))


def _chapter_faults(
    chapter: Chapter, rows: Sequence[claims.Claim], read: numbers.Reads | None
) -> Iterator[Fault]:
    for line, text in enumerate(chapter.text.split("\n"), start=1):
        if re.search(r"\bTODO\b", text):
            yield chapter.fault(line, f"still to do: {text.strip()}")
    values = f"tests/papermill/{chapter.name}.json"
    try:
        checked = chapter.check_values(json.loads((chapter.root / values).read_text("utf-8")))
        if checked.items() <= chapter.parameter_cell.defaults.items():
            yield Fault(values, 1, "changes no parameter")
    except (ValueError, OSError) as error:
        yield Fault(values, 1, f"small values for the test run, a line of JSON: {error}")
    try:
        reason, execute = chapter.stale()
    except SourceError as error:
        yield from error.faults
        return
    if reason:
        yield chapter.fault(1, f"the notebook is stale, {reason}: run `make notebooks`")
    for cell in [] if execute else code_cells(read_notebook(chapter.notebook_path)):
        yield from (chapter.fault(1, problem, cell.id) for problem in _cell_problems(cell))
    if not reason:
        yield from numbers.chapter_faults(chapter, rows, read)


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    settings = cell.metadata.get("mystnb", {})
    figure, image = settings.get("figure", {}), settings.get("image", {})
    drawn = [o.data for o in cell.outputs if {SVG, "image/png"} & o.get("data", {}).keys()]
    words = len(figure.get("caption", "")) > 20 and len(image.get("alt", "")) > 20
    if (drawn or figure) and not (words and figure.get("name", "").startswith("fig-")):
        yield "the figure needs a name that begins with `fig-`, a caption and alt text"
    if len(drawn) > 1 or any(SVG not in data for data in drawn):
        yield "a cell draws one figure, which is an SVG: call `use_style()` before"
    if has_tag(cell, claims.RESULTS) and not claims.results(NotebookNode(cells=[cell])):
        yield f"the cell is tagged {claims.RESULTS} and has no figure and no line `name = number`"


def _claim_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the rows that no cell settles or that their figures do not bear out."""
    try:
        printed = claims.printed_by_chapter(root)
    except BookError:
        return  # a notebook that cannot be read is named as stale
    tagged = {name for chapter in printed.values() for name in chapter.texts}
    for name in tagged - {claim.id for claim in rows}:
        told = f"{name}: cells are tagged {claims.TAG}{name}, but there is no row"
        yield Fault(claims.FILE, 1, told)
    for claim in rows:
        if claim.chapter not in claim.settled_by(printed):
            yield claim.fault(f"no cell of {claim.chapter} is tagged {claims.TAG}{claim.id}")
        try:
            claim.settle(printed)
            if claim.settings:
                table = root / claims.TABLES / claim.settings
                problems = claims.settings_faults(table, claim.verdict, claim.region)
                yield from map(claim.fault, problems)
        except SourceError as error:
            yield from error.faults
        except (KeyError, OSError, ValueError) as error:
            yield claim.fault(f"settings: {error}")


def write_chapter(root: Path, name: str, title: str) -> list[Path]:
    """Write what a chapter called `name` begins with; return the files written.

    Its line in the contents stands behind the chapter whose number comes before. Raises
    BookError, and writes nothing, if the name does not fit or its number is taken.
    """
    number, _, words = name.partition("_")
    if not re.fullmatch(r"\d\d[a-z]?_[a-z][a-z0-9_]*", name):
        raise BookError(f"a chapter is called NN_words or, between two, 11b_words, got {name!r}")
    if taken := list((root / "notebooks").glob(f"{number}_*")):
        raise BookError(f"the number {number} is taken: notebooks/{taken[0].name}")
    toc = root / "_toc.yml"
    lines = toc.read_text(encoding="utf-8").splitlines(keepends=True)
    known = [n for n, line in enumerate(lines) if "file: notebooks/" in line]
    place = max((n for n in known if lines[n].split("/")[1] < name), default=known[0] - 1)
    indent = lines[known[0]].partition("-")[0]
    lines.insert(place + 1, f"{indent}- file: notebooks/{name}\n")
    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("TITLE", title or "TODO a question or a finding")
    written = {
        root / "notebooks" / f"{name}.md": text.replace("LABEL", words.replace("_", "-")),
        root / "tests" / "papermill" / f"{name}.json": json.dumps(_VALUES) + "\n",
        toc: "".join(lines),
    }
    for path, content in written.items():
        write_atomically(path, content)
    return list(written)
