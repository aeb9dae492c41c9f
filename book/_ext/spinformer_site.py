"""Sphinx extension of the book: launch links where there is a public address, and its parts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pybtex import plugin
from site_drawings import setup_drawings
from site_numbers import setup_numbers
from site_pages import setup_pages
from site_reference import setup_reference
from site_terms import setup_terms
from sphinx.application import Sphinx

from bookmaker.project import published_address


def configure_theme(app: Sphinx, config: Any) -> None:
    """Name the colour mode; turn on launch buttons if readers can reach the repository."""
    # The theme complains on the console when no mode is named; figures are drawn on white.
    config.html_context.setdefault("default_mode", "light")
    if address := published_address(Path(app.srcdir)):
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "main",
            "use_repository_button": True,
            "launch_buttons": {
                "colab_url": "https://colab.research.google.com",
                "binderhub_url": "https://mybinder.org",
            },
        }


def tidy(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Keep one of each script, and none of Thebe, which needs a network and is not used.

    The theme's extensions register theirs anew for every page; declaring a constant twice is
    an error on the browser's console.
    """
    kept: dict[str, Any] = {}
    for script in context["script_files"]:
        body = getattr(script, "attributes", {}).get("body") or ""
        name = f"{getattr(script, 'filename', None) or ''} {body}"
        if "thebe" not in name.lower():
            kept.setdefault(name, script)
    context["script_files"] = list(kept.values())
    # What docutils calls a list must have items; the entries of a bibliography are something else.
    context["body"] = context.get("body", "").replace(
        '<div role="list" class="cit', '<div class="cit'
    )
    context["css_files"] = [s for s in context["css_files"] if "thebe" not in str(s.filename)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what the parts of the book need."""
    # Each look-up of a plugin that formats citations reads the metadata of all installed packages:
    # a third of the time of a build.
    plugin._load_entry_point = cache(plugin._load_entry_point)
    for part in (
        setup_drawings,
        setup_numbers,
        setup_pages,
        setup_reference,
        setup_terms,
    ):
        part(app)
    app.connect("config-inited", configure_theme, priority=900)
    app.connect("html-page-context", tidy, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
