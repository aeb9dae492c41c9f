"""What pages show of the claims, the chapters and the package: a template for each directive.

`templates/NAME.j2` says in MyST, with Jinja, what the directive `{NAME}` becomes; what stands at
the end of every chapter is one of them, too.
"""

import ast
import json
import os
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.util.template import FileRenderer

from bookmaker.base import contents
from bookmaker.claims import DOCUMENTS, TABLES, VERDICTS, read_rows, settings_words
from bookmaker.figures import FIGURES
from bookmaker.numbers import page_text
from bookmaker.pictures import figure_file, panel_of
from bookmaker.places import all_places, read_place, statements
from bookmaker.source import Chapter, cell_tree, code_cells, read_notebook
from bookmaker.tables import read_columns
from compendium.common.settings import show_settings
from spinformer.plot.style import use_style
from spinformer.plot.vector import figure_svg

PACKAGES = ("spinformer", "compendium", "bookmaker")
# Checks of arguments and compiled inner loops, which nobody calls from outside.
_INTERNAL = re.compile(r"\.(\w*inputs|\w*kernels|checks|_\w+|__main__)(\.|$)")
_CHAPTER = re.compile(r"\{chapter\}`(\w+)`")
# A source as docstrings name it.
_SOURCE = re.compile(r"\[([a-z]+\d{4}[a-z]\w*)\]")
# What a reader may change is always seen; what is not shown at all need not be folded.
_OPEN = {
    "standalone",
    "show-input",
    "parameters",
    "injected-parameters",
    "remove-cell",
    "remove-input",
}
# Scripts of live figures, and mathematics that another figure brings along.
_SHARED = ("uPlot.iife.min.js", "data.js", "frame.js")
_NEEDS = {"module": ("spins.math.js",)}

_TEMPLATES = FileRenderer(str(Path(__file__).with_name("templates")))
_TEMPLATES.env.trim_blocks = _TEMPLATES.env.lstrip_blocks = True
_ROWS = cache(read_rows)
_PLACES = cache(all_places)


class FromTemplate(SphinxDirective):
    """What the template of the directive's name makes of its arguments and its content."""

    optional_arguments = 30
    has_content = True
    option_spec = {"index": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        context = {name: getattr(self, name) for name in ("arguments", "options", "content")}
        text = rendered(self.env, self.name, anchors=self.state.document.ids, **context)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def rendered(env: BuildEnvironment, name: str, **context: Any) -> str:
    """Return the text that a template gives; with what it is `given`, all of them know the book."""
    root = Path(env.srcdir)
    book = {
        "rows": _ROWS(root),
        "verdicts": VERDICTS,
        "documents": DOCUMENTS,
        "anchor": anchor_of_test,
        "words": lambda test: test.partition("::test_")[2].replace("_", " "),
        "settings_words": lambda row: settings_words(root, row),
        "surprises": lambda names: [named_row(root, name) for name in names],
        "drawn_settings": partial(drawn_settings, env),
        "picture": partial(picture, env),
        "card": partial(card, env),
        "places": _PLACES(root),
        "chapters_below": [
            (caption, [Path(file).name for file in files if file.startswith("notebooks/")])
            for caption, files in contents(root)
        ],
        "modules": lambda rooms: [m for room in rooms for m in modules(root / "src", room)],
    }
    return _TEMPLATES.render(f"{name}.j2", book | context)


def named_row(root: Path, name: str) -> dict[str, Any]:
    """Return the row of the claims with this id; ExtensionError if there is none."""
    for row in _ROWS(root):
        if row["id"] == name.strip():
            return row
    raise ExtensionError(f"book/claims.md shows the claim {name}, but there is no such row")


def anchor_of_test(test: str) -> str:
    """Return the anchor of a test on the page of tests.

    >>> anchor_of_test("tests/test_dmft_onset.py::test_the_onset")
    'test-dmft-onset-test-the-onset'
    """
    file, _, name = test.partition("::")
    return f"{Path(file).stem}-{name}".replace("_", "-")


def offered(env: BuildEnvironment, name: str, drawing: bytes) -> str:
    """Write a picture for Sphinx to copy; return where, as seen from the present page."""
    path = Path(env.doctreedir).parent / "figures" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawing)
    return Path(os.path.relpath(path, Path(env.srcdir, env.docname).parent)).as_posix()


def drawn_settings(env: BuildEnvironment, name: str) -> str:
    """Draw a table of settings, below `src/compendium`; return where the picture is."""
    table = Path(env.srcdir, TABLES, name)
    with plt.rc_context():
        use_style()
        figure = show_settings(read_columns(table), value="for (+), against (−)")
        drawn = figure_svg(figure).encode()
        plt.close(figure)
    return offered(env, f"{table.parent.name}-{table.stem}.svg", drawn)


