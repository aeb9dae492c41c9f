"""Runs a chapter's open cells as a reader would who copies them into an empty notebook.

A cell with the tag `standalone` uses the Python library, NumPy and torch and nothing else: no
parameter of the chapter, no other cell, nothing of this project.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import jupytext

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = {"numpy", "torch", "math", "itertools"}
LONGEST = 15  # lines
MOST = 3  # cells of a chapter


def sources(chapter: str) -> list[str]:
    """The standalone cells of a chapter, in its order."""
    notebook = jupytext.read(ROOT / "notebooks" / f"{chapter}.md")
    return [cell.source for cell in notebook.cells if "standalone" in cell.metadata.get("tags", [])]


def imported(source: str) -> set[str]:
    """The libraries that a cell imports, by their first name."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    return names


@cache
def run_open_cells(chapter: str) -> dict[str, Any]:
    """What the names of a chapter's standalone cells mean after all of them ran, in order."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(sources(chapter), 1):
        exec(compile(source, f"<open cell {number} of {chapter}>", "exec"), names)
    return names
