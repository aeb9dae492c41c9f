"""A chapter that was run, as a page of its own, by nbconvert.

The page reads without a network: pictures and style are in it, MathJax lies in a folder beside it.
"""

import re
import shutil
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from bookmaker.files import write_atomically
from bookmaker.meaning import has_tag
from bookmaker.source import Chapter

_TEMPLATE = Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
# What MyST adds to Markdown, in HTML: sources, boxes, labels of equations, links within the book.
_MYST = {
    r"\{cite(?::\w+)?\}`([^`]+)`": r"[\1]",
    r"(?m)^( *):{3,}\{\w+\} *(.*)\n(?: *:\w+:.*\n)*((?:.*\n)*?)\1:{3,}$": (
        r'\1<div class="box">\n\n\1**\2**\n\n\3\n\1</div>'
    ),
    r"\$\$ \((eq-[\w-]+)\)": r'$$ <a id="\1"></a>(\1)',
    r"(?<!!)\[\]\((?!https?:|#)[^)\s]*?([^/)\s]+?)\.\w+(?:#\S+)?\)": r"\1",
    r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)\s]+\)": r"\1",
}


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> Path:
    """Write the page of an executed chapter into `folder`, with MathJax beside it."""
    shown = nbformat.from_dict(notebook)
    shown.cells = [cell for cell in shown.cells if not has_tag(cell, "remove-cell")]
    for cell in shown.cells:
        if cell.cell_type == "markdown":
            cell.source = _plain(cell.source)
    exporter = HTMLExporter(raw_template=_TEMPLATE, filters={"plain": _plain})
    text, _ = exporter.from_notebook_node(shown, {"metadata": {"name": chapter.title}})
    mathjax = chapter.root / "book" / "_static" / "mathjax"
    shutil.copytree(mathjax, folder / "mathjax", dirs_exist_ok=True)
    page = folder / f"{chapter.name}.html"
    write_atomically(page, text)
    return page


def _plain(text: str) -> str:
    for pattern, told in _MYST.items():
        text = re.sub(pattern, told, text)
    return text
