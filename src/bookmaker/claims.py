"""The statements of the three documents, and which cell and which test settles each.

`book/claims.yml` holds one row for every statement. Rows are settled by cells that carry the
tag `claim-<id>`. A row names figures among what those cells printed and states a criterion in
them; the verdict follows, and a row whose figures say otherwise fails the build.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any

import yaml
from nbformat import NotebookNode

from bookmaker.conditions import condition_names, is_met
from bookmaker.errors import Fault, SourceError
from bookmaker.freshness import read_notebook
from bookmaker.meaning import has_tag
from bookmaker.project import contents

VERDICTS = ("holds", "holds if", "fails", "open")
DECIDED = {"holds": True, "holds if": True, "fails": False}
FILE, PASSAGES = "book/claims.yml", "book/passages.yml"
# Ids begin with the letter of the document that makes the statement.
DOCUMENTS = {"A": "bal2020energy", "B": "bal2021transformers", "C": "poclopez2024dynamical"}
TAG, RESULTS = "claim-", "results"
# Figures that a cell hands over as data, beside what it prints: names with values.
DATA = "application/vnd.spinformer.figures+json"

# Ten times as fast, where it is.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESULT = re.compile(
    r"(?m)^ *([A-Za-z]\w*) *= *([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)(?![\w.])"
)
Printed = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    `figures` gives each number of the row a name, error bars too. The cells tagged with the row's
    id, those of its `chapter` first, hand it over as data (`DATA`), and the row lists its name; or
    they print it, and the row finds it with a regular expression of one group. Those that are
    `stored` are read from a stored table, which no parameter of a run changes: "all", or their
    names. `criterion` is an expression in these names that is true where the statement holds (see
    `conditions`); `shown` is what the page prints, with `{name}` for a figure. `settings` is the
    table of settings, below `src/compendium`, of a row whose verdict depends on choices (see
    `settings`), and `region` the condition on its columns under which it `holds if`; a row without
    a table says in `no_settings` why no choice could turn it; `before` says of a criterion that was
    changed after the first run what it was and what it gave.
    """

    id: str
    statement: str
    verdict: str
    chapter: str
    test: str
    condition: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    stored: Sequence[str] = ()
    criterion: str = ""
    shown: str = ""
    settings: str = ""
    region: str = ""
    no_settings: str = ""
    before: str = ""

    def fault(self, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault(FILE, 1, f"{self.id}: {message}")

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the row by itself."""
        if self.verdict not in VERDICTS:
            yield f"verdict must be one of {' | '.join(VERDICTS)}, got {self.verdict!r}"
        if bool(self.settings) == bool(self.no_settings):
            yield "needs a table of settings, or no_settings: why no choice turns it"
        if self.verdict not in DECIDED:
            if self.criterion or self.figures or self.shown:
                yield f"a row that is {self.verdict!r} has no figures and no criterion"
            return
        if not self.shown or not (self.condition or self.verdict == "holds"):
            yield "shown or the condition is missing"
        try:
            compared = set(condition_names(self.criterion))
            quoted = {name for _, name, _, _ in Formatter().parse(self.shown) if name is not None}
        except ValueError as error:
            yield str(error)
            return
        if unknown := (compared | quoted) - set(self.figures):
            yield f"{', '.join(sorted(unknown))} is not among the figures"
        if idle := set(self.figures) - compared:
            yield f"the criterion does not depend on the figure {', '.join(sorted(idle))}"

    def read(self, printed: Printed) -> dict[str, str]:
        """Return the figures as cells printed them, those of the row's chapter first.

        Those that are missing are left out.
        """
        order = sorted(printed, key=self.chapter.__ne__)
        text = "".join(printed[name].get(self.id, "") for name in order)
        found = {name: re.search(pattern, text) for name, pattern in self.figures.items()}
        return {name: match[1] for name, match in found.items() if match}

    def met(self, figures: Mapping[str, str]) -> bool:
        """Return whether figures meet the criterion; ValueError if they cannot decide it."""
        return is_met(self.criterion, {name: float(text) for name, text in figures.items()})

    def settle(self, printed: Printed) -> str:
        """Return the figures in words, "" if there are none.

        Raises SourceError that names the row, its numbers and its criterion if a figure is missing
        or if the verdict does not follow from the figures.
        """
        if self.verdict not in DECIDED:
            return ""
        figures = self.read(printed)
        numbers = ", ".join(f"{name} = {text}" for name, text in figures.items())
        try:
            if (met := self.met(figures)) == DECIDED[self.verdict]:
                return self.shown.format_map(figures)
            state = "is met" if met else "is not met"
            problem = f"verdict {self.verdict!r}, but `{self.criterion}` {state} by {numbers}"
        except ValueError as error:
            problem = f"{error}; cells tagged {TAG}{self.id} printed {numbers or 'no figure'}"
        raise SourceError([self.fault(problem)])


def read_claims(root: Path) -> list[Claim]:
    """Return the rows of `book/claims.yml`; SourceError that names every row with a fault."""
    claims: dict[str, Claim] = {}
    faults: list[Fault] = []
    for row in yaml.load((root / FILE).read_text(encoding="utf-8"), Loader=_LOADER):
        figures = row.get("figures", {})
        if isinstance(figures, list):
            row["figures"] = {name: rf"(?m)^{re.escape(name)} := (\S+)$" for name in figures}
        try:
            claim = Claim(**row)
        except TypeError as error:
            faults.append(Fault(FILE, 1, f"{row.get('id')}: {error}"))
            continue
        faults += map(claim.fault, claim.problems())
        if claim.id in claims:
            faults.append(claim.fault("there are two rows"))
        claims[claim.id] = claim
    if faults:
        raise SourceError(faults)
    return list(claims.values())


def printed_text(cell: NotebookNode) -> str:
    """Return what a cell printed, then a line `name := value` for each figure handed over."""
    outputs = cell.get("outputs", [])
    data = [figure for o in outputs for figure in o.get("data", {}).get(DATA, {}).items()]
    lines = "".join(f"\n{name} := {value}\n" for name, value in data)
    return "".join(output.get("text", "") for output in outputs) + lines


def claim_tags(notebook: NotebookNode) -> dict[str, str]:
    """Return for each claim id that cells of `notebook` are tagged with what they printed."""
    printed: dict[str, str] = {}
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            if tag.startswith(TAG):
                name = tag.removeprefix(TAG)
                printed[name] = printed.get(name, "") + printed_text(cell)
    return printed


def printed_by_chapter(root: Path) -> dict[str, dict[str, str]]:
    """Return `claim_tags` of every executed chapter, by its name."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return {path.stem: claim_tags(read_notebook(path)) for path in paths}


def read_rows(root: Path) -> list[dict[str, Any]]:
    """Return the rows as pages show them: their figures in words (`told`), chapters, part, passage.

    `chapters` are those whose cells settle the row, its own first. Raises SourceError for a row
    whose verdict does not follow from its figures.
    """
    printed = printed_by_chapter(root)
    passages = yaml.safe_load((root / PASSAGES).read_text(encoding="utf-8"))
    # Further results stand below the part of the book that they belong to.
    parts = {
        Path(file).name: (re.findall(r"Part [IVX]+", caption) or caption.split(":"))[0]
        for caption, files in contents(root)
        for file in files
    }
    return [
        vars(claim)
        | {
            "told": claim.settle(printed),
            "document": claim.id[0],
            "chapters": sorted(
                (name for name in printed if claim.id in printed[name]), key=claim.chapter.__ne__
            ),
            "part": parts.get(claim.chapter, "elsewhere"),
            "passage": passages.get(claim.id, ""),
        }
        for claim in read_claims(root)
    ]


def results(notebook: NotebookNode, claims: Iterable[Claim] = ()) -> dict[str, str]:
    """Return the numbers that a run of a chapter has as its results, as they were printed.

    A cell tagged `results` prints them, one in a line, as `name = 1.23`; words may follow. The
    figures of the claims that the chapter settles are among them, as `A4.slope`, and `A4.met`,
    which is 1 where they meet the criterion of the row and 0 where not. What is read from a stored
    table is no result of a run.
    """
    texts = (printed_text(cell) for cell in notebook.cells if has_tag(cell, RESULTS))
    found = dict(_RESULT.findall("\n".join(texts)))
    printed = claim_tags(notebook)
    for claim in claims:
        read = {} if claim.stored == "all" else claim.read({claim.chapter: printed})
        kept = {name: text for name, text in read.items() if name not in claim.stored}
        found |= {f"{claim.id}.{name}": text for name, text in kept.items()}
        if kept and len(kept) == len(claim.figures):
            found[f"{claim.id}.met"] = str(int(claim.met(kept)))
    return found
