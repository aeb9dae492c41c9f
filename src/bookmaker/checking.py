"""Everything a chapter needs to be part of the book: what is missing, and how one begins.

What the build of the pages refuses by itself (a source that is not cited rightly, a page that does
not exist) is not asked again here.
"""

import ast
import csv
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from nbformat import NotebookNode

from bookmaker import claims, numbers, robustness
from bookmaker.base import (
    CONTENTS,
    BookError,
    Fault,
    SourceError,
    contents,
    write_atomically,
)
from bookmaker.figures import FIGURES
from bookmaker.measured import table_faults
from bookmaker.pictures import SVG
from bookmaker.places import Place, all_places, contents_text, read_place
from bookmaker.source import Chapter, chapters, code_cells, has_tag, read_notebook
from bookmaker.values import prose

# What a chapter begins with, by the places that it has.
_TEMPLATES = {
    "notebooks/NAME.md": "source.md",
    "book/claims/NAME.yml": "claims.yml",
    "tests/chapters/test_NAME.py": "tests.txt",
    "src/compendium/cNAME/__init__.py": "folder.txt",
}
LINKS_FORM = "**Builds on** [a chapter](11_x.md). **Leads to** [another](13_y.md)."
_LINKS = re.compile(r"^\*\*Builds on\*\* (.*?)\. \*\*Leads to\*\* (.*)\.$", re.MULTILINE)
# A verdict in running text, "(C9) holds", "**Claim A13b fails**", and the rows that may say so.
_VERDICT = re.compile(
    r"\b(?P<id>[A-Z]\d+[a-z]?)(?:\]\([^)\s]*\))?\)?\s+(?:(?:therefore|thus|then|also)\s+)?\**"
    r"(?P<word>holds?|fails?|is open|stays open|remains open)\b"
)
_SAID: dict[str, tuple[str, ...]] = {
    "h": ("holds", "holds if", "held in", "identity"),
    "f": ("fails",),
    "i": ("open",),
    "s": ("open",),
    "r": ("open",),
}
# What an output shows that is another one in the next run or on the next machine.
_FLEETING = {
    "an address or a path": re.compile(r"0x[0-9a-f]{6,}|/tmp/|/home/|/root/"),
    "minus zero": re.compile(r"(?<![\w.])-0(\.0*)?(?![\w.])"),
}


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the claims: none named)."""
    faults: list[Fault] = []
    rows: list[claims.Claim] = []
    read: numbers.Reads | None = None
    try:
        rows = claims.read_claims(root)
        read = numbers.all_reads(root, rows)
    except SourceError as error:
        faults += error.faults
    try:
        listed = {file for _, files in contents(root) for file in files}
        faults += _contents_faults(root)
    except SourceError as error:
        listed = None
        faults += error.faults
    for chapter in chapters(root, names):
        if listed is not None and f"notebooks/{chapter.name}" not in listed:
            faults.append(Fault(CONTENTS, 1, f"does not list notebooks/{chapter.name}"))
        unsound = chapter.faults()
        faults += unsound or _chapter_faults(chapter, rows, read)
        if not unsound:
            faults += _link_faults(chapter)
        faults += _file_faults(chapter)
    if not names:
        for path in (root / "notebooks").glob("*.ipynb"):
            if not path.with_suffix(".md").is_file():
                faults.append(Fault(f"notebooks/{path.name}", 1, "has no source"))
        faults += numbers.page_faults(root)
        faults += table_faults(root)
        # Rows that cannot be read decide nothing.
        faults += [] if read is None else _claim_faults(root, rows)
        faults += [] if read is None else _test_faults(root, rows)
        faults += [] if read is None else _surprise_faults(root, rows)
        faults += [] if read is None else _verdict_faults(root, rows)
    return sorted(set(faults))


def _contents_faults(root: Path) -> Iterator[Fault]:
    """Yield the line of the contents that is not what the chapters' front matter says."""
    text = _text(root, CONTENTS)
    try:
        places = all_places(root)
    except SourceError:
        return  # a chapter without its place is named as such
    made = contents_text(text, places)
    for line, (there, wanted) in enumerate(
        zip_longest(text.splitlines(), made.splitlines(), fillvalue=""), start=1
    ):
        if there != wanted:
            message = f"expected `{wanted.strip()}` by the front matter of the chapters"
            yield Fault(CONTENTS, line, f"{message}: run python -m bookmaker welcome")
            return


def _file_faults(chapter: Chapter) -> Iterator[Fault]:
    """Yield what is missing, or still to do, in the files of a chapter; a study may be missing."""
    for form in _TEMPLATES:
        file = form.replace("NAME", chapter.name)
        if not form.startswith("src/") and not (chapter.root / file).is_file():
            yield Fault(
                file, 1, "is missing (`[]` are no claims)" if ".yml" in file else "is missing"
            )
        for line, text in enumerate(_text(chapter.root, file).split("\n"), start=1):
            if re.search(r"\bTODO\b", text):
                yield Fault(file, line, f"still to do: {text.strip()}")


