"""The statements of the three documents, and which cell and which test settles each.

`book/claims.yml` holds one row for every statement. Rows are settled by cells that carry the
tag `claim-<id>`; the figures quoted in the table are read from what those cells printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

import nbformat
import yaml

from spinformer.chapters.errors import ChapterError, Fault, SourceError
from spinformer.chapters.freshness import read_notebook

VERDICTS = ("holds", "holds if", "fails", "open", "not computed yet")
FILE = "book/claims.yml"
TAG = "claim-"


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    `figure` is a regular expression whose group finds the quoted number in the printed output
    of the cells that settle the claim; `tolerance` says how exact that number is. `line` is
    where the row begins.
    """

    id: str
    statement: str
    verdict: str
    condition: str = ""
    chapter: str = ""
    test: str = ""
    figure: str = ""
    tolerance: str = ""
    line: int = field(default=1, compare=False)

    def fault(self, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault(FILE, self.line, f"{self.id}: {message}")


def read_claims(root: Path) -> list[Claim]:
    """Return the rows of `book/claims.yml`; SourceError that names every row with a fault."""
    claims, faults = parse_claims((root / FILE).read_text(encoding="utf-8"))
    names = {path.stem for path in (root / "notebooks").glob("*.md")}
    faults += [
        claim.fault(f"there is no chapter {claim.chapter}")
        for claim in claims
        if claim.chapter and claim.chapter not in names
    ]
    if faults:
        raise SourceError(sorted(faults))
    return claims


def parse_claims(text: str) -> tuple[list[Claim], list[Fault]]:
    """Return the rows that can be read, and what is wrong with the others."""
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return [], [Fault(FILE, line, f"not YAML: {error.problem}")]
    if not isinstance(document, yaml.SequenceNode):
        return [], [Fault(FILE, 1, "expected a list of rows, each `- id: …`")]
    claims: dict[str, Claim] = {}
    faults: list[Fault] = []
    for node in document.value:
        line = node.start_mark.line + 1
        row = yaml.safe_load(yaml.serialize(node))
        problem = _row_problem(row)
        if problem:
            faults.append(Fault(FILE, line, problem))
            continue
        claim = Claim(**{key: str(value) for key, value in row.items()}, line=line)
        if claim.id in claims:
            faults.append(claim.fault(f"there is a row in line {claims[claim.id].line} already"))
        claims.setdefault(claim.id, claim)
    return list(claims.values()), faults


def _row_problem(row: object) -> str:
    """Return what is wrong with a row by itself, "" if nothing is."""
    if not isinstance(row, dict):
        return "expected a row of keys and values"
    keys = [f.name for f in fields(Claim) if f.name != "line"]
    name = f"{row['id']}: " if "id" in row else ""
    for key in row:
        if key not in keys:
            return f"{name}unknown key {key!r}; there are: {', '.join(keys)}"
    for key in ("id", "statement", "verdict"):
        if not row.get(key):
            return f"{name}{key} is missing"
    if row["verdict"] not in VERDICTS:
        return f"{name}verdict must be one of {' | '.join(VERDICTS)}, got {row['verdict']!r}"
    try:
        re.compile(str(row.get("figure", "")))
    except re.error as error:
        return f"{name}figure is no regular expression: {error}"
    return ""


def claim_tags(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return for each claim id that cells of `notebook` are tagged with what they printed."""
    printed: dict[str, str] = {}
    for cell in notebook.cells:
        text = "".join(o.get("text", "") for o in cell.get("outputs", []))
        for tag in cell.metadata.get("tags", []):
            if tag.startswith(TAG):
                name = tag.removeprefix(TAG)
                printed[name] = printed.get(name, "") + text
    return printed


def quoted_figure(claim: Claim, printed: str) -> str:
    """Return the number that the cells of a claim printed, with the words before it.

    Raises SourceError that names the row if the pattern of the claim is not in the output.
    """
    match = re.search(claim.figure, printed)
    if match is None:
        message = f"no match of {claim.figure!r} in what the cells tagged {TAG}{claim.id} printed"
        raise SourceError([claim.fault(message)])
    return " ".join(match[0].split())


def printed_by_chapter(root: Path) -> dict[str, dict[str, str]]:
    """Return `claim_tags` of every executed chapter, by its name."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return {path.stem: claim_tags(read_notebook(path)) for path in paths}


def claims_markdown(root: Path) -> str:
    """Return the claims as a MyST table, figures taken from the executed notebooks."""
    lines = [
        ":::{list-table}",
        ":class: claims",
        ":header-rows: 1",
        ":widths: 6 32 24 20 18",
        "",
        "* - Id\n  - Statement\n  - Verdict\n  - Figure\n  - Where",
    ]
    printed = printed_by_chapter(root)
    for claim in read_claims(root):
        figure = ""
        if claim.figure:
            if claim.chapter not in printed:
                raise ChapterError(str(claim.fault(f"{claim.chapter} has not been executed")))
            figure = quoted_figure(claim, printed[claim.chapter].get(claim.id, ""))
            figure = f"{figure} (to {claim.tolerance})" if claim.tolerance else figure
        # The chapter whose figure is quoted first, then others that have something to say.
        places = sorted(
            (name != claim.chapter, name) for name in printed if claim.id in printed[name]
        )
        where = [f"[](/notebooks/{name}.ipynb)" for _, name in places]
        where += [f"`{claim.test.split('::')[-1]}`"] if claim.test else []
        verdict = f"**{claim.verdict}**" + (f" {claim.condition}" if claim.condition else "")
        cells = [claim.id, claim.statement, verdict, figure, "; ".join(where)]
        lines.append("* - " + "\n  - ".join(cells))
    return "\n".join([*lines, ":::", ""])
