"""What surrounds the text of a page: its card elsewhere, its foot."""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from bookmaker.project import published_address

# What the numbers of the book depend on most.
_LIBRARIES = ("numpy", "scipy", "torch", "numba", "scikit-learn", "matplotlib")
_LONGEST = 200


def foot(root: Path) -> str:
    """Return what stands at the foot of every page: version, and what the chapters ran with."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = project.get("project", {}).get("version", "")
    pins = root / "constraints.txt"
    if not version or not pins.is_file():
        return ""
    lines = pins.read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    found = ", ".join(f"{name} {pinned[name]}" for name in _LIBRARIES if name in pinned)
    return f"Version {version}. Executed with {found}; all versions are in constraints.txt."


def set_foot(app: Sphinx, config: Any) -> None:
    """Give the theme the foot of the pages."""
    text = foot(Path(app.srcdir))
    if text:
        config.html_theme_options["extra_footer"] = f"<p>{escape(text)}</p>"


def drop_role(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Take back a role that docutils gives the bibliography.

    What is called a list must have items; the entries of a bibliography are something else.
    """
    if "body" in context:
        context["body"] = context["body"].replace('<div role="list" class="cit', '<div class="cit')


def add_card(
    app: Sphinx,
    pagename: str,
    _template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Say in a page's head what a link to it shows elsewhere: title, a sentence, a picture."""
    if doctree is None:
        return
    text = _summary(doctree)
    title = re.sub(r"<[^>]+>", "", context.get("title", "")) or app.config.html_title
    card = {
        "og:title": title,
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:description": text,
        "og:locale": "en_US",
    }
    address = published_address(Path(app.srcdir))
    if address.startswith("https://github.com/"):
        # A picture needs a whole address; where the pages lie nobody knows, where the files do.
        raw = address.replace("https://github.com/", "https://raw.githubusercontent.com/")
        card["og:image"] = f"{raw}/main/book/_static/welcome/card.png"
        card["og:image:alt"] = "A pattern of four that repeats, a smooth wave, and a jumble."
    # Titles come escaped.
    tags = [f'<meta property="{name}" content="{_quoted(value)}">' for name, value in card.items()]
    tags.append(f'<meta name="description" content="{_quoted(text)}">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def _quoted(text: str) -> str:
    return text.replace('"', "&quot;")


def _summary(doctree: nodes.document) -> str:
    """Return the first sentences of a page, those of its box if it begins with one."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) > 40:
            shown = text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0] + " …"
            return escape(shown)
    return ""


def setup_look(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("config-inited", set_foot, priority=901)
    app.connect("html-page-context", drop_role)
    app.connect("html-page-context", add_card)
