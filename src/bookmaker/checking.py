"""Everything a chapter needs to be part of the book; what is missing, by file and line."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nbformat import NotebookNode

from bookmaker.claims import FILE as CLAIMS
from bookmaker.claims import TAG, Claim, claim_tags, parse_claims, settle
from bookmaker.errors import ChapterError, Fault, ParameterError, SourceError
from bookmaker.figures import SVG
from bookmaker.freshness import read_notebook, state
from bookmaker.meaning import has_tag
from bookmaker.results import TAG as RESULTS
from bookmaker.results import printed_results
from bookmaker.settings import TABLES, settings_faults
from bookmaker.source import Chapter, chapters
from bookmaker.stored import prints_stored

BIBLIOGRAPHY = "book/references.bib"
_CITATION = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
_BIB_ENTRY = re.compile(r"^@\w+\{\s*([^,\s]+)\s*,", re.MULTILINE)
_LISTED = re.compile(r"^\s*-\s*file:\s*[\"']?([\w/.-]+)")
_NEIGHBORS = re.compile(r"^\*\*Builds on\*\* (.*?)\. \*\*Leads to\*\* (.*)\.$", re.MULTILINE)
_NEIGHBOR = re.compile(r"\((\w+)\.md\)")
_TODO = re.compile(r"\bTODO\b")
_CODE = re.compile(r"^```\{code-cell\}.*?^```\s*$", re.MULTILINE | re.DOTALL)


def all_faults(root: Path, names: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of the chapters called `names` (of all and of the book: none named)."""
    wanted = {chapter.name for chapter in chapters(root, names)}
    book = chapters(root)
    path = root / CLAIMS
    claims, found = parse_claims(path.read_text(encoding="utf-8")) if path.is_file() else ([], [])
    keys, bibliography = _bibliography(root)
    if names:
        found = []
    else:
        found += [*bibliography, *_contents_faults(root), *_row_faults(root, claims, book)]
        for page in sorted((root / "book").glob("*.md")):
            found += _citation_faults(f"book/{page.name}", page.read_text(encoding="utf-8"), keys)
    for chapter in book:
        if chapter.name in wanted:
            found += _chapter_faults(chapter, keys, {claim.id for claim in claims})
    paths = {f"notebooks/{name}.md" for name in wanted}
    found += [fault for fault in _neighbor_faults(book) if fault.path in paths]
    found += _verdict_faults(root, [claim for claim in claims if claim.chapter in wanted])
    return sorted(set(found))


def _chapter_faults(chapter: Chapter, keys: set[str], claims: set[str]) -> list[Fault]:
    found = chapter.faults()
    if f"notebooks/{chapter.name}" not in (name for _, name in _contents(chapter.root)):
        found.append(Fault("_toc.yml", 1, f"does not list notebooks/{chapter.name}"))
    if chapter.unreadable():
        return found
    found += _citation_faults(f"notebooks/{chapter.name}.md", chapter.text, keys)
    for line, content in enumerate(chapter.text.split("\n"), start=1):
        if _TODO.search(content):
            found.append(chapter.fault(line, f"still to do: {content.strip()}"))
    for cell, line in zip(chapter.template.cells, chapter.cell_lines, strict=True):
        found += [chapter.fault(line, message) for message in _cell_faults(cell, claims)]
    if not chapter.parameter_faults() and (problem := _value_problem(chapter)):
        found.append(Fault(f"tests/papermill/{chapter.name}.json", 1, problem))
    if not chapter.faults():
        found += _age_faults(chapter)
    return found


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


def _citation_faults(path: str, text: str, keys: set[str]) -> list[Fault]:
    # Not in code: a cell may print such a thing.
    prose = _CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [
        Fault(path, prose.count("\n", 0, match.start()) + 1, f"no entry {key} in {BIBLIOGRAPHY}")
        for match in _CITATION.finditer(prose)
        for key in map(str.strip, match[1].split(","))
        if key not in keys
    ]


def _cell_faults(cell: NotebookNode, claims: set[str]) -> Iterator[str]:
    settings = cell.metadata.get("mystnb", {})
    if cell.cell_type == "code" and "figure" in settings:
        figure, image = settings["figure"], settings.get("image", {})
        if not str(figure.get("name", "")).startswith("fig-"):
            yield "the figure needs a name that begins with `fig-`"
        if len(str(figure.get("caption", ""))) <= 20:
            yield "the figure needs a caption"
        if len(str(image.get("alt", ""))) <= 20:
            yield "the figure needs alt text (mystnb: image: alt:)"
    for tag in cell.metadata.get("tags", []):
        name = tag.removeprefix(TAG)
        if tag.startswith(TAG) and name not in claims and not _TODO.search(name):
            yield f"the cell is tagged {tag}, but {CLAIMS} has no {name}"


