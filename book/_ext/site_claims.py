"""The page of claims and that of their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from docutils import nodes
from site_figures import offered
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.claims_page import claims_markdown, sources_markdown
from bookmaker.settings import TABLES
from bookmaker.tables import read_columns
from compendium.common.settings import show_settings
from spinformer.plot.style import use_style
from spinformer.plot.vector import figure_svg


class FromText(SphinxDirective):
    """`{claims}`, every statement with its verdict, or `{claim-tests}`, the source of the tests."""

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        write = claims_markdown if self.name == "claims" else sources_markdown
        return self.parse_text_to_nodes(write(Path(self.env.srcdir)), allow_section_headings=True)


class Settings(SphinxDirective):
    """A table of settings, below `src/compendium`, as a drawing behind a line to press."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw the table for Sphinx to copy; return the folded picture."""
        table = Path(self.env.srcdir, TABLES, self.arguments[0])
        with plt.rc_context():
            use_style()
            figure = show_settings(read_columns(table), value="for (+), against (−)")
            drawn = figure_svg(figure).encode()
            plt.close(figure)
        name = f"{table.parent.name}-{table.stem}.svg"
        return [
            nodes.raw("", "<details><summary>Every setting, drawn</summary>", format="html"),
            nodes.image(
                uri=offered(self.env, name, drawn),
                alt="What decides at every combination of choices, in rising order, with "
                "intervals; below, which choices each is made of.",
                classes=["card-picture"],
            ),
            nodes.raw("", "</details>", format="html"),
        ]


def add_filter(
    app: Sphinx, pagename: str, _template: str, _context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Give the page of claims its filter."""
    if pagename == "book/claims":
        app.add_js_file("claims.js", loading_method="defer")


def setup_claims(app: Sphinx) -> None:
    """Register directives and hooks."""
    app.add_directive("claims", FromText)
    app.add_directive("claim-tests", FromText)
    app.add_directive("settings", Settings)
    app.connect("html-page-context", add_filter)
