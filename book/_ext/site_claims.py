"""The page of claims and that of their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.claims_page import claims_markdown, sources_markdown


class FromText(SphinxDirective):
    """A directive that stands for the text that `write` returns."""

    write = staticmethod(claims_markdown)

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        text = self.write(Path(self.env.srcdir))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Claims(FromText):
    """Every statement, its verdict, and the cell and test that settle it."""


class ClaimTests(FromText):
    """The source of every test that holds a claim."""

    write = staticmethod(sources_markdown)


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
    app.connect("html-page-context", add_filter)
