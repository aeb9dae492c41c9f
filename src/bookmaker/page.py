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
from pybtex import format_from_string
from pybtex.database import BibliographyData, parse_file
from traitlets.config import Config

from bookmaker.errors import OutputError
from bookmaker.figures import SVG, labelled
from bookmaker.files import write_atomically
from bookmaker.source import Chapter

_CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
_BOX = re.compile(r"^( *):{3,}\{\w+\} *(.*)\n(?: *:\w+:.*\n)*((?:.*\n)*?)\1:{3,}$", re.MULTILINE)
_EQUATION = re.compile(r"\$\$ \((eq-[\w-]+)\)")
_LINK = re.compile(
    r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)[^)\s]*?([^/)\s]+?)(?:\.\w+)?(?:#\S+)?\)"
)
# No other script: what nbconvert would load lies elsewhere, or asks for another MathJax.
_TEMPLATE = """\
{%- extends "lab/index.html.j2" -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}
<script>window.MathJax = {tex: {inlineMath: [["$", "$"], ["\\\\(", "\\\\)"]]}};</script>
<script defer src="{{ resources.files }}/mathjax/tex-mml-chtml.js"></script>
<style>figcaption { font-style: italic } .box { border-left: 4px solid; padding: 0 1em }</style>
{%- endblock -%}
"""


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> list[Path]:
    """Write the page of an executed chapter into `folder`, with `<name>_files` beside it."""
    config = Config()
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = ["remove-cell"]
    files = folder / f"{chapter.name}_files"
    resources = {"metadata": {"name": chapter.title}, "files": files.name}
    exporter = HTMLExporter(config=config, raw_template=_TEMPLATE)
    text, _ = exporter.from_notebook_node(_plain(chapter, notebook), resources)
    page = folder / f"{chapter.name}.html"
    try:
        shutil.rmtree(files, ignore_errors=True)
        shutil.copytree(chapter.root / "book" / "_static" / "mathjax", files / "mathjax")
        write_atomically(page, text)
    except OSError as error:
        message = f"the notebook is in {folder}, but not its page: {error.strerror}"
        raise OutputError(message) from None
    return [page]


def _plain(chapter: Chapter, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook with what MyST adds to Markdown written in HTML, captions, references."""
    library = parse_file(chapter.root / "book" / "references.bib", "bibtex")
    cited: list[str] = []

    def cite(match: re.Match[str]) -> str:
        keys = [key.strip() for key in match[1].split(",")]
        cited.extend(keys)
        return f"[{'; '.join(_author_year(library, key) for key in keys)}]"

    plain = nbformat.from_dict(notebook)
    for cell in plain.cells:
        if cell.cell_type == "markdown":
            text = _EQUATION.sub(r'$$ <a id="\1"></a>(\1)', _CITED.sub(cite, cell.source))
            text = _BOX.sub(r'\1<div class="box">\n\n\1**\2**\n\n\3\n\1</div>', text)
            cell.source = _LINK.sub(lambda match: match[1] or _title(chapter, match[2]), text)
        elif figure := cell.metadata.get("mystnb", {}).get("figure"):
            alt = cell.metadata["mystnb"].get("image", {}).get("alt", "")
            words = escape(_CITED.sub(cite, figure["caption"]), quote=False)
            for output in cell.outputs:
                if picture := output.get("data", {}).get(SVG):
                    shown = f"{labelled(picture, alt)}<figcaption>{words}</figcaption>"
                    output.data = {"text/html": f"<figure>{shown}</figure>"}
    if cited:
        text = library.to_string("bibtex")
        listed = format_from_string(text, "plain", dict.fromkeys(cited), output_backend="html")
        body = listed.partition("<body>")[2].partition("</body>")[0]
        plain.cells.append(nbformat.v4.new_markdown_cell(f"## References\n\n{body}"))
    return plain


def _title(chapter: Chapter, name: str) -> str:
    """Return the first heading of another page of the book."""
    for path in chapter.root.glob(f"*/{name}.md"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                return line.removeprefix("# ")
    return name


def _author_year(library: BibliographyData, key: str) -> str:
    if key not in library.entries:
        return key
    entry = library.entries[key]
    names = [" ".join(person.last_names) for person in entry.persons.get("author", [])]
    first = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{first or key}, {entry.fields.get('year', 'n.d.')}"
