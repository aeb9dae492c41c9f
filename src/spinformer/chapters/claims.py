"""The statements of the three documents, and which cell and which test settles each.

`book/claims.yml` holds one row for every statement. Rows are settled by cells that carry the
tag `claim-<id>`; the figures quoted in the table are read from what those cells printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

VERDICTS = ("holds", "holds if", "fails", "open", "not computed yet")
_TAG = "claim-"


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    `figure` is a regular expression whose group finds the quoted number in the printed output
    of the cells that settle the claim; `tolerance` says how exact that number is.
    """

    id: str
    statement: str
    verdict: str
    condition: str = ""
    chapter: str = ""
    test: str = ""
    figure: str = ""
    tolerance: str = ""


def read_claims(root: Path) -> list[Claim]:
    """Return the rows of `book/claims.yml`; ValueError for an unknown verdict or a double id."""
    rows = yaml.safe_load((root / "book" / "claims.yml").read_text(encoding="utf-8"))
    claims = [Claim(**row) for row in rows]
    ids = [claim.id for claim in claims]
    for claim in claims:
        if claim.verdict not in VERDICTS:
            raise ValueError(f"{claim.id}: verdict must be one of {VERDICTS}, got {claim.verdict}")
        if ids.count(claim.id) > 1:
            raise ValueError(f"{claim.id} has more than one row")
    return claims


def claim_tags(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return for each claim id that cells of `notebook` are tagged with what they printed."""
    printed: dict[str, str] = {}
    for cell in notebook.cells:
        text = "".join(o.get("text", "") for o in cell.get("outputs", []))
        for tag in cell.metadata.get("tags", []):
            if tag.startswith(_TAG):
                name = tag.removeprefix(_TAG)
                printed[name] = printed.get(name, "") + text
    return printed


def quoted_figure(claim: Claim, printed: str) -> str:
    """Return the number that the cells of a claim printed, with the words before it.

    Raises ValueError if the pattern of the claim is not in the output.
    """
    match = re.search(claim.figure, printed)
    if match is None:
        raise ValueError(f"{claim.id}: no match of {claim.figure!r} in what its cells printed")
    return " ".join(match[0].split())


def printed_by_chapter(root: Path) -> dict[str, dict[str, str]]:
    """Return `claim_tags` of every executed chapter, by its name."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return {path.stem: claim_tags(nbformat.read(path, as_version=4)) for path in paths}


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
