"""Checks of the numbers in the text: each has a source, and each figure has a reader.

Neither a chapter nor a page without code nor README may hold a result that is typed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bookmaker.base import Fault, SourceError, write_atomically
from bookmaker.claims import RESULTS, Claim
from bookmaker.figures import is_table
from bookmaker.measured import BENCHMARKS
from bookmaker.parameters import TESTS_USE
from bookmaker.source import (
    FRONT_MATTER,
    Chapter,
    chapter_figures,
    chapters,
    code_cells,
    front_matter,
    has_tag,
    read_notebook,
)
from bookmaker.values import (
    Role,
    cited_problem,
    claim_spoilt,
    filled,
    hand_problem,
    handed_over,
    integers,
    numerals_of,
    readme,
    readme_reads,
    readme_spoilt,
    readme_typed,
    roles,
    rounded_away,
    setting_problem,
    shown_code,
    spelled_numbers,
    spoilt_figures,
    typed_numbers,
)

README = "README.md"
EXPLORABLES = "book/_static/explorables"
_SPOILT = "what is typed against it makes another number of it, which has its own sign and unit"
_SMALL = set(map(float, range(13)))
Reads = set[tuple[str, str]]


def page_text(root: Path, file: str, text: str) -> str:
    """Return the text of a page without code, filled; SourceError as `values.filled` raises."""
    return filled(text, file=file, own={}, others=partial(chapter_figures, root))


def readme_text(root: Path) -> str:
    """Return README with the numbers of the committed notebooks; SourceError for unknown names."""
    text = (root / README).read_text(encoding="utf-8")
    return readme(text, file=README, others=partial(chapter_figures, root))


def write_readme(root: Path) -> list[Path]:
    """Write the numbers of the notebooks into README; return what was written."""
    path = root / README
    text = readme_text(root)
    if path.read_text(encoding="utf-8") == text:
        return []
    write_atomically(path, text)
    return [path]


def chapter_faults(
    chapter: Chapter, rows: Sequence[Claim], read: Reads | None, *, executed: bool = True
) -> Iterator[Fault]:
    """Yield what is wrong with the numbers of a chapter.

    `rows` are the claims, `read` what `all_reads` returns, None where that is not known. Where the
    chapter's notebook is not up to date (`executed`), nothing is asked of its figures.
    """
    conditions = [
        f"{claim.criterion}\n{claim.region}" for claim in rows if claim.chapter == chapter.name
    ]
    numerals = _numerals(chapter) | numerals_of("\n".join(conditions))
    file = f"notebooks/{chapter.name}.md"
    yield from _mark_faults(chapter.text, file, numerals)
    yield from _typed_faults(chapter.text, file)
    for claim in rows:
        if claim.chapter == chapter.name:
            for fault in _mark_faults(f"{claim.shown}\n{claim.condition}", file, numerals):
                yield claim.fault(fault.message)
            for name in claim_spoilt(claim.shown):
                yield claim.fault(f"{name}: {_SPOILT}")
            for typed in claim.typed():
                # A setting needs no mark in a row.
                if setting_problem(Role("setting", typed, 0, 0, 1, False), numerals):
                    message = f"{typed} is typed: read it, {{name}} or {{value}}`name`"
                    yield claim.fault(message)
    if not executed:
        return
    notebook = read_notebook(chapter.notebook_path)
    figures, twice = handed_over(notebook)
    yield from _word_faults(chapter.text, file, numerals | set(integers(figures)))
    yield from _format_faults(chapter.root, chapter.text, file, figures)
    if read is None:
        return
    number = chapter.name.partition("_")[0]
    for name in twice:
        yield chapter.fault(_line_of(chapter.text, name), f"figure {name} is handed over twice")
    for cell in code_cells(notebook):
        mine, _ = handed_over(type(notebook)(cells=[cell]))
        for name, figure in mine.items():
            # A table is read where it is shown.
            if not (is_table(figure) or has_tag(cell, RESULTS) or (number, name) in read):
                message = f"figure {name} is handed over, but no text and no claim reads it"
                yield chapter.fault(_line_of(chapter.text, name), message)


def pages(root: Path) -> list[Path]:
    """Return the sources of the pages without code."""
    book = root / "book"
    return sorted([*book.glob("*.md"), *book.glob("reference/*.md")])


def page_faults(root: Path) -> Iterator[Fault]:
    """Yield what is wrong with the numbers of the pages without code, README's too."""
    for path in pages(root):
        file = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        try:
            page_text(root, file, text)
        except SourceError as error:
            yield from error.faults
        yield from _mark_faults(text, file, _page_numerals(root, text))
        yield from _format_faults(root, text, file, {})
        yield from _typed_faults(text, file)
    text = (root / README).read_text(encoding="utf-8")
    for line, number in readme_typed(text):
        message = "write <!--value CHAPTER:NAME--><!--/--> in its place"
        yield Fault(README, line, f"{number} is typed: {message}")
    for line, name in readme_spoilt(text):
        yield Fault(README, line, f"{name}: {_SPOILT}")
    try:
        if readme_text(root) != text:
            yield Fault(
                README, 1, "has other numbers than the notebooks: run python -m bookmaker welcome"
            )
    except SourceError as error:
        yield from error.faults


