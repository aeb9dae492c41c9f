"""Live figures on any page: the place, what stands there without scripts, and its scripts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SHARED = ("uPlot.iife.min.js", "data.js", "frame.js")
# Mathematics that another figure brings along.
NEEDS = {"module": ("spins.math.js",)}


class Explorable(SphinxDirective):
    """`{explorable} NAME`: a live figure; the content is what is seen where scripts are off.

    `{explorable} NAME small` leaves out what is beside its main panel.
    """

    required_arguments = 1
    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The content in a place that the figure's script finds and fills."""
        name = self.arguments[0]
        self.env.metadata[self.env.docname].setdefault("explorables", []).append(name)
        # A heading of the same name is the anchor, if the page has one.
        anchor = "" if name in self.state.document.ids else f' id="{name}"'
        small = " data-small" if "small" in self.arguments else ""
        before = f'<div{anchor} data-explorable="{name}"{small}>'
        content = self.parse_content_to_nodes()
        begin, end = (nodes.raw("", text, format="html") for text in (before, "</div>"))
        return [begin, *content, end]


def add_scripts(app: Sphinx, pagename: str, *_: Any) -> None:
    """Give a page the scripts of its live figures, and no other page any."""
    names = app.env.metadata.get(pagename, {}).get("explorables", [])
    files = [f for n in names for f in (*NEEDS.get(n, ()), f"{n}.math.js", f"{n}.draw.js")]
    for file in dict.fromkeys([*SHARED, *files] if names else []):
        # One after the other, once the page is there.
        app.add_js_file(f"explorables/{file}", loading_method="defer")
    for style in ("uPlot.min.css", "explorables.css") if names else ():
        app.add_css_file(f"explorables/{style}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its hook."""
    app.add_directive("explorable", Explorable)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
