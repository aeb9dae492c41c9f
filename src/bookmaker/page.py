"""A chapter that was run, as a page of its own, by nbconvert.

The page reads without a network: pictures and style are in it, MathJax lies in a folder beside it.
"""

from __future__ import annotations

import re
import shutil
from html import escape
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from traitlets.config import Config

from bookmaker.files import write_atomically
from bookmaker.pictures import SVG, drawing
from bookmaker.source import Chapter

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
# No other script: what nbconvert would load lies elsewhere, or asks for another MathJax.
_TEMPLATE = """\
{%- extends "lab/index.html.j2" -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}
<script>window.MathJax = {tex: {inlineMath: [["$", "$"], ["\\\\(", "\\\\)"]]}};</script>
<script defer src="{{ resources.files }}/tex-mml-chtml.js"></script>
<style>figcaption { font-style: italic } .box { border-left: 4px solid; padding: 0 1em }</style>
{%- endblock -%}
"""


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> Path:
    """Write the page of an executed chapter into `folder`, with MathJax beside it."""
    plain = nbformat.from_dict(notebook)
    for cell in plain.cells:
        if cell.cell_type == "markdown":
            cell.source = _plain(cell.source)
        elif (figure := cell.metadata.get("mystnb", {}).get("figure")) and (data := drawing(cell)):
            alt = escape(cell.metadata["mystnb"].get("image", {}).get("alt", ""))
            shown = data.pop(SVG).replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
            words = escape(_plain(figure["caption"]), quote=False)
            data["text/html"] = f"<figure>{shown}<figcaption>{words}</figcaption></figure>"
    config = Config()
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = ["remove-cell"]
    resources = {"metadata": {"name": chapter.title}, "files": "mathjax"}
    exporter = HTMLExporter(config=config, raw_template=_TEMPLATE)
    text, _ = exporter.from_notebook_node(plain, resources)
    mathjax = chapter.root / "book" / "_static" / "mathjax"
    shutil.copytree(mathjax, folder / "mathjax", dirs_exist_ok=True)
    page = folder / f"{chapter.name}.html"
    write_atomically(page, text)
    return page


def _plain(text: str) -> str:
    for pattern, told in _MYST.items():
        text = re.sub(pattern, told, text)
    return text
