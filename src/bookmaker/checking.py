"""Everything a chapter needs to be part of the book; what is missing, by file and line.

What the build of the pages refuses by itself (a source that is not cited rightly, a page that does
not exist) is not asked again here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from bookmaker.claims import FILE as CLAIMS
from bookmaker.claims import RESULTS, TAG, printed_by_chapter, read_claims, results
from bookmaker.errors import BookError, Fault, SourceError
from bookmaker.freshness import read_notebook, state
from bookmaker.meaning import code_cells, has_tag
from bookmaker.pictures import SVG
from bookmaker.project import contents
from bookmaker.settings import TABLES, settings_faults
from bookmaker.source import Chapter, chapters


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the claims: none named)."""
    found: list[Fault] = []
    listed = {file for _, files in contents(root) for file in files}
    for chapter in chapters(root, names):
        if f"notebooks/{chapter.name}" not in listed:
            found.append(Fault("_toc.yml", 1, f"does not list notebooks/{chapter.name}"))
        faults = chapter.faults()
        found += faults or [*_source_faults(chapter), *_notebook_faults(chapter)]
    if not names:
        for path in sorted((root / "notebooks").glob("*.ipynb")):
            if not path.with_suffix(".md").is_file():
                found.append(Fault(f"notebooks/{path.name}", 1, "has no source"))
        found += _claim_faults(root)
    return sorted(set(found))


def _source_faults(chapter: Chapter) -> Iterator[Fault]:
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


def _notebook_faults(chapter: Chapter) -> Iterator[Fault]:
    found = state(chapter)
    if found.reason:
        yield chapter.fault(1, f"the notebook is stale, {found.reason}: run `make notebooks`")
    if found.execute:
        return
    notebook = read_notebook(chapter.notebook_path)
    for cell in code_cells(notebook):
        for problem in _cell_problems(cell):
            yield chapter.at(cell.id, 1, problem)


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    settings = cell.metadata.get("mystnb", {})
    figure, image = settings.get("figure", {}), settings.get("image", {})
    drawn = [o.data for o in cell.outputs if {SVG, "image/png"} & o.get("data", {}).keys()]
    words = len(figure.get("caption", "")) > 20 and len(image.get("alt", "")) > 20
    if (drawn or figure) and not (words and figure.get("name", "").startswith("fig-")):
        yield "the figure needs a name that begins with `fig-`, a caption and alt text"
    if len(drawn) > 1 or any(SVG not in data for data in drawn):
        yield "a cell draws one figure, which is an SVG: call `use_style()` before"
    if has_tag(cell, RESULTS) and not results(NotebookNode(cells=[cell])):
        yield f"the cell is tagged {RESULTS} and prints no line `name = number`"


def _claim_faults(root: Path) -> Iterator[Fault]:
    """Yield the rows with a fault, that no cell settles or that their figures do not bear out."""
    try:
        claims, printed = read_claims(root), printed_by_chapter(root)
    except SourceError as error:
        yield from error.faults
        return
    except BookError:
        return  # a notebook that cannot be read is named as stale
    for name in sorted({name for tags in printed.values() for name in tags}):
        if name not in {claim.id for claim in claims}:
            yield Fault(CLAIMS, 1, f"{name}: cells are tagged {TAG}{name}, but there is no row")
    for claim in claims:
        if claim.id not in printed.get(claim.chapter, {}):
            yield claim.fault(f"no cell of {claim.chapter} is tagged {TAG}{claim.id}")
        try:
            claim.settle(printed)
            if claim.settings:
                table = root / TABLES / claim.settings
                yield from map(claim.fault, settings_faults(table, claim.verdict, claim.region))
        except SourceError as error:
            yield from error.faults
        except (KeyError, OSError, ValueError) as error:
            yield claim.fault(f"settings: {error}")