def _mark_faults(text: str, file: str, numerals: set[float]) -> Iterator[Fault]:
    """Yield the numbers that are not what their marks say; `numerals` are those of the code."""
    listed = front_matter(text).get("cited") or {}
    for role in roles(text):
        problem = ""
        if role.kind == "hand":
            problem = hand_problem(role)
        elif role.kind == "cited":
            problem = cited_problem(role, listed)
        elif role.kind == "setting":
            problem = setting_problem(role, numerals)
        if problem:
            yield Fault(file, role.line, problem)


def _typed_faults(text: str, file: str) -> Iterator[Fault]:
    for line, number in typed_numbers(text):
        message = f"{number} is typed: read it as {{value}}`name`, or mark it as {{setting}}, "
        yield Fault(file, line, message + "{cited} or {hand}")
    for line, role in spoilt_figures(text):
        yield Fault(file, line, f"{role}: {_SPOILT}")
    # What the front matter says is shown on cards and on the front page, which read no figures.
    place = front_matter(text).get("book")
    for words in place.values() if isinstance(place, dict) else ():
        for _, number in typed_numbers(words) if isinstance(words, str) else ():
            line = text.count("\n", 0, text.index(words)) + 1 if words in text else 1
            yield Fault(file, line, f"{number} is typed: the front matter holds no results")


def _format_faults(root: Path, text: str, file: str, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the figures that their format rounds away."""
    for role in roles(text):
        if problem := rounded_away(role, own, partial(chapter_figures, root)):
            yield Fault(file, role.line, f"{problem}: give it more digits, or `:.0e`")


def _word_faults(text: str, file: str, numbers: set[float]) -> Iterator[Fault]:
    """Yield the numbers in letters, from thirteen on, that neither code nor figure knows."""
    for line, word, number in spelled_numbers(text):
        if number not in numbers:
            message = f"{word}: neither code nor figure of the chapter is {number}: read one"
            yield Fault(file, line, f"{message}, {{value}}`name`")


def _numerals(chapter: Chapter) -> set[float]:
    """Return the numbers in a chapter's code, in its folder, and in what these share with others.

    Shared are the modules of `compendium.common` that the cells or the folder import.
    """
    # A value that only the tests use is no setting of what the text shows.
    code = [TESTS_USE.sub("", cell.source) for cell in code_cells(chapter.template)]
    number = chapter.name.partition("_")[0]
    folders = chapter.root.glob(f"src/compendium/c{number}_*")
    code += [path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.py"))]
    shared = re.findall(r"^from compendium\.common(?:\.| import )(\w+)", "\n".join(code), re.M)
    for name in sorted(set(shared)):
        path = chapter.root / "src" / "compendium" / "common" / f"{name}.py"
        if path.is_file():
            code.append(path.read_text("utf-8"))
    return numerals_of("\n".join(code)) | _SMALL


def _page_numerals(root: Path, text: str) -> set[float]:
    """Return the numbers that a page without cells may call settings.

    They stand in the code that it shows, in that of its live figures, and in that of the benchmarks
    whose results it reads.
    """
    code = [shown_code(FRONT_MATTER.sub("", text))]
    names = {role.reads[1] for role in roles(text) if role.reads[0] == BENCHMARKS}
    files = {root / BENCHMARKS / f"{name}.py" for name in names}
    for name in re.findall(r"\{explorable\} (\w+)", text):
        files |= set((root / EXPLORABLES).glob(f"{name}.*.js"))
    code += [path.read_text(encoding="utf-8") for path in sorted(files) if path.is_file()]
    return numerals_of("\n".join(code)) | _SMALL


def all_reads(root: Path, rows: Sequence[Claim]) -> Reads:
    """Return the figures, by number of chapter and name, that texts and claims of the book read."""
    read = set(readme_reads((root / README).read_text(encoding="utf-8")))
    for chapter in chapters(root):
        own = chapter.name.partition("_")[0]
        # One that cannot be read is named elsewhere.
        text = chapter.source_path.read_text(encoding="utf-8", errors="replace")
        read |= {(role.reads[0] or own, role.reads[1]) for role in roles(text)}
    for path in pages(root):
        read |= {role.reads for role in roles(path.read_text(encoding="utf-8"))}
    for claim in rows:
        read |= set(claim.keys())
    return read


def _line_of(text: str, name: str) -> int:
    """Return the line of a source in which a figure is handed over."""
    place = re.search(rf"\b{re.escape(name)}\b\s*=|\"{re.escape(name)}\"", text)
    return text.count("\n", 0, place.start()) + 1 if place else 1
