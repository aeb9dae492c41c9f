"""Sphinx extension of the book: launch links where there is a public address, and its parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from pybtex import plugin
from site_cards import setup_cards
from site_claims import setup_claims
from site_code import setup_code
from site_drawings import setup_drawings
from site_figures import setup_figures
from site_look import setup_look
from site_numbers import setup_numbers
from site_reference import setup_reference
from site_terms import setup_terms
from sphinx.application import Sphinx

from bookmaker.project import published_address

BRANCH = "main"


def configure_theme(app: Sphinx, config: Any) -> None:
    """Name the colour mode; turn on launch buttons if readers can reach the repository."""
    # The theme complains on the console when no mode is named; figures are drawn on white.
    config.html_context.setdefault("default_mode", "light")
    address = published_address(Path(app.srcdir))
    if not address:
        return
    config.html_theme_options.update(
        {
            "repository_url": address,
            "repository_branch": BRANCH,
            "use_repository_button": True,
            "launch_buttons": {
                "colab_url": "https://colab.research.google.com",
                "binderhub_url": "https://mybinder.org",
            },
        }
    )


def add_colab_badge(
    app: Sphinx, pagename: str, _template: str, context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Put a link to Colab above each chapter if readers can reach the repository."""
    address = published_address(Path(app.srcdir))
    if not pagename.startswith("notebooks/") or not address.startswith("https://github.com/"):
        return
    path = address.removeprefix("https://github.com/")
    link = f"https://colab.research.google.com/github/{path}/blob/{BRANCH}/{pagename}.ipynb"
    badge = context["pathto"]("_static/colab-badge.svg", 1)
    context["body"] = (
        f'<p class="colab"><a href="{link}"><img src="{badge}" alt="Open in Colab"></a></p>'
        + context["body"]
    )


def drop_repeated_scripts(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Keep one of each script, and none of Thebe, which needs a network and is not used.

    The theme's extensions register theirs anew for every page; declaring a constant twice is
    an error on the browser's console.
    """
    kept: dict[tuple[str, str], Any] = {}
    for script in context["script_files"]:
        body = getattr(script, "attributes", {}).get("body") or ""
        name = str(getattr(script, "filename", None) or "")
        if "thebe" not in (name + body).lower():
            kept.setdefault((name, body), script)
    context["script_files"] = list(kept.values())
    context["css_files"] = [s for s in context["css_files"] if "thebe" not in str(s.filename)]


def remember_plugins() -> None:
    """Look up the plugins that format citations once, not anew for every citation.

    Each look-up reads the metadata of all installed packages: a third of the time of a build.
    """
    # Not a public name: a version without it is slower, no more.
    if hasattr(plugin, "_load_entry_point"):
        plugin._load_entry_point = cache(plugin._load_entry_point)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what the parts of the book need."""
    remember_plugins()
    setup_cards(app)
    setup_claims(app)
    setup_code(app)
    setup_drawings(app)
    setup_figures(app)
    setup_look(app)
    setup_numbers(app)
    setup_reference(app)
    setup_terms(app)
    app.connect("config-inited", configure_theme, priority=900)
    app.connect("html-page-context", add_colab_badge)
    app.connect("html-page-context", drop_repeated_scripts, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