def _neighbor_faults(book: list[Chapter]) -> Iterator[Fault]:
    """Yield what a chapter builds on or leads to that does not say so the other way round."""
    ways = ("Builds on", "Leads to")
    lines: dict[str, int] = {}
    said: dict[tuple[str, str], set[str]] = {}
    for chapter in book:
        if not chapter.unreadable() and (match := _NEIGHBORS.search(chapter.text)):
            lines[chapter.name] = chapter.text.count("\n", 0, match.start()) + 1
            for way, part in zip(ways, match.groups(), strict=True):
                said[chapter.name, way] = set(_NEIGHBOR.findall(part))
    for (name, way), others in said.items():
        back = ways[way == ways[0]]
        for other in others & set(lines):
            if name not in said[other, back]:
                message = f"{name} says {way} {other}, {other} does not say {back} {name}"
                # In both: whoever checks one of them is told.
                yield Fault(f"notebooks/{name}.md", lines[name], message)
                yield Fault(f"notebooks/{other}.md", lines[other], message)


def _value_problem(chapter: Chapter) -> str:
    """Return what is wrong with the values of the test run, "" if nothing."""
    path = chapter.root / "tests" / "papermill" / f"{chapter.name}.json"
    if not path.is_file():
        return "is missing: a line of JSON with small values for the test run"
    try:
        checked = chapter.check_values(dict(json.loads(path.read_text(encoding="utf-8"))))
    except ParameterError as error:
        return str(error)
    except (ValueError, TypeError) as error:
        return f"not JSON of names and values, `{{…}}`: {error}"
    defaults = {parameter.name: parameter.default for parameter in chapter.parameters}
    unchanged = all(value == defaults[key] for key, value in checked.items())
    return "must change at least one parameter" if unchanged else ""


def _age_faults(chapter: Chapter) -> Iterator[Fault]:
    found = state(chapter)
    if found.reason:
        yield chapter.fault(1, f"the notebook is stale, {found.reason}: run `make notebooks`")
    if found.execute:
        return
    cells = read_notebook(chapter.notebook_path).cells
    results = [has_tag(cell, RESULTS) for cell in cells]
    stored = prints_stored(cells) if any(results) else results
    lines = dict(zip((c.id for c in chapter.template.cells), chapter.cell_lines, strict=True))
    for cell, result, from_table in zip(cells, results, stored, strict=True):
        if cell.cell_type != "code":
            continue
        line = lines[cell.id]
        images = [o for o in cell.outputs if {SVG, "image/png"} & o.get("data", {}).keys()]
        if any(SVG not in output.data for output in images):
            yield chapter.fault(line, "the figure is no SVG: call `use_style()` before it is drawn")
        if len(images) > 1:
            yield chapter.fault(line, f"the cell draws {len(images)} figures, not one")
        if images and "figure" not in cell.metadata.get("mystnb", {}):
            yield chapter.fault(line, "the figure needs name, caption and alt text")
        if result and (from_table or not printed_results(cell)):
            what = "what a stored table holds" if from_table else "no line `name = number`"
            yield chapter.fault(line, f"the cell is tagged {RESULTS} and prints {what}")


def _row_faults(root: Path, claims: list[Claim], book: list[Chapter]) -> Iterator[Fault]:
    names = {chapter.name for chapter in book}
    tagged = {
        (chapter.name, tag.removeprefix(TAG))
        for chapter in book
        if not chapter.unreadable()
        for cell in chapter.template.cells
        for tag in cell.metadata.get("tags", [])
    }
    held = cache(marks)
    for claim in claims:
        if claim.verdict == "not computed yet":
            continue
        if claim.chapter not in names:
            yield claim.fault(f"there is no chapter {claim.chapter!r}")
        elif (claim.chapter, claim.id) not in tagged:
            yield claim.fault(f"no cell of {claim.chapter} is tagged {TAG}{claim.id}")
        file, _, test = claim.test.partition("::")
        path = root / file
        if not file or not path.is_file():
            yield claim.fault(f"there is no file of tests {file!r}")
        elif test not in held(path):
            yield claim.fault(f"there is no test {test!r} in {file}")
        elif claim.id not in held(path)[test]:
            mark = f'`@pytest.mark.claim("{claim.id}")`'
            yield claim.fault(f"the test {test} is not marked {mark}")
        if claim.settings:
            path = root / TABLES / claim.settings
            yield from map(claim.fault, settings_faults(path, claim.verdict, claim.region))


def marks(path: Path) -> dict[str, set[str]]:
    """Return the tests of a file, each with the claims that it is marked with."""
    return {
        node.name: {
            str(argument.value)
            for mark in node.decorator_list
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.claim"
            for argument in mark.args
            if isinstance(argument, ast.Constant)
        }
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def _verdict_faults(root: Path, claims: list[Claim]) -> Iterator[Fault]:
    """Yield the rows that their figures do not bear out."""
    printed: dict[str, dict[str, str]] = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        # One that cannot be read is named as stale.
        with contextlib.suppress(ChapterError):
            printed[path.stem] = claim_tags(read_notebook(path))
    for claim in claims:
        # Nor is one that was never executed a fault of its rows.
        if claim.chapter in printed and not claim.faults():
            try:
                settle(claim, printed)
            except SourceError as error:
                yield from error.faults