def picture(
    env: BuildEnvironment, chapter: str, name: str, *, panel: int | None = None
) -> dict[str, str]:
    """Return where a chapter's figure is for Sphinx to copy, its caption and its other words.

    With a `panel`, counted from the left, only that one of the figure.
    """
    notebook = read_notebook(Path(env.srcdir, "notebooks", f"{chapter}.ipynb"))
    settings_of_cells = [cell.metadata.get("mystnb", {}) for cell in notebook.cells]
    by_name = {
        settings["figure"]["name"]: settings
        for settings in settings_of_cells
        if "figure" in settings
    }
    drawing = figure_file(notebook, name)
    file = f"{name}.svg"
    if panel is not None:
        drawing = panel_of(drawing.decode(), panel).encode()
        file = f"{name}-{panel}.svg"
    return {
        "uri": offered(env, file, drawing),
        "caption": " ".join(by_name[name]["figure"]["caption"].split()),
        "alt": " ".join(by_name[name]["image"]["alt"].split()),
    }


def card(env: BuildEnvironment, name: str) -> dict[str, str]:
    """Return what a card shows: title, a sentence of the summary, a panel of the figure if any."""
    chapter = Chapter(Path(env.srcdir), name)
    place = read_place(chapter)
    sentence = statements(chapter.shown_text)[place.sentence - 1]
    # Chapters link to each other within their folder.
    answer = re.sub(r"\]\((\w+)\.md\)", r"](../notebooks/\1.md)", sentence)
    drawn = picture(env, name, place.figure, panel=place.panel) if place.figure else {}
    return {"title": chapter.title, "answer": answer} | drawn


@cache
def modules(source: Path, room: str) -> list[tuple[str, str, list[str]]]:
    """Return name, task and names of each file of a room (`hopfield`, `bookmaker.sweeps`)."""
    top = source / (room if room.startswith(PACKAGES) else f"spinformer.{room}").replace(".", "/")
    listed = []
    for path in sorted(top.rglob("*.py")) or [top.with_suffix(".py")]:
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text("utf-8"))
        defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        names = [last for last in defined if not last.startswith("_")]
        task = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
        if names and not _INTERNAL.search(name):
            task = _SOURCE.sub(r"({cite:t}`\1`)", task.replace("|", r"\|"))
            listed.append((name, task, names))
    return listed


@cache
def used(root: Path) -> dict[str, list[str]]:
    """Return for each chapter the full names that its code imports of the package."""
    imports = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        trees = [cell_tree(cell.source) for cell in code_cells(read_notebook(path))]
        imports[path.stem] = [
            f"{node.module}.{alias.name}"
            for tree in trees
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES)
            for alias in node.names
        ]
    return imports


def read_chapter(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fold the code of a notebook, as it is read, set what it prints, and append its lists.

    On other pages, {chapter}`12b` becomes a link to the chapter of that number, and numbers come
    from the notebooks (see `bookmaker.values`).
    """
    root = Path(app.srcdir)
    name = docname.removeprefix("notebooks/")
    if name == docname:

        def link(match: re.Match[str]) -> str:
            path = next(root.glob(f"notebooks/{match[1]}_*.ipynb"))
            return f"[chapter {match[1]}](/notebooks/{path.name})"

        text = page_text(root, f"{docname}.md", source[0])
        source[0] = _CHAPTER.sub(link, text)
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        if "outputs" in cell:
            # Figures of claims are for the tool, nothing to show.
            cell["outputs"] = [o for o in cell["outputs"] if set(o.get("data", "-")) != {FIGURES}]
        tags = cell["metadata"].setdefault("tags", [])
        if cell["cell_type"] == "code" and not _OPEN & set(tags):
            tags.append("hide-input")
    mine = [row for row in _ROWS(root) if name in row["chapters"]]
    names = [full.rpartition(".")[::2] for full in used(root)[name]]
    lists = rendered(app.env, "chapter", mine=mine, names=names)
    notebook["cells"].append(nbformat.v4.new_markdown_cell(lists, id="lists"))
    source[0] = json.dumps(notebook)


def add_scripts(app: Sphinx, pagename: str, _: str, context: dict[str, Any], *__: Any) -> None:
    """Give the claims their filter, a page the scripts of its live figures, and no other any."""
    names = re.findall(r'data-explorable="(\w+)"', context.get("body", ""))
    files = [f for n in names for f in (*_NEEDS.get(n, ()), f"{n}.math.js", f"{n}.draw.js")]
    scripts = [f"explorables/{file}" for file in [*_SHARED, *files] if names]
    for file in dict.fromkeys(["claims.js"] if pagename == "book/claims" else scripts):
        # One after the other, once the page is there.
        app.add_js_file(file, loading_method="defer")
    for style in ("uPlot.min.css", "explorables.css") if names else ():
        app.add_css_file(f"explorables/{style}")


def setup(app: Sphinx) -> None:
    """Register directives and hooks."""
    for template in Path(__file__).with_name("templates").glob("*.j2"):
        app.add_directive(template.stem, FromTemplate)
    app.connect("source-read", read_chapter)
    app.connect("html-page-context", add_scripts)
