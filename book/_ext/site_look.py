"""What surrounds the text of a page: its card elsewhere, its foot."""

from __future__ import annotations

import re
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# What the numbers of the book depend on most.
_LIBRARIES = ("numpy", "scipy", "torch", "numba", "scikit-learn", "matplotlib")


def set_foot(app: Sphinx, config: Any) -> None:
    """Say at the foot of every page what the chapters ran with."""
    pins = Path(app.srcdir, "constraints.txt")
    if pins.is_file():
        pinned = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", pins.read_text(encoding="utf-8")))
        found = ", ".join(f"{name} {pinned[name]}" for name in _LIBRARIES)
        config.html_theme_options["extra_footer"] = (
            f"<p>Version {version('spinformer')}. Executed with {found}; all versions are in "
            "constraints.txt.</p>"
        )


def add_card(
    app: Sphinx, _page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Say in a page's head what a link to it shows elsewhere: a title and its first words."""
    # What docutils calls a list must have items; the entries of a bibliography are something else.
    context["body"] = context.get("body", "").replace(
        '<div role="list" class="cit', '<div class="cit'
    )
    if doctree is not None:
        told = (" ".join(part.astext().split()) for part in doctree.findall(nodes.paragraph))
        text = next((text for text in told if len(text) > 40), "")
        shown = text if len(text) <= 200 else text[:200].rpartition(" ")[0] + " …"
        title = re.sub(r"<[^>]+>", "", context.get("title", "")) or escape(app.config.html_title)
        card = {"title": title, "type": "article", "description": escape(shown)}
        context["metatags"] = context.get("metatags", "") + "\n".join(
            f'<meta property="og:{name}" content="{value}">' for name, value in card.items()
        )
        context["metatags"] += f'<meta name="description" content="{card["description"]}">'


def setup_look(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("config-inited", set_foot, priority=901)
    app.connect("html-page-context", add_card)
