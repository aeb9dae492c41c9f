"""The page of claims and that of their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.nodes import nested_parse_with_titles

from bookmaker.claims_page import claims_markdown, sources_markdown


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
