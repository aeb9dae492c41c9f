"""The statements of the three documents, and which cell and which test settles each.

`book/claims.yml` holds one row for every statement. Rows are settled by cells that carry the
tag `claim-<id>`. A row names figures among what those cells printed and states a criterion in
them; the verdict follows, and a row whose figures say otherwise fails the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from string import Formatter

import nbformat
import yaml
from yaml.constructor import SafeConstructor

from bookmaker.conditions import condition_names, is_met
from bookmaker.errors import ConditionError, Fault, SourceError
from bookmaker.freshness import read_notebook

VERDICTS = ("holds", "holds if", "fails", "open", "not computed yet")
DECIDED = {"holds": True, "holds if": True, "fails": False}
FILE = "book/claims.yml"
TAG = "claim-"
# Figures that a cell hands over as data, beside what it prints: names with values.
DATA = "application/vnd.spinformer.figures+json"

# Ten times as fast, where it is.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Printed = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    `figures` gives each number of the row a name, error bars too. The cells tagged with the row's
    id, those of its `chapter` first, hand it over as data (`DATA`), and the row lists its name; or
    they print it, and the row finds it with a regular expression of one group. `criterion` is an
    expression in these names that is true where the statement holds (see `conditions`); `shown` is
    what the page prints, with `{name}` for a figure. `settings` is the table of settings, below
    `src/compendium`, of a row whose verdict depends on choices (see `settings`), and `region` the
    condition on its columns under which it `holds if`; a row without a table says in
    `no_settings` why no choice could turn it; `before` says of a criterion that was changed after
    the first run what it was and what it gave. `line` is where the row begins.
    """

    id: str
    statement: str
    verdict: str
    condition: str = ""
    chapter: str = ""
    test: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    criterion: str = ""
    shown: str = ""
    settings: str = ""
    region: str = ""
    no_settings: str = ""
    before: str = ""
    line: int = field(default=1, compare=False)

    def fault(self, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault(FILE, self.line, f"{self.id}: {message}")

    @property
    def settled(self) -> bool:
        """Whether the verdict follows from figures."""
        return self.verdict in DECIDED

    def faults(self) -> list[Fault]:
        """Return what is wrong with the row by itself."""
        return [self.fault(message) for message in self._problems()]

    def _problems(self) -> Iterator[str]:
        for name, pattern in self.figures.items():
            try:
                if (groups := re.compile(pattern).groups) != 1:
                    yield f"figure {name} needs one group, got {groups}"
            except re.error as error:
                yield f"figure {name} is no regular expression: {error}"
        if self.verdict != "not computed yet" and bool(self.settings) == bool(self.no_settings):
            yield "needs a table of settings, or no_settings: why no choice turns it"
        if self.region and (not self.settings or self.verdict != "holds if"):
            yield "a region belongs to a row that holds if, with a table of settings"
        if not self.settled:
            if self.criterion or self.figures or self.shown:
                yield f"a row that is {self.verdict!r} has no figures and no criterion"
            return
        for key in ("chapter", "test", "criterion", "shown"):
            if not getattr(self, key):
                yield f"{key} is missing"
        if self.verdict != "holds" and not self.condition:
            yield "condition is missing: say when or why"
        try:
            compared = set(condition_names(self.criterion)) if self.criterion else set()
            quoted = {name for _, name, _, _ in Formatter().parse(self.shown) if name is not None}
        except ValueError as error:
            yield str(error)
            return
        for name in sorted((compared | quoted) - set(self.figures)):
            yield f"{name} is not among the figures"
        for name in sorted(set(self.figures) - compared):
            yield f"the criterion does not depend on the figure {name}"

    def read(self, printed: str) -> dict[str, str]:
        """Return the figures as the cells printed them; SourceError that names those missing."""
        found = {name: re.search(pattern, printed) for name, pattern in self.figures.items()}
        if missing := [name for name, match in found.items() if match is None]:
            place = f"cells tagged {TAG}{self.id} printed no"
            raise SourceError(
                [self.fault(f"{name}: {place} {self.figures[name]!r}") for name in missing]
            )
        return {name: match[1] for name, match in found.items() if match}


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
        document = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return [], [Fault(FILE, line, f"not YAML: {error.problem}")]
    if not isinstance(document, yaml.SequenceNode):
        return [], [Fault(FILE, 1, "expected a list of rows, each `- id: …`")]
    claims: dict[str, Claim] = {}
    faults: list[Fault] = []
    for node in document.value:
        line = node.start_mark.line + 1
        row = SafeConstructor().construct_document(node)
        if problem := _row_problem(row):
            faults.append(Fault(FILE, line, problem))
            continue
        found = row.pop("figures", {})
        if isinstance(found, list):
            found = {name: rf"(?m)^{re.escape(str(name))} := (\S+)$" for name in found}
        figures = {str(name): str(pattern) for name, pattern in found.items()}
        texts = {key: str(value) for key, value in row.items()}
        claim = Claim(**texts, figures=figures, line=line)
        faults += claim.faults()
        if claim.id in claims:
            faults.append(claim.fault(f"there is a row in line {claims[claim.id].line} already"))
        claims.setdefault(claim.id, claim)
    return list(claims.values()), faults


def _row_problem(row: object) -> str:
    """Return why a row cannot be read, "" if it can."""
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
    if not isinstance(row.get("figures", {}), dict | list):
        return f"{name}figures must be names, or names with regular expressions"
    return ""


def printed_text(cell: nbformat.NotebookNode) -> str:
    """Return what a cell printed, then a line `name := value` for each figure handed over."""
    outputs = cell.get("outputs", [])
    data = [figure for o in outputs for figure in o.get("data", {}).get(DATA, {}).items()]
    lines = "".join(f"\n{name} := {value}\n" for name, value in data)
    return "".join(output.get("text", "") for output in outputs) + lines


def claim_tags(notebook: nbformat.NotebookNode) -> dict[str, str]:
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


def printed_for(claim: Claim, printed: Printed) -> str:
    """Return what all cells of a claim printed, those of its chapter first.

    Raises SourceError that names the row if its chapter has not been executed.
    """
    if claim.chapter not in printed:
        raise SourceError([claim.fault(f"{claim.chapter} has not been executed")])
    order = sorted(printed, key=lambda name: (name != claim.chapter, name))
    return "".join(printed[name].get(claim.id, "") for name in order)


def settle(claim: Claim, printed: Printed) -> str:
    """Return the figures of a row in words, "" if it has none.

    Raises SourceError that names the row, its numbers and its criterion if a figure is missing or
    if the verdict does not follow from the figures.
    """
    if not claim.settled:
        return ""
    figures = claim.read(printed_for(claim, printed))
    numbers = ", ".join(f"{name} = {text}" for name, text in figures.items())
    try:
        met = is_met(claim.criterion, {name: float(text) for name, text in figures.items()})
        if met == DECIDED[claim.verdict]:
            return claim.shown.format_map(figures)
        state = "is met" if met else "is not met"
        problem = f"verdict {claim.verdict!r}, but `{claim.criterion}` {state} by {numbers}"
    except ConditionError as error:
        problem = str(error)
    except ValueError:
        problem = f"not all figures are numbers: {numbers}"
    raise SourceError([claim.fault(problem)])
