"""A chapter's figure on another page, for readers whose browser runs no scripts."""

from __future__ import annotations

import os
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from bookmaker.errors import BookError
from bookmaker.figures import figure_file
from bookmaker.freshness import read_notebook


class WithoutScripts(Directive):
    """The figure of a chapter, by the names of both, where scripts are off."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Write the picture for Sphinx to copy; return the figure with a link to the chapter."""
        chapter, name = self.arguments
        env = self.state.document.settings.env
        root = Path(env.srcdir)
        try:
            notebook = read_notebook(root / "notebooks" / f"{chapter}.ipynb")
            suffix, picture = figure_file(notebook, name)
        except (BookError, OSError) as error:
            raise self.error(f"{chapter}, {name}: {error}") from None
        cell = next(
            c
            for c in notebook.cells
            if c.metadata.get("mystnb", {}).get("figure", {}).get("name") == name
        )
        path = Path(env.doctreedir).parent / "without_scripts" / f"{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
        here = (root / env.docname).parent
        alt = cell.metadata["mystnb"].get("image", {}).get("alt", "")
        image = nodes.image(uri=Path(os.path.relpath(path, here)).as_posix(), alt=alt)
        caption, _ = self.state.inline_text(
            f"Not live, from the chapter [](/notebooks/{chapter}.ipynb). "
            + " ".join(cell.metadata["mystnb"]["figure"]["caption"].split()),
            self.lineno,
        )
        figure = nodes.figure("", image, nodes.caption("", "", *caption))
        return [
            nodes.raw("", "<noscript>", format="html"),
            figure,
            nodes.raw("", "</noscript>", format="html"),
        ]


def setup_figures(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("without-scripts", WithoutScripts)
