"""The page of claims, that of their tests, and the verdicts of a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from docutils import nodes
from site_figures import offered
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.claims import read_claims
from bookmaker.claims_page import claims_markdown, read_rows, sources_markdown, verdicts_markdown
from bookmaker.settings import TABLES
from bookmaker.tables import read_columns
from compendium.common.settings import show_settings
from spinformer.plot.style import use_style
from spinformer.plot.vector import figure_svg


class FromText(SphinxDirective):
    """`{claims}`: all statements; `{claim-tests}`: tests with source; `{verdicts} A`: of a part."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        root = Path(self.env.srcdir)
        if self.name == "claims":
            text = claims_markdown(read_rows(root))
        elif self.name == "claim-tests":
            text = sources_markdown(read_claims(root))
        else:
            letter = self.arguments[0]
            text = verdicts_markdown([c for c in read_claims(root) if c.id.startswith(letter)])
        return self.parse_text_to_nodes(text, allow_section_headings=True)


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
        uri = offered(self.env, f"{table.parent.name}-{table.stem}.svg", drawn)
        alt = "What decides at every combination of choices, in rising order, with intervals; "
        alt += "below, which choices each is made of."
        return [
            nodes.raw("", "<details><summary>Every setting, drawn</summary>", format="html"),
            nodes.image(uri=uri, alt=alt, classes=["card-picture"]),
            nodes.raw("", "</details>", format="html"),
        ]


def add_filter(app: Sphinx, pagename: str, *_: Any) -> None:
    """Give the page of claims its filter."""
    if pagename == "book/claims":
        app.add_js_file("claims.js", loading_method="defer")


def setup_claims(app: Sphinx) -> None:
    """Register directives and hooks."""
    for name in ("claims", "claim-tests", "verdicts"):
        app.add_directive(name, FromText)
    app.add_directive("settings", Settings)
    app.connect("html-page-context", add_filter)
