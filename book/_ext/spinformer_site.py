"""Sphinx extension of the book: launch links where there is a public address."""

from functools import cache
from pathlib import Path
from typing import Any

from pybtex import plugin
from sphinx.application import Sphinx

from bookmaker.project import repository_address


def add_launch_links(app: Sphinx, config: Any) -> None:
    """Turn on launch buttons if readers can reach the repository."""
    if address := repository_address(Path(app.srcdir)):
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "main",
            "use_repository_button": True,
            "launch_buttons": {
                "colab_url": "https://colab.research.google.com",
                "binderhub_url": "https://mybinder.org",
            },
        }


def setup(app: Sphinx) -> None:
    """Register the hook."""
    # Each look-up of a plugin that formats citations reads the metadata of all installed packages:
    # a third of the time of a build.
    plugin._load_entry_point = cache(plugin._load_entry_point)
    app.connect("config-inited", add_launch_links, priority=900)