def _link_faults(chapter: Chapter) -> Iterator[Fault]:
    """Yield the links between chapters that are missing or go one way."""
    name = chapter.name
    root = chapter.root
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
    match = _LINKS.search(text)
    if not match:
        return None
    builds_on, leads_to = match.groups()
    return _linked_chapters(builds_on), _linked_chapters(leads_to)


def _linked_chapters(text: str) -> set[str]:
    return set(re.findall(r"\((\w+)\.md\)", text))


def _text(root: Path, file: str) -> str:
    path = root / file
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _chapter_faults(
    chapter: Chapter, rows: Sequence[claims.Claim], read: numbers.Reads | None
) -> Iterator[Fault]:
    if not chapter.parameter_cell.small:
        message = "no parameter has a value for the test run, `; tests use 3` behind its range"
        yield chapter.fault(1, message, chapter.parameters_id)
    place = None
    try:
        place = read_place(chapter)
    except SourceError as error:
        yield from error.faults
    try:
        reason, execute = chapter.stale()
    except SourceError as error:
        yield from error.faults
        return
    if reason:
        yield chapter.fault(1, f"the notebook is stale, {reason}: run `make notebooks`")
    if not execute:
        cells = code_cells(read_notebook(chapter.notebook_path))
        for cell in cells:
            yield from (chapter.fault(1, problem, cell.id) for problem in _cell_problems(cell))
        yield from (chapter.fault(1, problem) for problem in _output_problems(cells, place))
    yield from numbers.chapter_faults(chapter, rows, read, executed=not reason)


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    settings = cell.metadata.get("mystnb", {})
    figure = settings.get("figure", {})
    image = settings.get("image", {})
    drawn = [o.data for o in cell.outputs if {SVG, "image/png"} & o.get("data", {}).keys()]
    words = len(figure.get("caption", "")) > 20 and len(image.get("alt", "")) > 20
    if (drawn or figure) and not (words and figure.get("name", "").startswith("fig-")):
        yield "the figure needs a name that begins with `fig-`, a caption and alt text"
    if len(drawn) > 1 or any(SVG not in data for data in drawn):
        yield "a cell draws one figure, which is an SVG: call `use_style()` before"
    if drawn and any("text/html" in o.get("data", {}) for o in cell.outputs):
        yield "a cell that draws shows no table, which would be set as a second figure: two cells"
    if has_tag(cell, claims.RESULTS) and not claims.results(NotebookNode(cells=[cell])):
        yield f"the cell is tagged {claims.RESULTS} and hands over no number"

    for output in cell.outputs:
        shown = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        for what, pattern in _FLEETING.items():
            if match := pattern.search(shown):
                yield f"the output shows {what}, {match[0]!r}"


def _output_problems(cells: Sequence[NotebookNode], place: Place | None) -> Iterator[str]:
    """Yield what a chapter as a whole does not show."""
    outputs = [output for cell in cells for output in cell.outputs]
    data = [output.get("data", {}) for output in outputs]
    printed = any(output.get("name") == "stdout" for output in outputs)
    if not (printed or any(FIGURES in shown for shown in data)):
        yield "no cell hands over a figure or prints one"
    if place and place.figure and not any(SVG in shown for shown in data):
        yield f"no cell draws {place.figure}, which its card shows"


def _claim_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the rows that no cell decides or that their figures do not bear out."""
    try:
        by_chapter = claims.figures_by_chapter(root)
    except BookError:
        return  # a notebook that cannot be read is named as stale
    ids = {claim.id for claim in rows}
    for name, figures in by_chapter.items():
        for unknown in sorted(figures.tags - ids):
            yield _tag_fault(Chapter(root, name), unknown)
    for path in sorted((root / claims.FOLDER).glob("*.yml")):
        if path.stem not in by_chapter and not (root / "notebooks" / f"{path.stem}.md").is_file():
            yield Fault(claims.claims_file(path.stem), 1, f"there is no chapter {path.stem}")
    yield from _trial_faults(root, rows)
    for claim in rows:
        if claim.chapter not in claim.decided_in(by_chapter):
            yield claim.fault(f"no cell of {claim.chapter} is tagged {claims.TAG}{claim.id}")
        try:
            claim.evaluate(by_chapter)
            claim.words(claim.condition, by_chapter)
            yield from map(claim.fault, claim.settings_faults(root))
        except SourceError as error:
            yield from error.faults
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError, csv.Error) as error:
            yield claim.fault(f"settings: {error}")


def _trial_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the trials that a row's history names and that were not kept, and the reverse."""
    try:
        kept = set(robustness.read_trials(root / claims.TRIALS))
    except (KeyError, ValueError, csv.Error) as error:
        yield Fault(claims.TRIALS, 1, str(error))
        return
    for claim in rows:
        for _, label in sorted(claim.trials() - kept):
            yield claim.fault(f"before names the trial {label!r}, which {claims.TRIALS} has not")
    named = set().union(*(claim.trials() for claim in rows))
    for row, label in sorted(kept - named):
        yield Fault(claims.TRIALS, 1, f"the history of {row} does not name the trial {label!r}")


