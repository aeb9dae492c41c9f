"""Figures of chapters on other pages: cards, and for readers whose browser runs no scripts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from bookmaker.freshness import read_notebook
from bookmaker.pictures import figure_file
from bookmaker.project import contents
from bookmaker.source import Chapter

_BOX = re.compile(r"^:{3,}\{admonition\} In short\n(.*?)^:{3,}$", re.MULTILINE | re.DOTALL)
# Behind a full stop, at the next capital: not in "e.g. 3", not within mathematics.
_SENTENCE = re.compile(r"(?<=[.?!])\)? (?=[A-Z\[*$])")


def written(env: BuildEnvironment, chapter: str, name: str = "") -> tuple[str, dict[str, Any]]:
    """Write a chapter's figure for Sphinx to copy; return where, and what its cell says of it.

    Without a name it is the second one, since the first mostly draws the idea.
    """
    notebook = read_notebook(Path(env.srcdir, "notebooks", f"{chapter}.ipynb"))
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


class WithoutScripts(SphinxDirective):
    """The figure of a chapter, by the names of both, where scripts are off."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Write the picture for Sphinx to copy; return the figure with a link to the chapter."""
        chapter, name = self.arguments
        uri, told = written(self.env, chapter, name)
        caption, _ = self.parse_inline(
            f"Not live, from the chapter [](/notebooks/{chapter}.ipynb). "
            + " ".join(told["figure"]["caption"].split())
        )
        image = nodes.image(uri=uri, alt=told["image"]["alt"])
        figure = nodes.figure("", image, nodes.caption("", "", *caption))
        begin, end = (nodes.raw("", f"<{s}noscript>", format="html") for s in ("", "/"))
        return [begin, figure, end]


def answer(text: str, number: int = 1) -> str:
    """Return a sentence of a chapter's "In short", counted without the questions.

    >>> answer(":::{admonition} In short\\nIs it? Yes, it is. Very.\\n:::\\n", 2)
    'Very.'
    """
    found = _BOX.search(text)
    sentences = _SENTENCE.split(" ".join(found[1].split())) if found else []
    # Chapters link to each other within their folder.
    told = [re.sub(r"\]\((\w+)\.md\)", r"](../notebooks/\1.md)", s) for s in sentences]
    return [s for s in told if not s.endswith("?")][number - 1]


class Cards(SphinxDirective):
    """A card for each chapter, in the order of the contents.

    A line of the content, `chapter: number figure`, says which sentence and which figure it shows.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The parsed cards, under the captions of the table of contents."""
        root = Path(self.env.srcdir)
        chosen = dict(line.split(": ") for line in self.content)
        lines = []
        for caption, files in contents(root):
            names = [Path(file).name for file in files if file.startswith("notebooks/")]
            if not names:
                continue
            lines += [f"## {caption}", "", ":::::{container} book-cards"]
            for name in names:
                number, _, figure = chosen[name].partition(" ")
                uri, told = written(self.env, name, figure)
                chapter = Chapter(root, name)
                lines += ["::::{container} book-card"]
                lines += [f"**[{chapter.title}](../notebooks/{name}.md)**", ""]
                lines += [f"```{{image}} {uri}", f":alt: {' '.join(told['image']['alt'].split())}"]
                lines += [":class: card-picture", "```", ""]
                lines += [answer(chapter.text, int(number)), "::::"]
            lines += [":::::", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup_figures(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("without-scripts", WithoutScripts)
    app.add_directive("cards", Cards)
