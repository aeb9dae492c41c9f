"""The statements of the three documents, and which cell and which test decides each.

`book/claims/NAME.yml` holds a row for every statement that chapter NAME decides. Rows are decided
by cells that carry the tag `claim-<id>`. A row names figures among what those cells handed over
and states a criterion in them; the verdict follows, and a row whose figures say otherwise fails
the build.

A verdict that somebody has judged depends on choices (a rate, a start, a window, a null), so its
row names a robustness table, stored below `src/compendium` (see `robustness`). `holds` and `fails`
need the sign of its value in all lines. `holds if` has a region and the table of fresh runs that
confirmed it, `held in` a region that was found afterwards and that nothing confirmed yet. An
exact statement is an `identity`: it has no such table and takes part in no count.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from string import Formatter
from typing import Any

from nbformat import NotebookNode

from bookmaker import robustness
from bookmaker.base import BookError, Fault, SourceError, contents, read_yaml
from bookmaker.figures import is_estimate, written
from bookmaker.parameters import condition_names, is_met
from bookmaker.source import has_tag, read_notebook
from bookmaker.tables import CONFIRM, Table, read_columns, recorded_region
from bookmaker.values import (
    filled,
    handed_over,
    reported,
    resolve,
    roles,
    typed_numbers,
    without_roles,
)

# What speaks for a verdict, of the figures and of every value in a robustness table: that the
# criterion is met (1) or not (-1); 0 where nothing has to.
VERDICTS = {"holds": 1, "holds if": 1, "held in": 1, "fails": -1, "open": 0, "identity": 1}
# Verdicts of a part of the settings: with a region.
REGIONAL = ("holds if", "held in")
FOLDER = "book/claims"
TABLES = "src/compendium"
# Ids begin with the letter of the document that makes the statement.
DOCUMENTS = {"A": "bal2020energy", "B": "bal2021transformers", "C": "poclopez2024dynamical"}
# The order of the rows, then that of the numbers in their ids.
_LETTERS = "ABCSR"
# The page that shows them; the directive on it lists those that come first.
PAGE = "book/claims.md"
# What was tried in a trial of a row, setting by setting; its counts stand in `before`.
TRIALS = "book/claims/trials.csv"
_TRIAL = re.compile(r"\{trial\}`([^`]+)`")
TAG = "claim-"
RESULTS = "results"


@dataclass(frozen=True)
class ChapterFigures:
    """What an executed chapter has for the claims: `tags`, their ids, and what it reads by name.

    `figures` are those that cells handed over, and the parameters.
    """

    tags: frozenset[str]
    figures: Mapping[str, Any] = field(default_factory=dict)


# By the name of the chapter.
FiguresByChapter = Mapping[str, ChapterFigures]


@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    CONTRIBUTING.md says what each entry is; `chapter` is the name of the file. `figures` are, by
    name, the keys under which cells hand them over (of the row's chapter, or `42:key`); those that
    are `stored`, all or by name, come from a stored table, which no parameter of a run changes.
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
    passage: str = ""
    condition: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    stored: Sequence[str] = ()
    criterion: str = ""
    shown: str = ""
    settings: str = ""
    region: str = ""
    confirmed: str = ""
    identity: str = ""
    before: Sequence[str] = ()
    line: int = 1

    def fault(self, message: str) -> Fault:
        """Return a fault of this row."""
        return Fault(claims_file(self.chapter), self.line, f"{self.id}: {message}")

    @property
    def order(self) -> tuple[int, int, str]:
        """What rows are sorted by: document, number, letters behind it."""
        number = re.search(r"\d+", self.id)
        return _LETTERS.find(self.id[:1]), int(number[0]) if number else 0, self.id

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the row by itself."""
        if self.verdict not in VERDICTS:
            yield f"verdict must be one of {' | '.join(VERDICTS)}, got {self.verdict!r}"
        if self.id[:1] in DOCUMENTS and not self.passage:
            yield "needs the entry passage: where its document states it"
        yield from self._entry_problems()
        # What is open may have figures, and then a criterion that they meet or do not.
        if self.verdict == "open" and not (self.criterion or self.figures or self.shown):
            return
        if not self.shown or not (self.condition or self.verdict in ("holds", "identity")):
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

    def _entry_problems(self) -> Iterator[str]:
        """Yield the entries that the verdict lacks, or has and cannot have."""
        identity = self.verdict == "identity"
        wanted = {
            "identity": identity,
            "settings": not identity and VERDICTS.get(self.verdict, 0) != 0,
            "region": self.verdict in REGIONAL,
            "confirmed": self.verdict == "holds if",
        }
        refused = {
            "identity": not identity,
            "settings": identity,
            "region": self.verdict not in REGIONAL,
            "confirmed": self.verdict != "holds if",
        }
        for name, needed in wanted.items():
            if needed and not getattr(self, name):
                yield f"a row with the verdict {self.verdict!r} needs the entry {name}"
        for name, unfit in refused.items():
            if unfit and getattr(self, name):
                yield f"a row with the verdict {self.verdict!r} has no entry {name}"
        named = f"{robustness_name(self.id)}.csv"
        if self.confirmed and self.confirmed.rpartition("/")[2] != named:
            yield f"confirmed must be a table called {named}, got {self.confirmed}"

    def settings_faults(self, root: Path) -> Iterator[str]:
        """Yield what is wrong with the row's robustness tables, and what they do not bear out.

        Raises what reading them raises: OSError, ValueError, `csv.Error`, LookupError.
        """
        if not self.settings:
            return
        table = root / TABLES / self.settings
        problems = list(robustness.table_faults(table))
        yield from problems
        if problems:
            return
        sign = VERDICTS[self.verdict]
        yield from robustness.verdict_faults(table, self.verdict, sign=sign, region=self.region)
        if self.confirmed:
            fresh = root / TABLES / self.confirmed
            problems = list(robustness.table_faults(fresh))
            yield from problems or robustness.confirmation_faults(fresh, table, self.region)

    def history(self, trials: Mapping[tuple[str, str], robustness.Tally]) -> list[str]:
        """Return `before` with the counts of the trials that it names; KeyError for an unknown one.

        The label of a trial, {trial}`twenty others`, stands for its counts in words.
        """
        return [_TRIAL.sub(lambda one: str(trials[self.id, one[1]]), text) for text in self.before]

    def trials(self) -> set[tuple[str, str]]:
        """Return id and label of the trials that `before` names."""
        return {(self.id, label) for text in self.before for label in _TRIAL.findall(text)}

    def decided_in(self, by_chapter: FiguresByChapter) -> list[str]:
        """Return the chapters whose cells decide the row, its own first."""
        order = sorted(by_chapter, key=self.chapter.__ne__)
        return [name for name in order if self.id in by_chapter[name].tags]

    def keys(self) -> Iterator[tuple[str, str]]:
        """Yield chapter, by its number, and name of the figures that the row reads by key."""
        for path in self.figures.values():
            number, key = chapter_and_key(path)
            yield number or self.chapter.partition("_")[0], re.split(r"[.\[]", key)[0]
        for role in roles(f"{self.shown}\n{self.condition}"):
            yield role.reads[0] or self.chapter.partition("_")[0], role.reads[1]

    def typed(self) -> Iterator[str]:
        """Yield the numbers that stand in the row's words without a name."""
        for text in (self.statement, self.condition, self.shown, self.identity):
            # `{slope:.2f}` is a name, too.
            bare = re.sub(r"\{\w+(?::[^}]*)?\}", " ", without_roles(text))
            yield from (number for _, number in typed_numbers(bare))

    def words(self, text: str, by_chapter: FiguresByChapter) -> str:
        """Return a text of the row with the numbers of the figures that it reads, as prose does.

        Raises SourceError that names the row if one is not there.
        """
        figures = {name.partition("_")[0]: chapter.figures for name, chapter in by_chapter.items()}
        own = figures.get(self.chapter.partition("_")[0], {})
        try:
            return filled(
                text,
                file=claims_file(self.chapter),
                own=own,
                others=lambda number: figures.get(number, {}),
            )
        except SourceError as error:
            raise SourceError([self.fault(fault.message) for fault in error.faults]) from None

    def read(self, by_chapter: FiguresByChapter) -> dict[str, str]:
        """Return the figures as cells gave them; those that are missing are left out."""
        values = {name: self._figure(key, by_chapter) for name, key in self.figures.items()}
        return {name: text for name, text in values.items() if text is not None}

    def _figure(self, key: str, by_chapter: FiguresByChapter) -> str | None:
        """Return a number that cells handed over, as text; of an estimate its value."""
        number, path = chapter_and_key(key)
        named = next((name for name in by_chapter if name.startswith(f"{number}_")), "")
        chapter = by_chapter.get(named if number else self.chapter)
        try:
            value: Any = resolve(chapter.figures, path) if chapter else None
        except ValueError:
            return None
        value = value["value"] if is_estimate(value) else value
        return None if value is None or isinstance(value, list | dict) else str(value)

    def met(self, figures: Mapping[str, str]) -> bool:
        """Return whether figures meet the criterion; ValueError if they cannot decide it."""
        return is_met(self.criterion, {name: float(text) for name, text in figures.items()})

    def evaluate(self, by_chapter: FiguresByChapter) -> str:
        """Return the figures in words, "" if there are none.

        Raises SourceError that names the row, its numbers and its criterion if a figure is missing
        or if the verdict does not follow from the figures.
        """
        if not self.criterion:
            return ""
        figures = self.read(by_chapter)
        numbers = ", ".join(f"{name} = {text}" for name, text in figures.items())
        try:
            met = self.met(figures)
            if self.verdict == "open" or met == (VERDICTS[self.verdict] > 0):
                shown = {name: _Shown(text) for name, text in figures.items()}
                return self.words(self.shown, by_chapter).format_map(shown)
            state = "is met" if met else "is not met"
            problem = f"verdict {self.verdict!r}, but `{self.criterion}` {state} by {numbers}"
        except ValueError as error:
            problem = f"{error}; cells handed over {numbers or 'no figure'}"
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
    match = re.match(r"(\d\d[a-z]?):", text)
    return (match[1], text[match.end() :]) if match else ("", text)


