"""The claims as pages: all rows with their verdicts, those of one chapter, and the tests' source.

Everything is MyST text that the book's extension (`book/_ext`) hands to Sphinx. Rows have anchors,
`claim-a14b` for A14b, and tests, too, so that a chapter, its claims and the tests that hold them
link to one another.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bookmaker.claims import VERDICTS, Claim, printed_by_chapter, read_claims, settle
from bookmaker.errors import Fault, SourceError
from bookmaker.project import contents
from bookmaker.settings import TABLES, settings_words

PASSAGES = "book/passages.yml"
# Ids begin with the letter of the document that makes the statement.
DOCUMENTS = {"A": "bal2020energy", "B": "bal2021transformers", "C": "poclopez2024dynamical"}


@dataclass(frozen=True)
class Row:
    """One row as the page shows it.

    figures, settings: its numbers and its table of settings in words, "" if it has none. chapters:
    names of those whose cells settle it, the one that is quoted first. part: of the book, "Part I",
    say. passage: where in the document, "" if unknown.
    """

    claim: Claim
    figures: str
    settings: str
    chapters: tuple[str, ...]
    part: str
    passage: str

    @property
    def anchor(self) -> str:
        """Name of the place on the page."""
        return claim_anchor(self.claim.id)


def claim_anchor(name: str) -> str:
    """Return the anchor of a row.

    >>> claim_anchor("A14b")
    'claim-a14b'
    """
    return f"claim-{name.lower()}"


def anchor_of_test(test: str) -> str:
    """Return the anchor of a test on the page of tests.

    >>> anchor_of_test("tests/test_dmft_onset.py::test_the_onset")
    'test-dmft-onset-test-the-onset'
    """
    file, _, name = test.partition("::")
    return "-".join([Path(file).stem, name]).replace("_", "-")


def read_rows(root: Path) -> list[Row]:
    """Return all rows with figures, chapters and parts of the book.

    Raises SourceError with every row whose verdict does not follow from its figures.
    """
    printed = printed_by_chapter(root)
    path = root / PASSAGES
    passages = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    claims = read_claims(root)
    parts = _parts(root)
    # A statement that no chapter has computed stands with the others of its document.
    home = {c.id[0]: parts[c.chapter] for c in reversed(claims) if c.chapter in parts}
    rows, faults = [], list[Fault]()
    for claim in claims:
        try:
            figures = settle(claim, printed)
        except SourceError as error:
            faults += error.faults
            continue
        places = sorted(
            (name != claim.chapter, name) for name in printed if claim.id in printed[name]
        )
        names = tuple(name for _, name in places)
        table = root / TABLES / claim.settings
        settings = settings_words(table, claim.region) if claim.settings else ""
        part = parts.get(claim.chapter, home.get(claim.id[0], ""))
        rows.append(Row(claim, figures, settings, names, part, passages.get(claim.id, "")))
    if faults:
        raise SourceError(sorted(faults))
    return rows


def claims_markdown(root: Path) -> str:
    """Return the page of claims: counts, then one entry for each row of the table.

    Raises SourceError with every row whose verdict does not follow from its figures.
    """
    rows = read_rows(root)
    # What a reader of the documents would not expect comes first.
    ordered = sorted(rows, key=lambda row: row.claim.verdict == "holds")
    ordered = sorted(ordered, key=lambda row: row.claim.verdict != "fails")
    entries = [line for row in ordered for line in _entry(row)]
    return "\n".join([*_counts(rows), "", ":::::{container} claims", *entries, ":::::", ""])


def chapter_claims_markdown(rows: Iterable[Row], name: str) -> str:
    """Return a section with the claims that chapter `name` settles, "" if there are none."""
    lines = [
        f"* [{row.claim.id}](#{row.anchor}): {_one_line(row.claim.statement)} "
        f"{{bdg-secondary}}`{row.claim.verdict}`"
        + (f" {_one_line(row.claim.condition)}" if row.claim.condition else "")
        for row in rows
        if name in row.chapters
    ]
    return "\n".join(["## Claims settled here", "", *lines, ""]) if lines else ""


def sources_markdown(root: Path) -> str:
    """Return the source of every test that holds a claim, each with the claims it holds."""
    held: dict[str, list[Claim]] = {}
    for claim in read_claims(root):
        if claim.test:
            held.setdefault(claim.test, []).append(claim)
    lines = []
    for test in sorted(held):
        file, _, name = test.partition("::")
        source = _function_source(root / file, name)
        claims = ", ".join(f"[{c.id}](#{claim_anchor(c.id)})" for c in held[test])
        lines += [f"({anchor_of_test(test)})=", f"## {_words(name).capitalize()}", ""]
        lines += [f"Holds {claims}; `{file}`.", "", "```python", source, "```", ""]
    return "\n".join(lines)


def _counts(rows: Sequence[Row]) -> list[str]:
    """Return a table of how many rows each part and each verdict has."""
    counts = Counter((row.part, row.claim.verdict) for row in rows)
    parts = list(dict.fromkeys(row.part for row in rows))
    shown = [verdict for verdict in VERDICTS if any(counts[part, verdict] for part in parts)]

    def line(name: str, chosen: Sequence[str]) -> str:
        cells = [sum(counts[part, verdict] for part in chosen) for verdict in shown]
        return f"| {name} | {' | '.join(map(str, cells))} | {sum(cells)} |"

    return [
        ":::{table}",
        ":class: claims-counts",
        "",
        f"| | {' | '.join(shown)} | all |",
        f"| --- |{' ---: |' * (len(shown) + 1)}",
        *(line(part or "elsewhere", [part]) for part in parts),
        line("**all**", parts),
        ":::",
    ]


def _entry(row: Row) -> list[str]:
    """Return one row of the page."""
    claim = row.claim
    words = claim.verdict.replace(" ", "-")
    part = row.part.removeprefix("Part ").lower().replace(" ", "-") or "elsewhere"
    test, name = anchor_of_test(claim.test), _words(claim.test.partition("::")[2])
    source = f"{{cite:t}}`{DOCUMENTS[claim.id[0]]}`" if claim.id[0] in DOCUMENTS else ""
    facts = {
        "Condition" if claim.verdict == "holds if" else "Why": claim.condition,
        "Figures": row.figures,
        "Criterion": f"`{_one_line(claim.criterion)}`" if claim.criterion else "",
        "Criterion before": claim.before,
        "Settings": row.settings or claim.no_settings,
        "Chapter" if len(row.chapters) == 1 else "Chapters": ", ".join(
            f"[](/notebooks/{chapter}.ipynb)" for chapter in row.chapters
        ),
        "Test": f"[{name}](#{test})" if claim.test else "",
        "Stated in": ", ".join(filter(None, [source, source and row.passage])),
    }
    told = [
        line for name, text in facts.items() if text for line in (name, f": {_one_line(text)}", "")
    ]
    return [
        "::::{container} " + f"claim verdict-{words} part-{part}",
        f":name: {row.anchor}",
        f"[{claim.id}](#{row.anchor}) {{bdg-secondary}}`{claim.verdict}`",
        "",
        f"**{_one_line(claim.statement)}**",
        "",
        *told,
        *(["```{settings} " + claim.settings, "```", ""] if claim.settings else []),
        "::::",
        "",
    ]


def _words(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _parts(root: Path) -> dict[str, str]:
    """Return the part of the book in which each chapter stands; further results belong to it."""
    return {
        Path(file).name: (re.findall(r"Part [IVX]+", caption) or caption.split(":"))[0]
        for caption, files in contents(root)
        for file in files
        if file.startswith("notebooks/")
    }


def _function_source(path: Path, name: str) -> str:
    """Return a function of a file with its decorators; SourceError if there is none."""
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise SourceError([Fault(path.name, 1, f"there is no function {name}")])
