"""Checks of the numbers in the text: each has a source, and each figure has a reader.

A chapter or page whose front matter says `numbers: by-name` may hold no result that is typed.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bookmaker.base import Fault, SourceError, write_atomically
from bookmaker.claims import RESULTS, Claim
from bookmaker.figures import is_table
from bookmaker.source import (
    Chapter,
    chapter_figures,
    chapters,
    code_cells,
    front_matter,
    has_tag,
    read_notebook,
)
from bookmaker.values import (
    cited_problem,
    filled,
    hand_problem,
    handed_over,
    numerals_of,
    readme,
    readme_reads,
    roles,
    setting_problem,
    typed_numbers,
)

README = "README.md"
Reads = set[tuple[str, str]]


def is_by_name(text: str) -> bool:
    """Return whether a source says in its front matter that no result in it is typed."""
    return front_matter(text).get("numbers") == "by-name"


def page_text(root: Path, file: str, text: str) -> str:
    """Return the text of a page without code, filled; SourceError as `values.filled` raises."""
    return filled(text, file=file, own={}, others=partial(chapter_figures, root))


def readme_text(root: Path) -> str:
    """Return README with the numbers of the committed notebooks; SourceError for unknown names."""
    text = (root / README).read_text(encoding="utf-8")
    return readme(text, file=README, others=partial(chapter_figures, root))


def write_readme(root: Path) -> list[Path]:
    """Write the numbers of the notebooks into README; return what was written."""
    path, text = root / README, readme_text(root)
    if path.read_text(encoding="utf-8") == text:
        return []
    write_atomically(path, text)
    return [path]


def chapter_faults(chapter: Chapter, rows: Sequence[Claim], read: Reads | None) -> Iterator[Fault]:
    """Yield what is wrong with the numbers of a chapter whose notebook is up to date.

    `rows` are the claims, `read` what `all_reads` returns, None where that is not known.
    """
    criteria = [claim.criterion for claim in rows if claim.chapter == chapter.name]
    numerals = _numerals(chapter) | numerals_of("\n".join(criteria))
    yield from _text_faults(chapter.text, f"notebooks/{chapter.name}.md", numerals)
    if read is None or not is_by_name(chapter.text):
        return
    notebook = read_notebook(chapter.notebook_path)
    _, twice = handed_over(notebook)
    number = chapter.name.partition("_")[0]
    for name in twice:
        yield chapter.fault(_line_of(chapter.text, name), f"figure {name} is handed over twice")
    for cell in code_cells(notebook):
        mine, _ = handed_over(type(notebook)(cells=[cell]))
        for name, figure in mine.items():
            # A table is read where it is shown.
            if not (is_table(figure) or has_tag(cell, RESULTS) or (number, name) in read):
                told = f"figure {name} is handed over, but no text and no claim reads it"
                yield chapter.fault(_line_of(chapter.text, name), told)


def page_faults(root: Path) -> Iterator[Fault]:
    """Yield what is wrong with the numbers of the pages without code, README's too."""
    for path in sorted((root / "book").glob("*.md")):
        file, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        try:
            page_text(root, file, text)
        except SourceError as error:
            yield from error.faults
        yield from _text_faults(text, file, None)
    try:
        if readme_text(root) != (root / README).read_text(encoding="utf-8"):
            yield Fault(
                README, 1, "has other numbers than the notebooks: run python -m bookmaker frame"
            )
    except SourceError as error:
        yield from error.faults


def _text_faults(text: str, file: str, numerals: set[float] | None) -> Iterator[Fault]:
    """Yield typed numbers and wrong marks; `numerals` are those of the code, None without code."""
    listed = front_matter(text).get("cited") or {}
    for role in roles(text):
        problem = ""
        if role.kind == "hand":
            problem = hand_problem(role)
        elif role.kind == "cited":
            problem = cited_problem(role, listed)
        elif role.kind == "setting":
            without = f"setting {role.content}: a page without code reads it from a chapter"
            problem = without if numerals is None else setting_problem(role, numerals)
        if problem:
            yield Fault(file, role.line, problem)
    if is_by_name(text):
        for line, number in typed_numbers(text):
            told = f"{number} is typed: read it as {{value}}`name`, or mark it as {{setting}}, "
            yield Fault(file, line, told + "{cited} or {hand}")


def _numerals(chapter: Chapter) -> set[float]:
    """Return the numbers in a chapter's code and in that of its folder."""
    code = [cell.source for cell in code_cells(chapter.template)]
    number = chapter.name.partition("_")[0]
    folders = chapter.root.glob(f"src/compendium/c{number}_*")
    code += [path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.py"))]
    return numerals_of("\n".join(code)) | set(map(float, range(13)))


def all_reads(root: Path, rows: Sequence[Claim]) -> Reads:
    """Return the figures, by number of chapter and name, that texts and claims of the book read."""
    found = set(readme_reads((root / README).read_text(encoding="utf-8")))
    for chapter in chapters(root):
        own = chapter.name.partition("_")[0]
        # One that cannot be read is named elsewhere.
        text = chapter.source_path.read_text(encoding="utf-8", errors="replace")
        found |= {(role.reads[0] or own, role.reads[1]) for role in roles(text)}
    for path in (root / "book").glob("*.md"):
        found |= {role.reads for role in roles(path.read_text(encoding="utf-8"))}
    for claim in rows:
        found |= set(claim.keys())
    return found


def _line_of(text: str, name: str) -> int:
    """Return the line of a source in which a figure is handed over."""
    place = re.search(rf"\b{re.escape(name)}\b\s*=|\"{re.escape(name)}\"", text)
    return text.count("\n", 0, place.start()) + 1 if place else 1
