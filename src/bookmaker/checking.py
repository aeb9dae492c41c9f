"""Everything a chapter needs to be part of the book; what is missing, by file and line."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bookmaker.claims import FILE as CLAIMS
from bookmaker.claims import TAG, Claim, claim_tags, parse_claims, settle
from bookmaker.errors import ChapterError, Fault, ParameterError, SourceError
from bookmaker.figures import PICTURES
from bookmaker.freshness import read_notebook, state
from bookmaker.meaning import has_tag
from bookmaker.results import TAG as RESULTS
from bookmaker.results import printed_results
from bookmaker.settings import TABLES, settings_faults
from bookmaker.source import Chapter, chapters
from bookmaker.stored import prints_stored

_CITATION = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
_BIB_ENTRY = re.compile(r"^@\w+\{\s*([^,\s]+)\s*,", re.MULTILINE)
_LISTED = re.compile(r"^\s*-\s*file:\s*[\"']?([\w/.-]+)")
_NEIGHBORS = re.compile(r"^\*\*Builds on\*\* (.*?)\. \*\*Leads to\*\* (.*)\.$", re.MULTILINE)
_NEIGHBOR = re.compile(r"\((\w+)\.md\)")
_TODO = re.compile(r"\bTODO\b")
_CODE = re.compile(r"^```\{code-cell\}.*?^```\s*$", re.MULTILINE | re.DOTALL)


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the book: none named)."""
    selected = chapters(root, names)
    claims, claim_faults = _claims(root)
    keys, bibliography_faults = _bibliography(root)
    paths = {f"notebooks/{chapter.name}.md" for chapter in selected}
    found = [] if names else [*claim_faults, *bibliography_faults, *_contents_faults(root)]
    for chapter in selected:
        found += _chapter_faults(chapter, keys, claims)
    found += [fault for fault in _neighbor_faults(root) if not names or fault.path in paths]
    if not names:
        found += _page_citation_faults(root, keys)
        found += _row_faults(root, claims)
    found += _verdict_faults(root, claims, {chapter.name for chapter in selected})
    return sorted(set(found))


def _chapter_faults(chapter: Chapter, keys: set[str], claims: list[Claim]) -> list[Fault]:
    found = [*_listing_faults(chapter), *chapter.faults()]
    if chapter.unreadable():
        return found
    text = chapter.text
    for line, key in _citations(text):
        if key not in keys:
            found.append(chapter.fault(line, f"no entry {key} in book/references.bib"))
    for line, content in enumerate(text.split("\n"), start=1):
        if _TODO.search(content):
            found.append(chapter.fault(line, f"still to do: {content.strip()}"))
    found += _figure_faults(chapter)
    found += _tag_faults(chapter, {claim.id for claim in claims})
    if not chapter.parameter_faults():
        found += _value_faults(chapter)
    if not chapter.faults():
        found += _age_faults(chapter)
    return found


def _listing_faults(chapter: Chapter) -> Iterator[Fault]:
    listed = [name for _, name in _contents(chapter.root)]
    if f"notebooks/{chapter.name}" not in listed:
        yield Fault("_toc.yml", 1, f"does not list notebooks/{chapter.name}")


def _contents_faults(root: Path) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for line, name in _contents(root):
        if not any((root / f"{name}{suffix}").is_file() for suffix in (".md", ".ipynb")):
            yield Fault("_toc.yml", line, f"lists {name}, which does not exist")
        if name in seen:
            yield Fault("_toc.yml", line, f"lists {name} already in line {seen[name]}")
        seen.setdefault(name, line)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        if not path.with_suffix(".md").is_file():
            yield Fault(f"notebooks/{path.name}", 1, f"has no source notebooks/{path.stem}.md")


def _contents(root: Path) -> list[tuple[int, str]]:
    lines = (root / "_toc.yml").read_text(encoding="utf-8").splitlines()
    found = [(number, _LISTED.match(line)) for number, line in enumerate(lines, start=1)]
    return [(number, match[1].removesuffix(".ipynb")) for number, match in found if match]


