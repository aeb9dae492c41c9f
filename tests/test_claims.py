"""The claims table: a row for every statement, links and tests that exist, figures from cells."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spinformer.chapters.claims import (
    Claim,
    claims_markdown,
    printed_by_chapter,
    quoted_figure,
    read_claims,
)

ROOT = Path(__file__).resolve().parents[1]
KNOWN = {
    *(f"A{i}" for i in range(1, 20)),
    *(f"B{i}" for i in range(1, 14)),
    *(f"C{i}" for i in range(1, 20)),
}
CLAIMS = read_claims(ROOT)
SETTLED = [claim for claim in CLAIMS if claim.verdict != "not computed yet"]


def test_every_statement_has_a_row_and_no_id_is_unknown() -> None:
    assert {claim.id for claim in CLAIMS} == KNOWN
    assert {name for found in printed_by_chapter(ROOT).values() for name in found} <= KNOWN


def test_what_the_chapters_settle_and_what_the_table_says_agree() -> None:
    found = printed_by_chapter(ROOT)
    tagged = {name for cells in found.values() for name in cells}
    assert tagged == {claim.id for claim in SETTLED}
    for claim in SETTLED:
        assert claim.id in found[claim.chapter], f"no cell of {claim.chapter} settles {claim.id}"


@pytest.mark.parametrize("claim", SETTLED, ids=[claim.id for claim in SETTLED])
def test_a_settled_row_names_a_test_and_a_figure_that_exist(claim: Claim) -> None:
    file, name = claim.test.split("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions, f"{claim.id}: no test {claim.test}"
    assert quoted_figure(claim, printed_by_chapter(ROOT)[claim.chapter][claim.id])
    needs_condition = claim.verdict in ("holds if", "fails")
    assert bool(claim.condition) or not needs_condition, f"{claim.id}: say when or why"


def test_the_page_is_made_from_the_rows() -> None:
    text = claims_markdown(ROOT)
    assert all(f"* - {claim.id}\n" in text for claim in CLAIMS)


def test_a_figure_that_no_cell_printed_is_refused() -> None:
    claim = Claim("A1", "statement", "holds", figure=r"error +([\d.e+-]+)")
    assert quoted_figure(claim, "the error  1.0e-12 nats") == "error 1.0e-12"
    with pytest.raises(ValueError, match="A1: no match"):
        quoted_figure(claim, "")
