"""Pages of the package's reference by autodoc, and what a chapter ends with: claims, functions."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookmaker.claims_page import chapter_claims_markdown, read_rows

PACKAGES = ("spinformer", "compendium", "bookmaker")
# Checks of arguments and compiled inner loops, which nobody calls from outside.
_INTERNAL = re.compile(r"\.(\w*inputs|kernels|checks|_\w+|__main__)(\.|$)")
_CITED = re.compile(r"\[([a-z]+\d{4}[a-z][^\]]*)\]")
_EXAMPLE = re.compile(r"((?:^ *>>>.*\n(?:(?! *$).*\n?)*)+)", re.MULTILINE)
_KEY = re.compile(r"\b[a-z]{2,}\d{4}[a-z]+\b")


@cache
def modules(source: Path, room: str) -> dict[str, tuple[str, list[str]]]:
    """Return what each file of a room (`hopfield`, `bookmaker.sweeps`) is for and defines."""
    top = source / (room if room.startswith(PACKAGES) else f"spinformer.{room}").replace(".", "/")
    found = {}
    for path in sorted(top.rglob("*.py")) or [top.with_suffix(".py")]:
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text("utf-8"))
        defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        names = [last for last in defined if not last.startswith("_")]
        task = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
        if names and not _INTERNAL.search(name):
            found[name] = task.replace("|", r"\|"), names
    return found


@cache
def used(root: Path) -> dict[str, list[str]]:
    """Return for each chapter the full names that its code imports of the package."""
    found = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        # Lines that install something are no Python.
        tree = ast.parse(re.sub(r"(?m)^(\s*)%.*", r"\1pass", code))
        found[path.stem] = [
            f"{node.module}.{alias.name}"
            for node in tree.body
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
        table, entries = ["| to | use |", "| --- | --- |"], []
        for room in self.arguments:
            for name, (task, names) in modules(Path(self.env.srcdir) / "src", room).items():
                short = name.removeprefix("spinformer.")
                links = ", ".join(f"{{py:obj}}`~{name}.{last}`" for last in names)
                if "index" in self.options:
                    links = f"`{short}`: " + ", ".join(f"`{last}`" for last in names)
                table.append(f"| {task} | {links} |")
                entries += [f"## {short}", "", "```{eval-rst}", f".. automodule:: {name}", "```"]
        lines = table if "index" in self.options else [*table, "", *entries]
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
    root, name = Path(app.srcdir), docname.removeprefix("notebooks/")
    if name == docname:
        return
    if not hasattr(app, "claim_rows"):
        app.claim_rows = read_rows(root)
    rooms: dict[str, list[str]] = {}
    for full in used(root)[name]:
        rooms.setdefault(full.rpartition(".")[0], []).append(f"{{py:obj}}`~{full}`")
    lines = [f"* {{py:obj}}`{room}`: {', '.join(links)}" for room, links in sorted(rooms.items())]
    text = chapter_claims_markdown(app.claim_rows, name)
    text += "\n".join(["", "## Functions used here", "", *lines, ""])
    notebook = json.loads(source[0])
    notebook["cells"].append(nbformat.v4.new_markdown_cell(text, id="lists"))
    source[0] = json.dumps(notebook)


def setup_reference(app: Sphinx) -> None:
    """Register directive and hooks."""
    app.add_directive("reference", ReferenceOf)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("missing-reference", no_link)
    app.connect("source-read", append_lists)