def _bibliography(root: Path) -> tuple[set[str], list[Fault]]:
    path = root / "book" / "references.bib"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    seen: dict[str, int] = {}
    faults = []
    for match in _BIB_ENTRY.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] in seen:
            message = f"{match[1]} stands in line {seen[match[1]]} already"
            faults.append(Fault("book/references.bib", line, message))
        seen.setdefault(match[1], line)
    return set(seen), faults


def _citations(text: str) -> Iterator[tuple[int, str]]:
    # Not in code: a cell may print such a thing.
    prose = _CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in _CITATION.finditer(prose):
        for key in match[1].split(","):
            yield prose.count("\n", 0, match.start()) + 1, key.strip()


def _page_citation_faults(root: Path, keys: set[str]) -> Iterator[Fault]:
    for path in sorted((root / "book").glob("*.md")):
        for line, key in _citations(path.read_text(encoding="utf-8")):
            if key not in keys:
                yield Fault(f"book/{path.name}", line, f"no entry {key} in book/references.bib")


def _figure_faults(chapter: Chapter) -> Iterator[Fault]:
    for cell, line in zip(chapter.template.cells, chapter.cell_lines, strict=True):
        settings = cell.metadata.get("mystnb", {})
        if cell.cell_type != "code" or "figure" not in settings:
            continue
        figure, image = settings["figure"] or {}, settings.get("image") or {}
        if not str(figure.get("name", "")).startswith("fig-"):
            yield chapter.fault(line, "the figure needs a name that begins with `fig-`")
        if len(str(figure.get("caption", ""))) <= 20:
            yield chapter.fault(line, "the figure needs a caption")
        if len(str(image.get("alt", ""))) <= 20:
            yield chapter.fault(line, "the figure needs alt text (mystnb: image: alt:)")


def _tag_faults(chapter: Chapter, known: set[str]) -> Iterator[Fault]:
    for cell, line in zip(chapter.template.cells, chapter.cell_lines, strict=True):
        for tag in cell.metadata.get("tags", []):
            name = tag.removeprefix(TAG)
            if tag.startswith(TAG) and name not in known and not _TODO.search(name):
                yield chapter.fault(line, f"the cell is tagged {tag}, but {CLAIMS} has no {name}")


def _neighbor_faults(root: Path) -> Iterator[Fault]:
    """Yield what a chapter builds on or leads to that does not say so the other way round."""
    lines: dict[str, int] = {}
    named: dict[str, tuple[set[str], set[str]]] = {}
    for chapter in chapters(root):
        if not chapter.unreadable() and (match := _NEIGHBORS.search(chapter.text)):
            lines[chapter.name] = chapter.text.count("\n", 0, match.start()) + 1
            up, down = (set(_NEIGHBOR.findall(part)) for part in match.groups())
            named[chapter.name] = up, down
    for name, directions in named.items():
        for way, back in ((0, 1), (1, 0)):
            for other in directions[way] & set(named):
                if name not in named[other][back]:
                    said, unsaid = ("Builds on", "Leads to")[way], ("Builds on", "Leads to")[back]
                    message = f"{name} says {said} {other}, {other} does not say {unsaid} {name}"
                    # In both: whoever checks one of them is told.
                    yield Fault(f"notebooks/{name}.md", lines[name], message)
                    yield Fault(f"notebooks/{other}.md", lines[other], message)


def _value_faults(chapter: Chapter) -> Iterator[Fault]:
    name = f"tests/papermill/{chapter.name}.json"
    path = chapter.root / name
    if not path.is_file():
        yield Fault(name, 1, "is missing: a line of JSON with small values for the test run")
        return
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield Fault(name, getattr(error, "lineno", 1), f"not JSON: {error}")
        return
    if not isinstance(values, dict):
        yield Fault(name, 1, "expected names and values, `{…}`")
        return
    try:
        checked = chapter.check_values(values)
    except ParameterError as error:
        yield Fault(name, 1, str(error))
        return
    defaults = {parameter.name: parameter.default for parameter in chapter.parameters}
    if all(value == defaults[key] for key, value in checked.items()):
        yield Fault(name, 1, "must change at least one parameter")