def _form_problems(row: object) -> Iterator[str]:
    """Yield what keeps an entry of the file from being a row at all."""
    if not isinstance(row, dict):
        yield f"must be a mapping of entries, got {row!r:.60}"
        return
    entries = {entry.name: entry.default is MISSING for entry in fields(Claim)}
    for name in ("chapter", "line"):
        del entries[name]
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
        elif name == "before":
            entries_before = value if isinstance(value, list) else [value]
            if not all(isinstance(entry, str) for entry in entries_before):
                yield f"before must be a text or a list of texts, got {value!r:.60}"
        elif not isinstance(value, str):
            yield f"{name} must be text, got {value!r:.60}"


def _figure_problems(figures: object) -> Iterator[str]:
    if isinstance(figures, list) and all(isinstance(name, str) for name in figures):
        return
    if not isinstance(figures, dict):
        yield f"figures must be names, or names each with a key, got {figures!r:.60}"
        return
    for name, key in figures.items():
        if not isinstance(key, str):
            yield f"the figure {name} must be a key, as in `{name}: slope.error`, got {key!r:.60}"


def read_claims(root: Path) -> list[Claim]:
    """Return the rows of all chapters in order; SourceError that names every row with a fault."""
    claims: dict[str, Claim] = {}
    faults: list[Fault] = []
    for path in sorted((root / FOLDER).glob("*.yml")):
        of_chapter, problems = _chapter_claims(root, path.stem)
        faults += problems
        for claim in of_chapter:
            if first := claims.get(claim.id):
                place = f"{claims_file(first.chapter)}:{first.line}"
                faults.append(claim.fault(f"there are two rows, the other is {place}"))
            claims[claim.id] = claim
    if faults:
        raise SourceError(faults)
    return sorted(claims.values(), key=lambda claim: claim.order)


