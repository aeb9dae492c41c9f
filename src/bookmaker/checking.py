"""Everything a chapter needs to be part of the book: what is missing, and how one begins.

What the build of the pages refuses by itself (a source that is not cited rightly, a page that does
not exist) is not asked again here.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbformat import NotebookNode

from bookmaker import claims, numbers
from bookmaker.base import (
    CONTENTS,
    BookError,
    Fault,
    SourceError,
    contents,
    read_yaml,
    write_atomically,
)
from bookmaker.frame import main_path
from bookmaker.pictures import SVG
from bookmaker.source import Chapter, chapters, code_cells, has_tag, read_notebook

_TEMPLATE = Path(__file__).with_name("template.md")
CARDS, WELCOME = "book/results.md", "book/welcome.md"
_CARD = re.compile(r"^(\w+): *\d+ *(fig-\S+)?", re.MULTILINE)
LINKS_FORM = "**Builds on** [a chapter](11_x.md). **Leads to** [another](13_y.md)."
_LINKS = re.compile(r"^\*\*Builds on\*\* (.*?)\. \*\*Leads to\*\* (.*)\.$", re.MULTILINE)
# What the parameters of the template become in the test run.
_VALUES = {"beta_high": 2.0, "count": 5}


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the claims: none named)."""
    found: list[Fault] = []
    rows: list[claims.Claim] = []
    read: numbers.Reads | None = None
    try:
        rows = claims.read_claims(root)
        read = numbers.all_reads(root, rows)
    except SourceError as error:
        found += error.faults
    try:
        listed = {file for _, files in contents(root) for file in files}
    except SourceError as error:
        listed = None
        found += error.faults
    for chapter in chapters(root, names):
        if listed is not None and f"notebooks/{chapter.name}" not in listed:
            found.append(Fault(CONTENTS, 1, f"does not list notebooks/{chapter.name}"))
        unsound = chapter.faults()
        found += unsound or _chapter_faults(chapter, rows, read)
        if listed is not None and not unsound:
            found += _place_faults(chapter)
    if not names:
        for path in (root / "notebooks").glob("*.ipynb"):
            if not path.with_suffix(".md").is_file():
                found.append(Fault(f"notebooks/{path.name}", 1, "has no source"))
        found += numbers.page_faults(root)
        # Rows that cannot be read settle nothing.
        found += [] if read is None else _claim_faults(root, rows)
    return sorted(set(found))


def _place_faults(chapter: Chapter) -> Iterator[Fault]:
    """Yield what is missing where the book leads to a chapter."""
    name, root = chapter.name, chapter.root
    cards = _CARD.findall(_text(root, CARDS))
    if name not in [card for card, _ in cards]:
        yield Fault(CARDS, 1, f"has no card for {name}: a line `{name}: 1 fig-…`")
    for figure in [figure for card, figure in cards if card == name and figure]:
        if f"name: {figure}\n" not in chapter.text:
            yield Fault(CARDS, 1, f"the card of {name} shows {figure}, which is not there")
    course = _text(root, WELCOME).partition("**A course.**")[2]
    on_path = course and f"notebooks/{name}" in main_path(root)
    if on_path and name not in re.findall(r"notebooks/(\w+)", course):
        yield Fault(WELCOME, 1, f"the course leaves out {name}, a chapter of the main path")
    links = chapter_links(chapter.text)
    if links is None:
        yield chapter.fault(1, f"must end with a paragraph `{LINKS_FORM}`")
        return
    for here, there, verb in ((0, 1, "leads to"), (1, 0, "builds on")):
        for other in sorted(links[here]):
            back = chapter_links(_text(root, f"notebooks/{other}.md"))
            if back is None or name not in back[there]:
                yield chapter.fault(1, f"{other} does not say that it {verb} {name}")


def chapter_links(text: str) -> tuple[set[str], set[str]] | None:
    """Return the chapters that a chapter builds on and those that it leads to, if it says so."""
    found = _LINKS.search(text)
    if not found:
        return None
    low, high = (set(re.findall(r"\((\w+)\.md\)", part)) for part in found.groups())
    return low, high


