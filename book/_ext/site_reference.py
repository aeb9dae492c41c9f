"""Docstrings of the package as autodoc shows them."""

import re
from pathlib import Path

from docutils import nodes
from site_pages import used
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

_CITED = re.compile(r"\[([a-z]+\d{4}[a-z][^\]]*)\]")
_EXAMPLE = re.compile(r"((?:^ *>>>.*\n(?:(?! *$).*\n?)*)+)", re.MULTILINE)
_KEY = re.compile(r"\b[a-z]{2,}\d{4}[a-z]+\b")


def plain_docstring(
    app: Sphinx, what: str, name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring: code in backticks, sources cited, all else as typed."""
    parts = _EXAMPLE.split("\n".join(lines) + "\n")
    parts[::2] = ["\n\n".join(map(_rst, re.split(r"\n *\n", text))) for text in parts[::2]]
    lines[:] = "\n".join(parts).split("\n")
    chapters = [chapter for chapter, names in used(Path(app.srcdir)).items() if name in names]
    if chapters and what in ("function", "class"):
        shown = [f":doc:`chapter {c.partition('_')[0]} </notebooks/{c}>`" for c in chapters]
        lines += ["", f"*Used in* {', '.join(shown)}.", ""]


def _rst(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return f"::\n\n{paragraph}"
    text = re.sub(r"\n +(?=\S)", " ", paragraph)
    # What is explained name by name, each with its own lines, is a list.
    if text != paragraph and not text.strip().startswith(("*", "-")):
        text = "\n".join(f"* {line}" for line in text.strip("\n").split("\n"))
    pieces = re.split(r"(`+[^`]+`+)", text)
    pieces[1::2] = [f"``{code.strip('`')}``\\ " for code in pieces[1::2]]
    pieces[::2] = [
        _CITED.sub(
            lambda found: f"({_KEY.sub(lambda key: f':cite:t:`{key[0]}`', found[1])})",
            re.sub(r"([|_\\]|(?<!^)\*|^\*(?! ))", r"\\\1", words, flags=re.MULTILINE),
        )
        for words in pieces[::2]
    ]
    return "".join(pieces)


def no_link(
    _app: Sphinx, _env: object, node: pending_xref, text: nodes.TextElement
) -> nodes.TextElement | None:
    """Leave a Python name that has no entry as text: a type of another library, a table."""
    return text if node["refdomain"] == "py" else None


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("missing-reference", no_link)
