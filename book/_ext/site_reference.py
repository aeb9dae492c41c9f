"""Pages of the package's reference by autodoc, and what a chapter ends with: claims, functions."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.claims_page import chapter_claims_markdown, read_rows

CHAPTERS = "notebooks/"
PACKAGES = ("spinformer", "compendium", "bookmaker")
# Checks of arguments and compiled inner loops, which nobody calls from outside.
_INTERNAL = re.compile(r"\.(\w*inputs|kernels|checks|_\w+|__main__)(\.|$)")
_CITED = re.compile(r"\[([a-z]+\d{4}[a-z][^\]]*)\]")
_EXAMPLE = re.compile(r"((?:^ *>>>.*\n(?:(?! *$).*\n?)*)+)", re.MULTILINE)
_KEY = re.compile(r"\b[a-z]{2,}\d{4}[a-z]+\b")


@cache
def modules(source: Path, room: str) -> dict[str, ast.Module]:
    """Return the files of a room (`hopfield`, `bookmaker.sweeps`) that define something."""
    top = source / (room if room.startswith(PACKAGES) else f"spinformer.{room}").replace(".", "/")
    paths = sorted(top.rglob("*.py")) or [top.with_suffix(".py")]
    named = {".".join(path.relative_to(source).with_suffix("").parts): path for path in paths}
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in named.items()}
    return {
        name.removesuffix(".__init__"): tree
        for name, tree in trees.items()
        if any(_defined(tree)) and not _INTERNAL.search(name)
    }


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


@cache
def used(root: Path) -> dict[str, list[str]]:
    """Return for each chapter the full names that its code imports of the package."""
    found = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        # Cells that install something are no Python.
        code = "\n".join(text for text in texts if not re.search(r"^\s*[%!]", text, re.MULTILINE))
        found[path.stem] = [
            f"{node.module}.{alias.name}"
            for node in ast.parse(code).body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES)
            for alias in node.names
        ]
    return found


class ReferenceOf(SphinxDirective):
    """The rooms named: what each file is for, then, unless `:index:` is given, its entries."""

    required_arguments = 1
    optional_arguments = 20
    option_spec = {"index": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        source = Path(self.env.srcdir) / "src"
        table, entries = ["| to | use |", "| --- | --- |"], []
        for room in self.arguments:
            for name, tree in modules(source, room).items():
                short = name.removeprefix("spinformer.")
                doc = ast.get_docstring(tree) or ""
                task = " ".join(doc.split("\n\n")[0].split()).replace("|", r"\|")
                names = list(_defined(tree))
                if "index" in self.options:
                    links = [f"`{short}`: " + ", ".join(f"`{last}`" for last in names)]
                else:
                    links = [f"{{py:obj}}`~{name}.{last}`" for last in names]
                table.append(f"| {task} | {', '.join(links)} |")
                entries += [f"## {short}", "", "```{eval-rst}", f".. automodule:: {name}", "```"]
        lines = [*table, "", *([] if "index" in self.options else entries)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def plain_docstring(
    app: Sphinx, what: str, name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring: code in backticks, sources cited, all else as typed."""
    parts = _EXAMPLE.split("\n".join(lines) + "\n")
    parts[::2] = ["\n\n".join(map(_rst, re.split(r"\n *\n", text))) for text in parts[::2]]
    lines[:] = "\n".join(parts).split("\n")
    chapters = [chapter for chapter, names in used(Path(app.srcdir)).items() if name in names]
    if chapters and what in ("function", "class"):
        links = ", ".join(f":chapter:`{chapter.partition('_')[0]}`" for chapter in chapters)
        lines += ["", f"*Used in* {links}.", ""]


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


def append_lists(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append to a chapter's notebook, as it is read, the claims it settles and what it uses."""
    root = Path(app.srcdir)
    if not docname.startswith(CHAPTERS) or not (root / "book" / "claims.yml").is_file():
        return
    if not hasattr(app, "claim_rows"):
        app.claim_rows = read_rows(root)
    name = docname.removeprefix(CHAPTERS)
    rooms: dict[str, list[str]] = {}
    for full in used(root).get(name, ()):
        rooms.setdefault(full.rpartition(".")[0], []).append(f"{{py:obj}}`~{full}`")
    lines = [f"* `{room}`: {', '.join(links)}" for room, links in sorted(rooms.items())]
    text = chapter_claims_markdown(app.claim_rows, name)
    if lines:
        text += "\n".join(["", "## Functions used here", "", *lines, ""])
    if text:
        notebook = json.loads(source[0])
        notebook["cells"].append(nbformat.v4.new_markdown_cell(text, id="lists"))
        source[0] = json.dumps(notebook)


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make names of the package, where they stand as code in the text, links to their entries."""
    objects: dict[str, Any] = app.env.domaindata["py"]["objects"]
    for node in list(doctree.findall(nodes.literal)):
        entry = objects.get(node.astext().removesuffix("()"))
        if entry is not None and not isinstance(node.parent, nodes.reference):
            page = app.builder.get_relative_uri(docname, entry.docname)
            link = nodes.reference("", "", node.deepcopy(), internal=True)
            link["refuri"] = f"{page}#{entry.node_id}"
            node.replace_self(link)


def setup_reference(app: Sphinx) -> None:
    """Register directive and hooks."""
    app.add_directive("reference", ReferenceOf)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("missing-reference", no_link)
    app.connect("source-read", append_lists)
    app.connect("doctree-resolved", link_names)