def _surprise_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the claims that their page shows first and that no row is called like."""
    ids = {claim.id for claim in rows}
    listed = False
    for line, text in enumerate(_text(root, claims.PAGE).split("\n"), start=1):
        if listed and text.startswith("```"):
            return
        if listed and text.strip() not in ids:
            yield Fault(claims.PAGE, line, f"there is no row {text.strip()}")
        listed = listed or text.startswith("```{claims}")


def _verdict_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield the sentences, "A9 holds", that say another verdict than the row of the claim."""
    verdicts = {claim.id: claim.verdict for claim in rows}
    paths = [chapter.source_path for chapter in chapters(root)]
    for path in [*paths, *numbers.pages(root), root / numbers.README]:
        file = path.relative_to(root).as_posix()
        text = prose(_text(root, file))
        for match in _VERDICT.finditer(text):
            verdict = verdicts.get(match["id"], "")
            if verdict and verdict not in _SAID[match["word"][0]]:
                line = text.count("\n", 0, match.start()) + 1
                said = f"says that {match['id']} {match['word']}"
                yield Fault(file, line, f"{said}, but its row has the verdict {verdict}")


def _tag_fault(chapter: Chapter, name: str) -> Fault:
    """Return the fault of a tag in a chapter that no row of the claims is called like."""
    text = _text(chapter.root, f"notebooks/{chapter.name}.md")
    place = re.search(rf"\b{claims.TAG}{re.escape(name)}\b", text)
    line = text.count("\n", 0, place.start()) + 1 if place else 1
    return chapter.fault(line, f"a cell is tagged {claims.TAG}{name}, but there is no row {name}")


def claim_marks(root: Path) -> dict[tuple[str, str], tuple[str, int]]:
    """Return file and line of each mark `claim` of a test, by id and test as a row says them."""
    marks = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        file = path.relative_to(root).as_posix()
        # Reading the others would take seconds.
        nodes = ast.parse(text).body if "pytest.mark.claim(" in text else []
        for node in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.claim":
                    for name in mark.args:
                        key = ast.literal_eval(name), f"{file}::{node.name}"
                        marks[key] = (file, mark.lineno)
    return marks


def _test_faults(root: Path, rows: Sequence[claims.Claim]) -> Iterator[Fault]:
    """Yield rows whose test does not name them, and tests whose row names another."""
    try:
        marks = claim_marks(root)
    except (SyntaxError, ValueError) as error:
        yield Fault("tests", 1, f"a test that cannot be read: {error}")
        return
    named = {(claim.id, claim.test): claim for claim in rows}
    for key in named.keys() - marks.keys():
        message = f'{key[1]} is no test that is marked @pytest.mark.claim("{key[0]}")'
        yield named[key].fault(message)
    for key in marks.keys() - named.keys():
        file, line = marks[key]
        yield Fault(file, line, f"marked for {key[0]}, but the row of {key[0]} names no such test")


def write_chapter(root: Path, name: str, title: str) -> list[Path]:
    """Write what a chapter called `name` begins with; return the files written.

    Raises BookError, and writes nothing, if the name does not fit, its number is taken, the
    contents are damaged or a chapter does not say its place.
    """
    number, _, words = name.partition("_")
    if not re.fullmatch(r"\d\d[a-z]?_[a-z][a-z0-9_]*", name):
        raise BookError(f"a chapter is called NN_words or, between two, 11b_words, got {name!r}")
    if taken := list((root / "notebooks").glob(f"{number}_*")):
        raise BookError(f"the number {number} is taken: notebooks/{taken[0].name}")
    contents(root)
    label = words.replace("_", "-")
    place = Place(name, rank="main", sentence=1, figure=f"fig-{label}")
    written = {root / CONTENTS: contents_text(_text(root, CONTENTS), [*all_places(root), place])}
    title = title or "TODO a question or a finding"
    filled = {"LABEL": label, "NAME": name, "TITLE": title}
    for file, template in _TEMPLATES.items():
        text = (Path(__file__).parent / "template" / template).read_text(encoding="utf-8")
        for mark, content in filled.items():
            text = text.replace(mark, content)
        written[root / file.replace("NAME", name)] = text
    for path, content in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(written)