def claims_file(chapter: str) -> str:
    """Return where the rows of a chapter are, below the checkout."""
    return f"{FOLDER}/{chapter}.yml"


def _chapter_claims(root: Path, chapter: str) -> tuple[list[Claim], list[Fault]]:
    """Return the rows of one chapter, and what is wrong with its file and with each of them."""
    file = claims_file(chapter)
    claims: list[Claim] = []
    faults: list[Fault] = []
    try:
        rows, lines = read_yaml(root, file, list)
    except SourceError as error:
        return [], error.faults
    for row, line in zip(rows, lines, strict=True):
        if problems := list(_form_problems(row)):
            name = row.get("id") if isinstance(row, dict) else "a row"
            faults += [Fault(file, line, f"{name}: {problem}") for problem in problems]
            continue
        figures = row.get("figures", {})
        if isinstance(figures, list):
            figures = {name: name for name in figures}
        before = row.get("before", [])
        entries = {
            "figures": figures,
            "before": [before] if isinstance(before, str) else before,
            "chapter": chapter,
            "line": line,
        }
        claim = Claim(**row | entries)
        faults += map(claim.fault, claim.problems())
        claims.append(claim)
    return claims, faults


def chapter_figures(notebook: NotebookNode) -> ChapterFigures:
    """Return the claims that cells are tagged with, and what the text can read by name."""
    tags = [tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])]
    mine = frozenset(tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG))
    return ChapterFigures(mine, reported(notebook))


