"""Pages of the package's reference, and what a chapter ends with: its claims, its functions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList
from sphinx.addnodes import desc_signature, pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import nested_parse_with_titles

from bookmaker.claims_page import chapter_claims_markdown, read_rows
from bookmaker.reference import Reference, Uses

CHAPTERS = "notebooks/"
PAGES = "book/reference/"
# Rooms that have no entry for every class.
ELSEWHERE = ("compendium.", "spinformer.plot.", "bookmaker.")


def uses(app: Sphinx) -> Uses:
    """Return what the chapters use, read once for each build."""
    if not hasattr(app, "uses"):
        root = Path(app.srcdir)
        paths = sorted((root / "notebooks").glob("*.ipynb"))
        code = {path.stem: _code(path) for path in paths}
        app.uses = Uses(Reference(root / "src"), code)
    return app.uses


def _code(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    chosen = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    # Cells that install something are no Python.
    return "\n".join(text for text in chosen if not re.search(r"^\s*[%!]", text, re.MULTILINE))


class ReferenceOf(Directive):
    """Entries of the rooms named, in full or, with `:index:`, a line each."""

    required_arguments = 1
    optional_arguments = 20
    option_spec = {"index": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return the parsed entries."""
        known = uses(self.state.document.settings.env.app)
        users = known.by_function
        if "index" in self.options:
            pages = [known.reference.index(room, users=users) for room in self.arguments]
            text = "\n".join(pages)
        else:
            text = known.reference.page(self.arguments, users=users)
        container = nodes.Element()
        nested_parse_with_titles(
            self.state, StringList(text.splitlines(), source="reference"), container
        )
        return container.children


def settle_types(app: Sphinx, doctree: nodes.document) -> None:
    """Let the types in signatures lead to the classes of the package, and others nowhere.

    Sphinx would look through all names for each of them.
    """
    if not app.env.docname.startswith(PAGES):
        return
    reference = uses(app).reference
    for signature in doctree.findall(desc_signature):
        near = (signature.get("ids") or [""])[0]
        for link in list(signature.findall(pending_xref)):
            name = reference.named(link["reftarget"].rpartition(".")[2], near=near)
            if name and not name.startswith(ELSEWHERE):
                link["reftarget"] = name
                link["refspecific"] = False
            else:
                link.replace_self(link.children)


def append_lists(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append to a chapter's notebook, as it is read, the claims it settles and what it uses."""
    root = Path(app.srcdir)
    if not docname.startswith(CHAPTERS) or not (root / "book" / "claims.yml").is_file():
        return
    if not hasattr(app, "claim_rows"):
        app.claim_rows = read_rows(root)
    name = docname.removeprefix(CHAPTERS)
    claims = chapter_claims_markdown(app.claim_rows, name)
    functions = uses(app).chapter_markdown(name) if (root / "src").is_dir() else ""
    if claims or functions:
        notebook = json.loads(source[0])
        text = f"{claims}\n{functions}"
        notebook["cells"].append(nbformat.v4.new_markdown_cell(text, id="lists"))
        source[0] = json.dumps(notebook)


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make names of the package, where they stand as code in the text, links to their entries."""
    if not hasattr(app, "known_names"):
        app.known_names = app.env.domaindata["py"]["objects"]
    objects = app.known_names
    module = ""
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.literal | nodes.section))):
        if isinstance(node, nodes.section):
            title = node[0].astext() if node.children else ""
            module = f"spinformer.{title}" if docname.startswith(PAGES) else ""
            continue
        if isinstance(node.parent, nodes.reference) or node.get("classes") == ["xref"]:
            continue
        name = node.astext().removesuffix("()")
        entry = objects.get(name) or (objects.get(f"{module}.{name}") if module else None)
        if entry is not None and not _within_entry(node, entry.node_id):
            link = nodes.reference("", "", node.deepcopy(), internal=True)
            page = app.builder.get_relative_uri(docname, entry.docname)
            link["refuri"] = f"{page}#{entry.node_id}"
            node.replace_self(link)


def _within_entry(node: nodes.Node, anchor: str) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.reference) or anchor in node.get("ids", []):
            return True
    return False


def setup_reference(app: Sphinx) -> None:
    """Register directive and hooks."""
    app.add_directive("reference", ReferenceOf)
    app.connect("source-read", append_lists)
    app.connect("doctree-read", settle_types, priority=100)
    app.connect("doctree-resolved", link_names)