def _text(root: Path, file: str) -> str:
    path = root / file
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _chapter_faults(
    chapter: Chapter, rows: Sequence[claims.Claim], read: numbers.Reads | None
) -> Iterator[Fault]:
    for line, text in enumerate(chapter.text.split("\n"), start=1):
        if re.search(r"\bTODO\b", text):
            yield chapter.fault(line, f"still to do: {text.strip()}")
    values = f"tests/papermill/{chapter.name}.json"
    try:
        small = json.loads((chapter.root / values).read_text("utf-8"))
        if not isinstance(small, dict):
            raise ValueError(f"expected values by name, got {small!r:.60}")
        checked = chapter.check_values(small)
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
    try:
        yield from _passage_faults(root, rows)
    except SourceError as error:
        yield from error.faults
    tagged = {name for chapter in printed.values() for name in chapter.texts}
    for name in tagged - {claim.id for claim in rows}:
        told = f"{name}: cells are tagged {claims.TAG}{name}, but there is no row"
        yield Fault(claims.FILE, 1, told)
    for claim in rows:
        if claim.chapter not in claim.settled_by(printed):
            yield claim.fault(f"no cell of {claim.chapter} is tagged {claims.TAG}{claim.id}")
        try:
            claim.settle(printed)
            claim.words(claim.condition, printed)
            if claim.settings:
                table = root / claims.TABLES / claim.settings
                problems = claims.settings_faults(table, claim.verdict, claim.region)
                yield from map(claim.fault, problems)
        except SourceError as error:
            yield from error.faults
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError, csv.Error) as error:
            yield claim.fault(f"settings: {error}")


def _passage_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the statements of a document of which nobody says where it makes them, and the rest."""
    passages, lines = read_yaml(root, claims.PASSAGES, dict)
    for row in rows:
        if row.id[:1] in claims.DOCUMENTS and row.id not in passages:
            told = f"{row.id} has no line that says where its document states it"
            yield Fault(claims.PASSAGES, 1, told)
    known = {row.id for row in rows}
    for (name, passage), line in zip(passages.items(), lines, strict=True):
        if name not in known:
            yield Fault(claims.PASSAGES, line, f"{name}: there is no row")
        if not isinstance(passage, str):
            yield Fault(claims.PASSAGES, line, f"{name}: must be text, got {passage!r:.60}")


def write_chapter(root: Path, name: str, title: str) -> list[Path]:
    """Write what a chapter called `name` begins with; return the files written.

    Its lines in the contents and among the cards stand behind the chapter whose number comes
    before. Raises BookError, and writes nothing, if the name does not fit, its number is taken or
    the contents are damaged.
    """
    number, _, words = name.partition("_")
    if not re.fullmatch(r"\d\d[a-z]?_[a-z][a-z0-9_]*", name):
        raise BookError(f"a chapter is called NN_words or, between two, 11b_words, got {name!r}")
    if taken := list((root / "notebooks").glob(f"{number}_*")):
        raise BookError(f"the number {number} is taken: notebooks/{taken[0].name}")
    contents(root)
    toc = _text(root, CONTENTS)
    listed = _with_line(toc, r"( *- file: notebooks/)(\w+)", name, r"\g<1>" + name)
    if listed == toc:
        told = "no line `- file: notebooks/NAME` that a new chapter could stand behind"
        raise SourceError([Fault(CONTENTS, 1, told)])
    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("TITLE", title or "TODO a question or a finding")
    label = words.replace("_", "-")
    written = {
        root / "notebooks" / f"{name}.md": text.replace("LABEL", label),
        root / "tests" / "papermill" / f"{name}.json": json.dumps(_VALUES) + "\n",
        root / CONTENTS: listed,
    }
    if cards := _text(root, CARDS):
        card = f"{name}: 1 fig-{label}"
        written[root / CARDS] = _with_line(cards, r"()(\d\d\w+): *\d.*", name, card)
    for path, content in written.items():
        write_atomically(path, content)
    return list(written)


def _with_line(text: str, pattern: str, name: str, line: str) -> str:
    """Return a text with one more line, behind those of the chapters whose names come before.

    `pattern` is such a line, its second group the name of the chapter; `line` may use the groups.
    """
    lines = text.splitlines()
    found = {number: m for number, told in enumerate(lines) if (m := re.fullmatch(pattern, told))}
    if not found:
        return text
    before = [number for number, match in found.items() if match[2] < name]
    place = max(before) + 1 if before else min(found)
    lines.insert(place, next(iter(found.values())).expand(line))
    return "\n".join(lines) + "\n"