def _age_faults(chapter: Chapter) -> Iterator[Fault]:
    found = state(chapter)
    if found.reason:
        yield chapter.fault(1, f"the notebook is stale, {found.reason}: run `make notebooks`")
    if found.execute:
        return
    notebook = read_notebook(chapter.notebook_path)
    lines = dict(zip((c.id for c in chapter.template.cells), chapter.cell_lines, strict=True))
    for cell, from_table in zip(notebook.cells, prints_stored(notebook), strict=True):
        if cell.cell_type != "code":
            continue
        images = [o for o in cell.outputs if PICTURES.keys() & o.get("data", {}).keys()]
        if len(images) > 1:
            yield chapter.fault(lines[cell.id], f"the cell draws {len(images)} figures, not one")
        if images and "figure" not in cell.metadata.get("mystnb", {}):
            yield chapter.fault(lines[cell.id], "the figure needs name, caption and alt text")
        if has_tag(cell, RESULTS) and not printed_results(cell):
            message = f"the cell is tagged {RESULTS} and prints no line `name = number`"
            yield chapter.fault(lines[cell.id], message)
        if has_tag(cell, RESULTS) and from_table:
            message = f"the cell is tagged {RESULTS} and prints what a stored table holds"
            yield chapter.fault(lines[cell.id], message)


def _claims(root: Path) -> tuple[list[Claim], list[Fault]]:
    path = root / CLAIMS
    return parse_claims(path.read_text(encoding="utf-8")) if path.is_file() else ([], [])


def _row_faults(root: Path, claims: list[Claim]) -> Iterator[Fault]:
    tagged: dict[str, set[str]] = {}
    for chapter in chapters(root):
        if chapter.unreadable():
            continue
        cells = chapter.template.cells
        tags = {tag for cell in cells for tag in cell.metadata.get("tags", [])}
        tagged[chapter.name] = {tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)}
    sources = {path.stem for path in (root / "notebooks").glob("*.md")}
    for claim in claims:
        if claim.verdict == "not computed yet":
            continue
        if claim.chapter not in sources:
            yield claim.fault(f"there is no chapter {claim.chapter!r}")
        elif claim.chapter in tagged and claim.id not in tagged[claim.chapter]:
            yield claim.fault(f"no cell of {claim.chapter} is tagged {TAG}{claim.id}")
        if problem := _test_problem(root, claim):
            yield claim.fault(problem)
        if claim.settings:
            path = root / TABLES / claim.settings
            yield from map(claim.fault, settings_faults(path, claim.verdict, claim.region))


def _verdict_faults(root: Path, claims: list[Claim], names: set[str]) -> Iterator[Fault]:
    """Yield the rows of the chapters called `names` that their figures do not bear out."""
    printed: dict[str, dict[str, str]] = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        # One that cannot be read is named as stale.
        with contextlib.suppress(ChapterError):
            printed[path.stem] = claim_tags(read_notebook(path))
    for claim in claims:
        # Nor is one that was never executed a fault of its rows.
        if claim.chapter in names and claim.chapter in printed and not list(claim.faults()):
            try:
                settle(claim, printed)
            except SourceError as error:
                yield from error.faults


def _test_problem(root: Path, claim: Claim) -> str:
    file, _, name = claim.test.partition("::")
    path = root / file
    if not file or not path.is_file():
        return f"there is no file of tests {file!r}"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            marks = map(ast.unparse, node.decorator_list)
            named = [mark for mark in marks if mark.startswith("pytest.mark.claim(")]
            if any(repr(claim.id) in mark for mark in named):
                return ""
            return f'the test {name} is not marked `@pytest.mark.claim("{claim.id}")`'
    return f"there is no test {name!r} in {file}"
