"""The page of claims, that of their tests, and the list of claims at the end of each chapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.nodes import nested_parse_with_titles

from spinformer.chapters.claims_page import (
    chapter_claims_markdown,
    claims_markdown,
    read_rows,
    sources_markdown,
)

CHAPTERS = "notebooks/"


class FromText(Directive):
    """A directive that stands for the text that `write` returns."""

    write = staticmethod(claims_markdown)

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        root = Path(self.state.document.settings.env.app.srcdir)
        container = nodes.Element()
        lines = StringList(self.write(root).splitlines(), source="claims.yml")
        nested_parse_with_titles(self.state, lines, container)
        return container.children


class Claims(FromText):
    """Every statement, its verdict, and the cell and test that settle it."""


class ClaimTests(FromText):
    """The source of every test that holds a claim."""

    write = staticmethod(sources_markdown)


def append_claims(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the claims that a chapter settles to its notebook as it is read."""
    root = Path(app.srcdir)
    if not docname.startswith(CHAPTERS) or not (root / "book" / "claims.yml").is_file():
        return
    if not hasattr(app, "claim_rows"):
        app.claim_rows = read_rows(root)
    text = chapter_claims_markdown(app.claim_rows, docname.removeprefix(CHAPTERS))
    if text:
        notebook = json.loads(source[0])
        notebook["cells"].append(nbformat.v4.new_markdown_cell(text, id="claims"))
        source[0] = json.dumps(notebook)


def add_filter(
    app: Sphinx, pagename: str, _template: str, _context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Give the page of claims its filter."""
    if pagename == "book/claims":
        app.add_js_file("claims.js", loading_method="defer")


def setup_claims(app: Sphinx) -> None:
    """Register directives and hooks."""
    app.add_directive("claims", Claims)
    app.add_directive("claim-tests", ClaimTests)
    app.connect("source-read", append_claims)
    app.connect("html-page-context", add_filter)