def figures_by_chapter(root: Path) -> dict[str, ChapterFigures]:
    """Return `chapter_figures` of every executed chapter, by its name."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    return {path.stem: chapter_figures(read_notebook(path)) for path in paths}


def read_rows(root: Path) -> list[dict[str, Any]]:
    """Return the rows as pages show them: figures in words (`evidence`), how `sure`, where.

    `chapters` are those whose cells decide the row, its own first. Raises SourceError for a row
    whose verdict does not follow from its figures.
    """
    by_chapter = figures_by_chapter(root)
    trials = robustness.read_trials(root / TRIALS)
    # Further results stand below the part of the book that they belong to.
    parts = {
        Path(file).name: (re.findall(r"Part [IVX]+", caption) or caption.split(":"))[0]
        for caption, files in contents(root)
        for file in files
    }
    return [
        vars(claim)
        | {
            "evidence": claim.evaluate(by_chapter),
            "sure": how_sure(root, vars(claim)),
            "tried": values_tried(root, vars(claim)),
            "condition": claim.words(claim.condition, by_chapter),
            "before": claim.history(trials),
            "document": claim.id[0],
            "chapters": claim.decided_in(by_chapter),
            "part": parts.get(claim.chapter, "elsewhere"),
        }
        for claim in read_claims(root)
    ]


def results(notebook: NotebookNode, claims: Iterable[Claim] = ()) -> dict[str, str]:
    """Return the numbers that a run of a chapter has as its results, as text.

    A cell tagged `results` hands them over. The figures of the claims that the chapter settles are
    among them, as `A4.slope`, and `A4.met`, which is 1 where they meet the criterion of the row and
    0 where not. What is read from a stored table is no result of a run.
    """
    tagged = [cell for cell in notebook.cells if has_tag(cell, RESULTS)]
    numbers = {}
    for name, figure in handed_over(NotebookNode(cells=tagged))[0].items():
        value = figure["value"] if is_estimate(figure) else figure
        if isinstance(value, int | float):
            numbers[name] = str(value)
    own = chapter_figures(notebook)
    for claim in claims:
        read = {} if claim.stored == "all" else claim.read({claim.chapter: own})
        kept = {name: text for name, text in read.items() if name not in claim.stored}
        numbers |= {f"{claim.id}.{name}": text for name, text in kept.items()}
        if kept and len(kept) == len(claim.figures):
            numbers[f"{claim.id}.met"] = str(int(claim.met(kept)))
    return numbers


def robustness_name(claim: str) -> str:
    """Return the name of the table that confirms the region of a row."""
    return f"{CONFIRM}{claim}"


def region_to_confirm(root: Path, table: Table) -> str:
    """Return the region that a table is drawn for, "" if it confirms none.

    It is that of the row that names the table, or that the table was drawn for if no row does any
    longer. Raises BookError if there is none: a region is written before its table is drawn.
    """
    if not table.path.stem.startswith(CONFIRM) or ".small" in table.path.stem:
        return ""
    named = f"{table.path.parent.name}/{table.path.name}"
    regions = [claim.region for claim in read_claims(root) if claim.confirmed == named]
    if not regions and table.path.is_file():
        regions = [recorded_region(table.path)]
    if not any(regions):
        raise BookError(f"write its region first: no row of the claims says `confirmed: {named}`")
    return robustness.one_line(regions[0])


def settings_words(root: Path, claim: Mapping[str, Any]) -> str:
    """Return what the robustness tables of a row gave, choice by choice, for the claims page."""
    table = read_columns(root / TABLES / claim["settings"])
    words = f"Of {robustness.in_words(table, claim['region'])}."
    if claim["confirmed"]:
        fresh = read_columns(root / TABLES / claim["confirmed"])
        words += (
            f" Fresh runs, drawn once this region was written: of {robustness.in_words(fresh)}."
        )
    return words


def how_sure(root: Path, claim: Mapping[str, Any]) -> str:
    """Return in one sentence the basis of a verdict: the counts of its settings, or its proof.

    Those of fresh runs come first, where there are any.
    """
    if claim["identity"]:
        return str(claim["identity"])
    if not claim["settings"]:
        return ""
    if claim["confirmed"]:
        fresh = read_columns(root / TABLES / claim["confirmed"])
        return f"of {robustness.tally(fresh)}, all from fresh runs"
    table = read_columns(root / TABLES / claim["settings"])
    counts = robustness.tally(table, claim["region"])
    if not claim["region"]:
        return f"of {counts}"
    where = "in a region that was found afterwards and that no fresh runs have confirmed"
    return f"{where}, of {counts}"


def values_tried(root: Path, claim: Mapping[str, Any]) -> str:
    """Return what a verdict is about: the values of each choice that were tried in its region.

    A region leaves most columns free, and a table shows each of them between two ends only.
    """
    if not claim["settings"] or claim["verdict"] == "open":
        return ""
    table = read_columns(root / TABLES / claim["settings"])
    inside = robustness.in_region(table, claim["region"])
    tables = [{name: column[inside] for name, column in table.items()}]
    if claim["confirmed"]:
        tables.append(read_columns(root / TABLES / claim["confirmed"]))
    return f"the values that were tried: {robustness.tried_in_words(tables)}"
