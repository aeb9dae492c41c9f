"""The page of cards: of every chapter its question, its answer in a sentence and a figure.

All three are read from the chapter's source, so that a card says what the chapter says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from site_figures import written
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.errors import BookError
from bookmaker.project import contents
from bookmaker.source import Chapter

_BOX = re.compile(r"^:{3,}\{admonition\} In short\n(.*?)^:{3,}$", re.MULTILINE | re.DOTALL)
# Behind a full stop, at the next capital: not in "e.g. 3", not within mathematics.
_SENTENCE = re.compile(r"(?<=[.?!])\)? (?=[A-Z\[*$])")
_LINK = re.compile(r"\]\((\w+)\.md\)")


def answer(text: str, number: int = 1) -> str:
    """Return a sentence of a chapter's "In short", counted without the questions.

    >>> answer(":::{admonition} In short\\nIs it? Yes, it is. Very.\\n:::\\n", 2)
    'Very.'
    """
    found = _BOX.search(text)
    sentences = _SENTENCE.split(" ".join(found[1].split())) if found else []
    # Chapters link to each other within their folder.
    told = [_LINK.sub(r"](../notebooks/\1.md)", s) for s in sentences if not s.endswith("?")]
    return told[:number][-1] if told else ""


def parts(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the captions of the table of contents and the chapters below each, if there are any."""
    for caption, files in contents(root):
        names = [file.removeprefix("notebooks/") for file in files if file.startswith("notebooks/")]
        if names:
            yield caption, names


class Cards(SphinxDirective):
    """A card for each chapter, in the order of the contents.

    A line of the content, `chapter: number figure`, says which sentence and which figure it shows;
    without a figure it is the second, since the first mostly draws the idea.
    """

    has_content = True

    def run(self) -> list:
        """The parsed cards, under the captions of the table of contents."""
        root = Path(self.env.srcdir)
        chosen = dict(line.split(": ") for line in self.content)
        lines = []
        for caption, names in parts(root):
            lines += [f"## {caption}", "", ":::::{container} book-cards"]
            for name in names:
                try:
                    lines += self._card(Chapter(root, name), chosen.get(name, ""))
                except (BookError, OSError) as error:
                    raise self.error(f"{name}: {error}") from None
            lines += [":::::", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def _card(self, chapter: Chapter, chosen: str) -> list[str]:
        number, _, figure = chosen.partition(" ")
        uri, told = written(self.env, chapter.name, figure)
        return [
            "::::{container} book-card",
            f"**[{chapter.title}](../notebooks/{chapter.name}.md)**",
            "",
            f"```{{image}} {uri}",
            f":alt: {' '.join(told.get('image', {}).get('alt', '').split())}",
            ":class: card-picture",
            "```",
            "",
            answer(chapter.text, int(number or 1)),
            "::::",
        ]


def setup_cards(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("cards", Cards)
