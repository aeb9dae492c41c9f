"""What a page says where it is shared or read without scripts.

A description, the title and a picture for those who show links to it, its address if the book has
one, and every formula as MathML beside its TeX, which only scripts set.
"""

import html
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import resvg_py
from docutils import nodes
from latex2mathml.converter import convert
from site_pages import picture
from sphinx.application import Sphinx

from bookmaker.base import pages_address
from bookmaker.places import read_place
from bookmaker.source import Chapter

# What those who show a link have room for.
_LENGTH = 300
_WIDTH = 1200
_HEIGHT = 630
_MARGIN = 60
_TITLE_SIZE = 46
# Sizes of brackets, which MathML finds itself.
_SIZES = re.compile(r"\\[Bb]igg?[lrm]?(?=[\\(\[|/.)\]])")
_SVG = re.compile(r"<svg\b[^>]*>")
_VIEW = re.compile(r'viewBox="([^"]*)"')
# The picture of a page that shows none of its own.
_COVER = (
    "book/_static/welcome/memory.svg",
    "A query descends in the energy landscape of attention",
)
_HIDDEN = "<noscript><style>.tex{display:none}</style></noscript>"


def mathml(tex: str, display: str = "inline") -> str:
    r"""Return a formula as MathML.

    >>> "<mi>&#x003B2;</mi>" in mathml(r"\beta")
    True
    """
    return str(convert(_SIZES.sub("", tex), display=display))


def words_of(node: nodes.Node) -> str:
    """Return the text of a node, with the letters of its formulas."""
    if isinstance(node, nodes.math | nodes.math_block):
        return html.unescape(re.sub("<[^>]*>", "", mathml(node.astext())))
    if isinstance(node, nodes.Text):
        return node.astext()
    return "".join(words_of(child) for child in node.children)


def description(doctree: nodes.document) -> str:
    """Return the sentences of a chapter's summary, or of a page's first paragraph, that fit."""
    boxes = doctree.findall(nodes.admonition)
    summary = (b for b in boxes if isinstance(b[0], nodes.title) and b[0].astext() == "Summary")
    place = next(summary, doctree)
    paragraph = next(place.findall(nodes.paragraph), None)
    text = " ".join(words_of(paragraph).split()) if paragraph is not None else ""
    shown = ""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z])", text):
        if shown and len(shown) + len(sentence) > _LENGTH:
            break
        shown = f"{shown} {sentence}".strip()
    return shown


def card_picture(title: str, drawing: str) -> bytes:
    """Return a picture (PNG) of a title above a drawing (SVG), in the size of a shared link."""
    lines = wrap(title, width=44)[:3]
    top = _MARGIN + len(lines) * _TITLE_SIZE * 1.25
    words = "".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + (number + 0.75) * _TITLE_SIZE * 1.25:.0f}">'
        f"{html.escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    drawing = drawing[drawing.index("<svg") :]
    head = _SVG.search(drawing)
    view = _VIEW.search(head[0]) if head else None
    if not head or not view:
        raise ValueError("a drawing needs a viewBox to be put into a picture")
    place = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'font-family="DejaVu Sans" viewBox="{view[1]}" x="{_MARGIN}" y="{top + 20:.0f}" '
        f'width="{_WIDTH - 2 * _MARGIN}" height="{_HEIGHT - top - 20 - _MARGIN / 2:.0f}">'
    )
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<g font-family="DejaVu Sans" font-size="{_TITLE_SIZE}" fill="#222">{words}</g>'
        f"{place}{drawing[head.end() :]}</svg>"
    )
    fonts = Path(matplotlib.get_data_path(), "fonts", "ttf")
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=whole,
            background="#ffffff",
            skip_system_fonts=True,
            font_dirs=[str(fonts)],
            font_family="DejaVu Sans",
            sans_serif_family="DejaVu Sans",
        )
    )


def drawing_of(app: Sphinx, page: str) -> tuple[str, str]:
    """Return the drawing that stands for a page (SVG), and what it shows in words."""
    root = Path(app.srcdir)
    folder, _, name = page.rpartition("/")
    if folder == "notebooks" and (figure := read_place(Chapter(root, name)).figure):
        app.env.temp_data["docname"] = page
        shown = picture(app.env, name, figure)
        path = Path(app.srcdir, "notebooks", shown["uri"])
        return path.read_text(encoding="utf-8"), shown["alt"]
    return Path(root, _COVER[0]).read_text(encoding="utf-8"), _COVER[1]


def describe(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put into the head of a page what is said of it where it is shared."""
    context["metatags"] = context.get("metatags", "") + _HIDDEN
    if doctree is None:
        return
    title = re.sub("<[^>]*>", "", context["title"])
    context["metatags"] += "\n".join(shared_tags(app, page, html.unescape(title), doctree))


def shared_tags(app: Sphinx, page: str, title: str, doctree: nodes.document) -> list[str]:
    """Return the tags; with a picture and an address if the book has one."""
    told = description(doctree)
    said = {"description": told, "twitter:card": "summary"}
    shown = {
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:title": title,
        "og:description": told,
    }
    if address := pages_address(Path(app.srcdir)):
        drawing, alt = drawing_of(app, page)
        file = f"_images/shared-{page.replace('/', '-')}.png"
        path = Path(app.outdir, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(card_picture(title, drawing))
        shown |= {
            "og:url": f"{address}{app.builder.get_target_uri(page)}",
            "og:image": f"{address}{file}",
            "og:image:width": str(_WIDTH),
            "og:image:height": str(_HEIGHT),
            "og:image:alt": alt,
        }
        said["twitter:card"] = "summary_large_image"
    return [
        f'<meta {kind}="{name}" content="{html.escape(text)}">'
        for kind, tags in (("name", said), ("property", shown))
        for name, text in tags.items()
        if text
    ]


def write_index(app: Sphinx, exception: Exception | None) -> None:
    """Write the page that leads to the front page, with a title and with what is said of it."""
    if exception or app.builder.format != "html":
        return
    first = app.config.root_doc
    if first == "index":
        return
    doctree = app.env.get_doctree(first)
    target = app.builder.get_target_uri(first)
    project = html.escape(app.config.html_title)
    address = pages_address(Path(app.srcdir))
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{project}</title>",
        f'<meta http-equiv="Refresh" content="0; url={target}">',
        f'<link rel="canonical" href="{address}{target}">' if address else "",
        *shared_tags(app, first, app.config.html_title, doctree),
        f'</head><body><p><a href="{target}">{project}</a></p></body></html>',
    ]
    Path(app.outdir, "index.html").write_text("\n".join(filter(None, lines)), encoding="utf-8")


def with_mathml(render: Callable[..., None], display: str) -> Callable[..., None]:
    """Return what writes a formula as `render` does, and as MathML for pages without scripts."""

    def write(self: Any, node: nodes.Element) -> None:
        try:
            render(self, node)
        except nodes.SkipNode:
            self.body.append(f"<noscript>{mathml(node.astext(), display)}</noscript>")
            raise

    return write


def set_formulas(app: Sphinx) -> None:
    """Let the writer of formulas for MathJax write MathML, too."""
    for known, display in (
        (app.registry.html_inline_math_renderers, "inline"),
        (app.registry.html_block_math_renderers, "block"),
    ):
        visit, depart = known["mathjax"]
        known["mathjax"] = (with_mathml(visit, display), depart)


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("builder-inited", set_formulas)
    app.connect("html-page-context", describe, priority=600)
    # Before the one that would write a page without anything to say.
    app.connect("build-finished", write_index, priority=100)
