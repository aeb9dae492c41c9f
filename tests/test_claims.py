"""The claims table: every verdict follows from figures, every row is held by a test."""

import itertools
import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookmaker import claims
from bookmaker.base import SourceError
from bookmaker.figures import FIGURES
from bookmaker.parameters import is_met

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = claims.read_claims(ROOT)
SETTLED = [claim for claim in CLAIMS if claims.VERDICTS[claim.verdict]]
PRINTED = claims.figures_by_chapter(ROOT)


def numbers(claim):
    found = claim.read(PRINTED)
    return {name: float(text) for name, text in found.items()}


def test_rows_come_by_document_and_number_from_the_file_of_their_chapter():
    names = [claim.id for claim in CLAIMS]
    assert names[:3] == ["A1", "A2", "A3"]
    assert "".join(dict.fromkeys(name[0] for name in names)) == "ABCSR"
    # C9 before C10, and a letter behind its number.
    assert names.index("C9") < names.index("C9b") < names.index("C10")
    files = {path.stem for path in (ROOT / claims.FOLDER).glob("*.yml")}
    assert files == {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.md")}
    assert all(claim.passage for claim in CLAIMS if claim.id[0] in claims.DOCUMENTS)


def moved(name, value):
    """Values a figure might have had: near the one it has and far from it."""
    yield from (factor * value for factor in (0.0, 0.1, 0.5, 0.9, 1.1, 1.5, 3.0, 10.0))
    for step in (1e-6, 1e-3, 0.1, 1.0, 10.0):
        yield value + step
        # There is no negative error bar.
        if not name.endswith("error"):
            yield value - step


@pytest.mark.parametrize("claim", SETTLED, ids=[claim.id for claim in SETTLED])
def test_every_figure_alone_can_turn_the_verdict(claim):
    """Where clauses of a row that fails are unmet beside its own, with up to two others moved."""
    figures = numbers(claim)
    for name in figures:
        others = [{}] if claims.VERDICTS[claim.verdict] > 0 else beside(figures, name)
        assert any(
            {is_met(claim.criterion, figures | other | {name: value}) for value in values}
            == {True, False}
            for other in others
            for values in [[figures[name], *moved(name, figures[name])]]
        ), f"{claim.id}: {name} decides nothing"


def beside(figures, name):
    """Nothing, or one or two of the other figures far from where they are."""
    far = {
        other: [0.0, 10 * value, value + 10, value - 10]
        for other, value in figures.items()
        if other != name
    }
    pairs = itertools.combinations_with_replacement(far, 2)
    return [{}, *({a: x, b: y} for a, b in pairs for x in far[a] for y in far[b])]


MEASURED = {
    "14_real_transformer": "MiniLM",
    "23c_real_layer": "MiniLM",
    "42_generator_as_a_map": "SmolLM2-135M-Instruct",
    "42a_beyond_the_fixed_point": "SmolLM2-135M-Instruct",
    "42b_heads_that_generate": "SmolLM2-135M-Instruct",
    "42c_what_left_the_window": "SmolLM2-135M-Instruct",
}


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_what_was_measured_on_one_model_names_it(claim):
    """Nothing is said of language models in general, and the pages say which one was read."""
    if model := MEASURED.get(claim.chapter):
        assert model in f"{claim.statement} {claim.condition} {claim.shown}"
        page = (ROOT / "notebooks" / f"{claim.chapter}.md").read_text(encoding="utf-8")
        assert model in page.split("```{code-cell}")[0]


def test_rows_know_their_part():
    rows = claims.read_rows(ROOT)
    # Rows stand in the part of their chapter, those below another one, too; B1 alone is settled
    # in another document's part.
    homes = {"A": "Part I", "B": "Part II", "C": "Part III", "R": "Part IV", "S": "What came out"}
    assert {row["id"] for row in rows if row["part"] != homes[row["document"]]} == {"B1"}


ROW = """\
- id: A1
  statement: It falls.
  passage: Section 1
  verdict: {verdict}
  condition: for small numbers
  test: tests/test_small.py::test_small
  figures:
    slope: fit.slope
    slope_error: fit.error
  criterion: {criterion}
  shown: 'slope {{slope}} ± {{slope_error}}'
"""
# What else a row with this verdict must have.
ENTRIES = {
    "identity": "  identity: a theorem\n",
    "holds": "  settings: c01_small/settings_A1.csv\n",
}
ENTRIES["fails"] = ENTRIES["open"] = ENTRIES["holds"]
ENTRIES["held in"] = f"{ENTRIES['holds']}  region: beta < 1\n"
ENTRIES["holds if"] = f"{ENTRIES['held in']}  confirmed: c01_small/confirm_A1.csv\n"
CRITERION = "abs(slope + 1) < 0.1 and slope_error < 0.02"


@pytest.fixture
def rows(tmp_path):
    """The rows of a text, as those of a chapter."""

    def rows(text, chapter="01_small"):
        path = tmp_path / "book" / "claims" / f"{chapter}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return claims.read_claims(tmp_path)

    return rows


def settled(**figures):
    """A chapter with a cell for A1 that handed figures over."""
    return claims.ChapterFigures(frozenset({"A1"}), figures)


def small(verdict="holds"):
    return ROW.format(verdict=verdict, criterion=CRITERION) + ENTRIES[verdict]


@pytest.mark.parametrize(
    ("verdict", "fit", "message"),
    [
        ("holds", {"slope": -1.02, "error": 0.01}, ""),
        ("holds if", {"slope": -1.02, "error": 0.01}, ""),
        ("held in", {"slope": -1.02, "error": 0.01}, ""),
        ("identity", {"slope": -1.02, "error": 0.01}, ""),
        ("fails", {"slope": -0.52, "error": 0.01}, ""),
        (
            "holds",
            {"slope": -0.52, "error": 0.01},
            "is not met by slope = -0.52, slope_error = 0.01",
        ),
        ("holds", {"slope": -1.02, "error": 0.1}, "is not met by slope = -1.02, slope_error = 0.1"),
        ("fails", {"slope": -1.02, "error": 0.01}, "is met by slope = -1.02"),
        ("open", {"slope": -0.52, "error": 0.01}, ""),
        ("open", {"slope": -1.02, "error": 0.01}, ""),
        ("open", {}, "cells handed over no figure"),
        ("holds", {}, "cells handed over no figure"),
        ("holds", {"slope": "-", "error": 0.01}, "could not convert string to float: '-'"),
    ],
)
def test_a_figure_across_its_criterion_is_refused(rows, verdict, fit, message):
    (claim,) = rows(small(verdict))
    printed = {"01_small": settled(fit=fit)}
    if not message:
        assert claim.evaluate(printed) == f"slope {fit['slope']} ± {fit['error']}"
        return
    with pytest.raises(SourceError) as caught:
        claim.evaluate(printed)
    assert str(caught.value).startswith("book/claims/01_small.yml:1: A1: ")
    assert message in str(caught.value)
    if "is " in message:
        assert CRITERION in str(caught.value)


def test_a_row_may_list_figures_that_its_cell_hands_over_as_data(rows):
    text = small()
    begin = text.index("  figures:")
    end = text.index("  criterion:")
    (claim,) = rows(f"{text[:begin]}  figures: [slope, slope_error]\n{text[end:]}")
    cell = new_code_cell("", metadata={"tags": ["claim-A1"]})
    data = {"slope": -1.02, "slope_error": "0.010"}
    printed = new_output("stream", text="slope_error := 9 is what it prints\n")
    cell.outputs = [printed, new_output("display_data", data={FIGURES: data})]
    printed = {"01_small": claims.chapter_figures(new_notebook(cells=[cell]))}
    assert claim.evaluate(printed) == "slope -1.02 ± 0.010"
    del cell.outputs[1].data[FIGURES]["slope"]
    with pytest.raises(SourceError, match="name 'slope' is not defined"):
        claim.evaluate({"01_small": claims.chapter_figures(new_notebook(cells=[cell]))})


def test_figures_come_from_the_chapter_of_the_row_unless_a_key_names_another(rows):
    printed = {
        "00_other": settled(fit={"slope": 5, "error": 1}),
        "01_small": settled(fit={"slope": -1.0, "error": 0.01}),
    }
    assert rows(small())[0].evaluate(printed) == "slope -1.0 ± 0.01"
    (claim,) = rows(small("fails").replace("fit.slope", "'00:fit.slope'"))
    assert claim.evaluate(printed) == "slope 5 ± 0.01"
    assert claim.decided_in(printed) == ["01_small", "00_other"]


def test_two_rows_of_one_statement_are_named_with_both_places(rows):
    rows(small())
    with pytest.raises(SourceError) as caught:
        rows(small(), chapter="02_other")
    assert str(caught.value) == (
        "book/claims/02_other.yml:1: A1: there are two rows, "
        "the other is book/claims/01_small.yml:1"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("slope_error < 0.02", "slope_error < bound"), "bound is not among the figures"),
        ((" and slope_error < 0.02", ""), "does not depend on the figure slope_error"),
        (("{slope}", "{height}"), "height is not among the figures"),
        (("{slope_error}", "{slope_error"), "expected '}'"),
        (("abs(slope + 1)", "abs(slope + "), "is no condition"),
        (("verdict: holds", "verdict: maybe"), "verdict must be one of"),
        (
            ("verdict: holds\n  condition: for small numbers", "verdict: fails"),
            "condition is missing",
        ),
        (("test: tests/test_small.py::test_small", ""), "needs the entry test"),
        (("passage: Section 1", ""), "needs the entry passage"),
        (("slope: fit.slope", "slope: 3"), "the figure slope must be a key, as in"),
        (("slope: fit.slope", "slope: {figure: fit.slope}"), "the figure slope must be a key"),
        (("verdict: holds", "chapter: 01_small\n  verdict: holds"), "has no entry chapter"),
        (("  settings: c01_small/settings_A1.csv\n", ""), "needs the entry settings"),
        (("  settings", "  no_settings: a theorem\n  settings"), "has no entry no_settings"),
    ],
)
def test_rows_that_cannot_decide_are_named_together(rows, change, message):
    with pytest.raises(SourceError) as caught:
        rows(small().replace(*change) + 2 * small())
    told = str(caught.value).splitlines()
    # The first row, which was changed, and the last one.
    assert all(re.match(r"book/claims/01_small\.yml:\d+: A1: ", line) for line in told)
    assert told[0].startswith("book/claims/01_small.yml:1: ")
    assert any(message in line for line in told)
    assert any("there are two rows, the other is book/claims/01_small.yml:" in t for t in told)
