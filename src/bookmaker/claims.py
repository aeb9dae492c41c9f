"""The statements of the three documents, and which cell and which test settles each.

`book/claims.yml` holds one row for every statement. Rows are settled by cells that carry the
tag `claim-<id>`. A row names figures among what those cells printed and states a criterion in
them; the verdict follows, and a row whose figures say otherwise fails the build.

A row whose verdict depends on choices (a rate, a start, a threshold, a window, a null) names a
table of settings, stored below `src/compendium`. Every line of it is one combination: a column
for each choice, then `value` with its interval `low`, `high` (95 %), arranged so that a value
above zero speaks for the statement, and `runs`, the trainings, starts or systems behind it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
from nbformat import NotebookNode

from bookmaker.base import Fault, SourceError, contents, read_yaml
from bookmaker.figures import is_estimate, written
from bookmaker.parameters import condition_names, is_met
from bookmaker.source import has_tag, read_notebook
from bookmaker.tables import OUTCOME, read_columns
from bookmaker.values import (
    filled,
    handed_over,
    reported,
    resolve,
    roles,
    typed_numbers,
    without_roles,
)

# The sign that every value of a table of settings has under a verdict (in its region), 0: any.
VERDICTS = {"holds": 1, "holds if": 1, "fails": -1, "open": 0}
FILE, PASSAGES, TABLES = "book/claims.yml", "book/passages.yml", "src/compendium"
# Ids begin with the letter of the document that makes the statement.
DOCUMENTS = {"A": "bal2020energy", "B": "bal2021transformers", "C": "poclopez2024dynamical"}
TAG, RESULTS = "claim-", "results"
# Fewer combinations than this say little about the choices that were not made.
FEWEST = 12

_RESULT = re.compile(
    r"(?m)^ *([A-Za-z]\w*) *= *([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)(?![\w.])"
)


@dataclass(frozen=True)
class Settled:
    """What an executed chapter has for the claims: what their cells printed, and what it reads.

    `texts` are by the id of the claim, `figures` and parameters by name.
    """

    texts: Mapping[str, str]
    figures: Mapping[str, Any] = field(default_factory=dict)


# By the name of the chapter.
Printed = Mapping[str, Settled]


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    CONTRIBUTING.md says what each entry is. `figures` by name are each `{figure: key}`, what a cell
    hands over under this key (of the row's chapter, or `42:key`), or a regular expression for what
    a cell of the claim prints; those that are `stored`, all or by name, come from a stored table,
    which no parameter of a run changes.
    `criterion` is a condition on them (see `parameters`), `region` one on the columns of
    `settings`; `shown` is what the page prints, with `{name}` for a figure. It and `condition` may
    read other figures of the chapter as its text does, {value}`edges[0].beta`. `line` is where the
    row begins in its file.
    """

    id: str
    statement: str
    verdict: str
    chapter: str
    test: str
    condition: str = ""
    figures: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    stored: Sequence[str] = ()
    criterion: str = ""
    shown: str = ""
    settings: str = ""
    region: str = ""
    no_settings: str = ""
    before: str = ""
    line: int = 1

    def fault(self, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault(FILE, self.line, f"{self.id}: {message}")

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the row by itself."""
        if self.verdict not in VERDICTS:
            yield f"verdict must be one of {' | '.join(VERDICTS)}, got {self.verdict!r}"
        if bool(self.settings) == bool(self.no_settings):
            yield "needs a table of settings, or no_settings: why no choice turns it"
        if not VERDICTS.get(self.verdict):
            if self.criterion or self.figures or self.shown:
                yield f"a row that is {self.verdict!r} has no figures and no criterion"
            return
        if not self.shown or not (self.condition or self.verdict == "holds"):
            yield "shown or the condition is missing"
        try:
            compared = set(condition_names(self.criterion))
            fields_shown = Formatter().parse(without_roles(self.shown))
            quoted = {name for _, name, _, _ in fields_shown if name is not None}
        except ValueError as error:
            yield str(error)
            return
        if unknown := (compared | quoted) - set(self.figures):
            yield f"{', '.join(sorted(unknown))} is not among the figures"
        if idle := set(self.figures) - compared:
            yield f"the criterion does not depend on the figure {', '.join(sorted(idle))}"

    def settled_by(self, printed: Printed) -> list[str]:
        """Return the chapters whose cells settle the row, its own first."""
        order = sorted(printed, key=self.chapter.__ne__)
        return [name for name in order if self.id in printed[name].texts]

    def keys(self) -> Iterator[tuple[str, str]]:
        """Yield chapter, by its number, and name of the figures that the row reads by key."""
        for source in self.figures.values():
            if not isinstance(source, str):
                number, key = chapter_and_key(source["figure"])
                yield number or self.chapter.partition("_")[0], re.split(r"[.\[]", key)[0]
        for role in roles(f"{self.shown}\n{self.condition}"):
            yield role.reads[0] or self.chapter.partition("_")[0], role.reads[1]

    def typed(self) -> Iterator[str]:
        """Yield the numbers that stand in the row's words without a name."""
        for text in (self.statement, self.condition, self.shown, self.no_settings):
            # `{slope:.2f}` is a name, too.
            bare = re.sub(r"\{\w+(?::[^}]*)?\}", " ", without_roles(text))
            yield from (number for _, number in typed_numbers(bare))

    def words(self, text: str, printed: Printed) -> str:
        """Return a text of the row with the numbers of the figures that it reads, as prose does.

        Raises SourceError that names the row if one is not there.
        """
        figures = {name.partition("_")[0]: chapter.figures for name, chapter in printed.items()}
        own = figures.get(self.chapter.partition("_")[0], {})
        try:
            return filled(text, file=FILE, own=own, others=lambda number: figures.get(number, {}))
        except SourceError as error:
            raise SourceError([self.fault(fault.message) for fault in error.faults]) from None

    def read(self, printed: Printed) -> dict[str, str]:
        """Return the figures as cells gave them; those that are missing are left out."""
        text = "".join(printed[name].texts[self.id] for name in self.settled_by(printed))
        found = {}
        for name, source in self.figures.items():
            if isinstance(source, str):
                match = re.search(source, text)
                given = match[1] if match else None
            else:
                given = self._figure(source["figure"], printed)
            if given is not None:
                found[name] = given
        return found

    def _figure(self, key: str, printed: Printed) -> str | None:
        """Return a number that cells handed over, as text; of an estimate its value."""
        number, path = chapter_and_key(key)
        chapter = next((n for n in printed if n.startswith(f"{number}_")), "")
        settled = printed.get(chapter if number else self.chapter)
        try:
            value: Any = resolve(settled.figures, path) if settled else None
        except ValueError:
            return None
        value = value["value"] if is_estimate(value) else value
        return None if value is None or isinstance(value, list | dict) else str(value)

    def met(self, figures: Mapping[str, str]) -> bool:
        """Return whether figures meet the criterion; ValueError if they cannot decide it."""
        return is_met(self.criterion, {name: float(text) for name, text in figures.items()})

    def settle(self, printed: Printed) -> str:
        """Return the figures in words, "" if there are none.

        Raises SourceError that names the row, its numbers and its criterion if a figure is missing
        or if the verdict does not follow from the figures.
        """
        if not VERDICTS[self.verdict]:
            return ""
        figures = self.read(printed)
        numbers = ", ".join(f"{name} = {text}" for name, text in figures.items())
        try:
            if (met := self.met(figures)) == (VERDICTS[self.verdict] > 0):
                shown = {name: _Shown(text) for name, text in figures.items()}
                return self.words(self.shown, printed).format_map(shown)
            state = "is met" if met else "is not met"
            problem = f"verdict {self.verdict!r}, but `{self.criterion}` {state} by {numbers}"
        except ValueError as error:
            problem = f"{error}; cells tagged {TAG}{self.id} printed {numbers or 'no figure'}"
        raise SourceError([self.fault(problem)])


class _Shown(str):
    """A figure as text that takes the format of a number, `{slope:.2f}`, as prose does."""

    def __format__(self, form: str) -> str:
        return written(str(self), form) if form else str(self)


def chapter_and_key(text: str) -> tuple[str, str]:
    """Return the number of the chapter, "" for the row's own, and the key in it.

    >>> chapter_and_key("42:edges[2].beta")
    ('42', 'edges[2].beta')
    """
    found = re.match(r"(\d\d[a-z]?):", text)
    return (found[1], text[found.end() :]) if found else ("", text)


def _form_problems(row: object) -> Iterator[str]:
    """Yield what keeps an entry of the file from being a row at all."""
    if not isinstance(row, dict):
        yield f"must be a mapping of entries, got {row!r:.60}"
        return
    entries = {entry.name: entry.default is MISSING for entry in fields(Claim)}
    del entries["line"]
    required = [name for name, needed in entries.items() if needed and name != "figures"]
    if missing := [name for name in required if name not in row]:
        yield f"needs the entry {', '.join(missing)}"
    if unknown := [str(name) for name in row if name not in entries]:
        yield f"has no entry {', '.join(unknown)}; there are: {', '.join(entries)}"
    for name in [name for name in row if name in entries]:
        value = row[name]
        if name == "figures":
            yield from _figure_problems(value)
        elif name == "stored" and isinstance(value, list):
            if not all(isinstance(figure, str) for figure in value):
                yield f"stored must list names of figures, got {value!r:.60}"
        elif not isinstance(value, str):
            yield f"{name} must be text, got {value!r:.60}"


def _figure_problems(figures: object) -> Iterator[str]:
    if isinstance(figures, list) and all(isinstance(name, str) for name in figures):
        return
    if not isinstance(figures, dict):
        yield f"figures must be names, or names with regular expressions, got {figures!r:.60}"
        return
    for name, pattern in figures.items():
        if isinstance(pattern, dict):
            if list(pattern) != ["figure"] or not isinstance(pattern["figure"], str):
                yield f"the figure {name} must be {{figure: name}}, got {pattern!r:.60}"
            continue
        try:
            groups = re.compile(pattern).groups
        except (re.error, TypeError) as error:
            yield f"the figure {name} has no regular expression: {error}"
        else:
            if groups != 1:
                yield f"the figure {name} needs a regular expression with one group, not {groups}"


def read_claims(root: Path) -> list[Claim]:
    """Return the rows of `book/claims.yml`; SourceError that names every row with a fault."""
    claims: dict[str, Claim] = {}
    faults: list[Fault] = []
    rows, lines = read_yaml(root, FILE, list)
    for row, line in zip(rows, lines, strict=True):
        if problems := list(_form_problems(row)):
            name = row.get("id") if isinstance(row, dict) else "a row"
            faults += [Fault(FILE, line, f"{name}: {problem}") for problem in problems]
            continue
        figures = row.get("figures", {})
        if isinstance(figures, list):
            figures = {name: {"figure": name} for name in figures}
        claim = Claim(**row | {"figures": figures, "line": line})
        faults += map(claim.fault, claim.problems())
        if claim.id in claims:
            faults.append(claim.fault("there are two rows"))
        claims[claim.id] = claim
    if faults:
        raise SourceError(faults)
    return list(claims.values())


def printed_text(cell: NotebookNode) -> str:
    """Return what a cell printed."""
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def claim_tags(notebook: NotebookNode) -> Settled:
    """Return what cells tagged with claims printed, and what the text can read by name."""
    printed: dict[str, str] = defaultdict(str)
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            if tag.startswith(TAG):
                printed[tag.removeprefix(TAG)] += printed_text(cell)
    return Settled(printed, reported(notebook))


def printed_by_chapter(root: Path) -> dict[str, Settled]:
    """Return `claim_tags` of every executed chapter, by its name."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return {path.stem: claim_tags(read_notebook(path)) for path in paths}


def read_rows(root: Path) -> list[dict[str, Any]]:
    """Return the rows as pages show them: their figures in words (`told`), chapters, part, passage.

    `chapters` are those whose cells settle the row, its own first. Raises SourceError for a row
    whose verdict does not follow from its figures.
    """
    printed = printed_by_chapter(root)
    passages, _ = read_yaml(root, PASSAGES, dict)
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
            "condition": claim.words(claim.condition, printed),
            "document": claim.id[0],
            "chapters": claim.settled_by(printed),
            "part": parts.get(claim.chapter, "elsewhere"),
            "passage": passages.get(claim.id, ""),
        }
        for claim in read_claims(root)
    ]


def results(notebook: NotebookNode, claims: Iterable[Claim] = ()) -> dict[str, str]:
    """Return the numbers that a run of a chapter has as its results, as they were printed.

    A cell tagged `results` hands them over, or prints them, one in a line, as `name = 1.23`; words
    may follow. The figures of the claims that the chapter settles are among them, as `A4.slope`,
    and `A4.met`, which is 1 where they meet the criterion of the row and 0 where not. What is read
    from a stored table is no result of a run.
    """
    tagged = [cell for cell in notebook.cells if has_tag(cell, RESULTS)]
    found = dict(_RESULT.findall("\n".join(map(printed_text, tagged))))
    for name, figure in handed_over(NotebookNode(cells=tagged))[0].items():
        value = figure["value"] if is_estimate(figure) else figure
        if isinstance(value, int | float):
            found[name] = str(value)
    printed = claim_tags(notebook)
    for claim in claims:
        read = {} if claim.stored == "all" else claim.read({claim.chapter: printed})
        kept = {name: text for name, text in read.items() if name not in claim.stored}
        found |= {f"{claim.id}.{name}": text for name, text in kept.items()}
        if kept and len(kept) == len(claim.figures):
            found[f"{claim.id}.met"] = str(int(claim.met(kept)))
    return found


def settings_faults(path: Path, verdict: str, region: str = "") -> Iterator[str]:
    """What is wrong with a table of settings, and with a verdict that it does not bear out.

    *Holds* and *fails* need the whole interval on one side of zero in every line; *holds if* in
    every line of `region`, a condition on the columns ("" for all lines). What is *open* needs
    nothing.
    """
    table, named = read_columns(path), f"the table of settings {path.name}"
    value, low, high = (table[name] for name in OUTCOME[:3])
    if len(value) < FEWEST:
        yield f"{named} has {len(value)} lines, at least {FEWEST} needed"
    if not np.all((low <= value) & (value <= high)):
        yield f"{named} has a value outside its interval"
    if sign := VERDICTS[verdict]:
        inside = settings_region(table, region)
        turned = inside & (sign * value <= 0)
        unsure = inside & ~turned & (np.minimum(sign * low, sign * high) <= 0)
        lines = f"{inside.sum()} settings" + (f" with {region}" if region else "")
        if not inside.any():
            yield f"no line of {named} has {region}"
        if turned.any():
            yield f"verdict {verdict!r}, but {turned.sum()} of {lines} say otherwise"
        if unsure.any():
            yield f"verdict {verdict!r}, but intervals of {unsure.sum()} of {lines} include zero"


def settings_region(table: Mapping[str, np.ndarray], region: str) -> np.ndarray:
    """Which lines of a table of settings lie in a region; all if it is ""."""
    columns = [column.tolist() for column in table.values()]
    lines = [dict(zip(table, line, strict=True)) for line in zip(*columns, strict=True)]
    return np.array([is_met(region or "True", line) for line in lines])


def settings_words(path: Path, region: str = "") -> str:
    """The choices that were tried and what they gave, in one sentence for the claims page."""
    table = read_columns(path)
    value, runs = table["value"], table["runs"]
    choices = []
    for name in [name for name in table if name not in OUTCOME]:
        tried = np.unique(table[name])
        numbers = tried.dtype.kind in "if"
        words = [f"{x:g}" if numbers else str(x) for x in tried]
        told = f"{words[0]} to {words[-1]}" if len(words) > 6 and numbers else ", ".join(words)
        choices.append(f"{name.replace('_', ' ')} {told}")
    each = f"{runs.min()}" if runs.min() == runs.max() else f"{runs.min()} to {runs.max()}"
    where = f"; all {settings_region(table, region).sum()} with `{region}` do" if region else ""
    return (
        f"{np.count_nonzero(value > 0)} of {len(value)} settings speak for the statement "
        f"({'; '.join(choices)}; {each} runs each): {value.min():.2g} to {value.max():.2g}, "
        f"{np.count_nonzero(table['low'] > 0)} with the whole interval above zero, "
        f"{np.count_nonzero(table['high'] < 0)} below{where}"
    )
