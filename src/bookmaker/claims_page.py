"""The claims as pages: all rows with their verdicts, those of a part, those of one chapter.

Everything is MyST text that the book's extension (`book/_ext`) hands to Sphinx. Rows have anchors,
`claim-a14b` for A14b, and tests, too, so that a chapter, its claims and the tests that hold them
link to one another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bookmaker.claims import VERDICTS, Claim, printed_by_chapter, read_claims
from bookmaker.errors import SourceError
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
        return f"claim-{self.claim.id.lower()}"


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
    passages = yaml.safe_load((root / PASSAGES).read_text(encoding="utf-8"))
    # Further results stand below the part of the book that they belong to.
    parts = {
        Path(file).name: (re.findall(r"Part [IVX]+", caption) or caption.split(":"))[0]
        for caption, files in contents(root)
        for file in files
    }
    rows, faults = [], []
    for claim in read_claims(root):
        try:
            figures = claim.settle(printed)
        except SourceError as error:
            faults += error.faults
            continue
        names = sorted(printed, key=lambda name: (name != claim.chapter, name))
        rows.append(
            Row(
                claim,
                figures,
                settings_words(root / TABLES / claim.settings, claim.region)
                if claim.settings
                else "",
                tuple(name for name in names if claim.id in printed[name]),
                parts.get(claim.chapter, "elsewhere"),
                passages.get(claim.id, ""),
            )
        )
    if faults:
        raise SourceError(faults)
    return rows


def claims_markdown(rows: Sequence[Row]) -> str:
    """Return the page of claims: counts, then one entry for each row of the table."""
    # What a reader of the documents would not expect comes first.
    order = {"fails": 0, "holds": 2}
    ordered = sorted(rows, key=lambda row: order.get(row.claim.verdict, 1))
    entries = [line for row in ordered for line in _entry(row)]
    return "\n".join([*_counts(rows), "", ":::::{container} claims", *entries, ":::::", ""])


def chapter_claims_markdown(rows: Iterable[Row], name: str) -> str:
    """Return a section with the claims that chapter `name` settles, "" if there are none."""
    lines = [
        f"* [{row.claim.id}](#{row.anchor}): {_one_line(row.claim.statement)} "
        f"{{bdg-secondary}}`{row.claim.verdict}` {_one_line(row.claim.condition)}"
        for row in rows
        if name in row.chapters
    ]
    return "\n".join(["## Claims settled here", "", *lines, ""]) if lines else ""


def verdicts_markdown(claims: Sequence[Claim]) -> str:
    """Return some claims below their verdicts."""
    lines = []
    for verdict in VERDICTS:
        rows = [claim for claim in claims if claim.verdict == verdict]
        if not rows:
            continue
        words = "Holds, if a condition is met" if verdict == "holds if" else verdict.capitalize()
        lines += [f"**{words}** ({len(rows)} of {len(claims)})", ""]
        for claim in rows:
            word = "Instead" if claim.verdict == "fails" else "Condition"
            text = claim.condition.rstrip(".")
            condition = f" *{word}:* {text}." if text else ""
            where = f"([](/notebooks/{claim.chapter}.ipynb))"
            lines.append(f"- **{claim.id}** {claim.statement}{condition} {where}")
        lines.append("")
    return "\n".join(lines)


def sources_markdown(claims: Iterable[Claim]) -> str:
    """Return the source of every test that holds a claim, each with the claims it holds."""
    held: dict[str, list[str]] = {}
    for claim in claims:
        held.setdefault(claim.test, []).append(f"[{claim.id}](#claim-{claim.id.lower()})")
    lines = []
    for test, links in sorted(held.items()):
        file, _, name = test.partition("::")
        lines += [f"({anchor_of_test(test)})=", f"## {_words(name).capitalize()}", ""]
        lines += [f"Holds {', '.join(links)}; `{file}`.", ""]
        lines += [
            f"```{{literalinclude}} /{file}",
            f":pyobject: {name}",
            ":language: python",
            "```",
            "",
        ]
    return "\n".join(lines)


def _counts(rows: Sequence[Row]) -> list[str]:
    """Return a table of how many rows each part and each verdict has."""
    counts = Counter((row.part, row.claim.verdict) for row in rows)
    counts += Counter(("**all**", row.claim.verdict) for row in rows)
    parts = [*dict.fromkeys(row.part for row in rows), "**all**"]
    shown = [verdict for verdict in VERDICTS if counts["**all**", verdict]]
    lines = [f"| | {' | '.join(shown)} | all |", f"| --- |{' ---: |' * (len(shown) + 1)}"]
    for part in parts:
        cells = [counts[part, verdict] for verdict in shown]
        lines.append(f"| {part} | {' | '.join(map(str, cells))} | {sum(cells)} |")
    return [":::{table}", ":class: claims-counts", "", *lines, ":::"]


def _entry(row: Row) -> list[str]:
    """Return one row of the page."""
    claim = row.claim
    words = claim.verdict.replace(" ", "-")
    part = row.part.removeprefix("Part ").lower().replace(" ", "-")
    source = f"{{cite:t}}`{DOCUMENTS[claim.id[0]]}`, " if claim.id[0] in DOCUMENTS else ""
    facts = {
        "Condition" if claim.verdict == "holds if" else "Why": claim.condition,
        "Figures": row.figures,
        "Criterion": f"`{_one_line(claim.criterion)}`" if claim.criterion else "",
        "Criterion before": claim.before,
        "Settings": row.settings or claim.no_settings,
        "Chapter" if len(row.chapters) == 1 else "Chapters": ", ".join(
            f"[](/notebooks/{chapter}.ipynb)" for chapter in row.chapters
        ),
        "Test": f"[{_words(claim.test.partition('::')[2])}](#{anchor_of_test(claim.test)})",
        "Stated in": source + row.passage if source else "",
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
