"""Code of the chapters is folded on the pages, in the notebooks it stays open."""

from __future__ import annotations

import json

from site_printed import take_printed
from sphinx.application import Sphinx

from bookmaker.claims import DATA

# What a reader may change is always seen; what is not shown at all need not be folded.
_OPEN = {"parameters", "injected-parameters", "remove-cell", "remove-input"}


def fold_code(app: Sphinx, docname: str, source: list[str]) -> None:
    """Tag the code of a notebook, as it is read, so that its page opens it on demand."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    notebook = json.loads(source[0])
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if "outputs" in cell:
            # Figures of claims are for the tool, nothing to show.
            cell["outputs"] = [o for o in cell["outputs"] if set(o.get("data", "-")) != {DATA}]
            if html := take_printed(cell):
                name = f"{cell['id']}-printed"
                told = {"cell_type": "markdown", "id": name, "metadata": {}, "source": html}
                cells.append(told)
        tags = cell["metadata"].setdefault("tags", [])
        if cell["cell_type"] == "code" and not _OPEN & set(tags):
            tags.append("hide-input")
    notebook["cells"] = cells
    source[0] = json.dumps(notebook)


def setup_code(app: Sphinx) -> None:
    """Register the hook."""
    app.connect("source-read", fold_code)
