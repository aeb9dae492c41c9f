"""The numbers that a chapter declares as its results, read from an executed notebook.

A cell tagged `results` prints them, one in a line, as `name = 1.23`; words may follow. The figures
of the claims that the chapter settles are among them, as `A4.slope`: the rows of `book/claims.yml`
say how the cells tagged `claim-A4` print them; `A4.met` is 1 where they meet the criterion of the
row and 0 where not. Whatever a run does not print is no result of it, so there is no `A4.met` for
a row that quotes another chapter, too. Nor is what a cell prints from a stored table, which no
parameter of the run has changed (`stored`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat

from bookmaker.claims import FILE, Claim, parse_claims, printed_text
from bookmaker.claims import TAG as CLAIM_TAG
from bookmaker.conditions import is_met
from bookmaker.errors import ConditionError
from bookmaker.meaning import has_tag
from bookmaker.stored import prints_stored

TAG = "results"
_LINE = re.compile(
    r"^ *(?P<name>[A-Za-z]\w*) *= *"
    r"(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)(?![\w.])",
    re.MULTILINE,
)


def claims_of(root: Path, name: str) -> list[Claim]:
    """Return the rows of the claims that chapter `name` settles."""
    path = root / FILE
    claims, _ = parse_claims(path.read_text(encoding="utf-8")) if path.is_file() else ([], [])
    return [claim for claim in claims if claim.chapter == name]


def printed_results(cell: nbformat.NotebookNode) -> dict[str, str]:
    """Return the lines `name = 1.23` that a cell printed.

    >>> cell = nbformat.v4.new_code_cell()
    >>> cell.outputs = [nbformat.v4.new_output("stream", text="slope = 3.1 +- 0.2\\nno number\\n")]
    >>> printed_results(cell)
    {'slope': '3.1'}
    """
    text = printed_text(cell)
    return {match["name"]: match["value"] for match in _LINE.finditer(text)}


def results(notebook: nbformat.NotebookNode, claims: Sequence[Claim]) -> dict[str, str]:
    """Return the results by name, as they were printed; none from a cell that prints a table."""
    found: dict[str, str] = {}
    cells = list(zip(notebook.cells, prints_stored(notebook.cells), strict=True))
    for cell, from_table in cells:
        if has_tag(cell, TAG) and not from_table:
            found |= printed_results(cell)
    for claim in claims:
        mine = [
            (printed_text(c), stored) for c, stored in cells if has_tag(c, CLAIM_TAG + claim.id)
        ]
        text = "".join(text for text, _ in mine)
        computed = [not stored for text, stored in mine for _ in text]
        matches = {name: re.search(pattern, text) for name, pattern in claim.figures.items()}
        figures = {name: m[1] for name, m in matches.items() if m and computed[m.start(1)]}
        found |= {f"{claim.id}.{name}": text for name, text in figures.items()}
        if len(figures) == len(claim.figures):
            with contextlib.suppress(ConditionError, ValueError):
                numbers = {name: float(text) for name, text in figures.items()}
                found[f"{claim.id}.met"] = str(int(is_met(claim.criterion, numbers)))
    return found
