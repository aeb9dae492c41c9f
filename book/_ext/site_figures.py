"""A chapter's figure on another page, for readers whose browser runs no scripts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookmaker.errors import BookError
from bookmaker.figures import figure_file
from bookmaker.freshness import read_notebook


def written(env: BuildEnvironment, chapter: str, name: str = "") -> tuple[str, dict[str, Any]]:
    """Write a chapter's figure for Sphinx to copy; return where, and what its cell says of it.

    Without a name it is the second one, since the first mostly draws the idea.
    """
    root = Path(env.srcdir)
    notebook = read_notebook(root / "notebooks" / f"{chapter}.ipynb")
    told = [cell.metadata.get("mystnb", {}) for cell in notebook.cells]
    known = {settings["figure"]["name"]: settings for settings in told if "figure" in settings}
    name = name or list(known)[:2][-1]
    return offered(env, f"{name}.svg", figure_file(notebook, name)), known[name]


def offered(env: BuildEnvironment, name: str, picture: bytes) -> str:
    """Write a picture for Sphinx to copy; return where, as seen from the present page."""
    path = Path(env.doctreedir).parent / "figures" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    return Path(os.path.relpath(path, Path(env.srcdir, env.docname).parent)).as_posix()


class WithoutScripts(Directive):
    """The figure of a chapter, by the names of both, where scripts are off."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Write the picture for Sphinx to copy; return the figure with a link to the chapter."""
        chapter, name = self.arguments
        try:
            uri, told = written(self.state.document.settings.env, chapter, name)
        except (BookError, OSError) as error:
            raise self.error(f"{chapter}, {name}: {error}") from None
        image = nodes.image(uri=uri, alt=told.get("image", {}).get("alt", ""))
        caption, _ = self.state.inline_text(
            f"Not live, from the chapter [](/notebooks/{chapter}.ipynb). "
            + " ".join(told["figure"]["caption"].split()),
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
