"""From a chapter's MyST source to its notebook, and whether a committed notebook is stale."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import jupytext
import nbformat

from spinformer.chapters.parameters import Parameter, read_parameters
from spinformer.chapters.project import project_root

PACKAGE = Path(__file__).resolve().parents[1]

_EQUATION_LINK = re.compile(r"\[\]\(#(eq-[\w-]+)\)")

# Runs before anything of the package: on Colab the notebook is all there is.
_INSTALL = """\
import importlib.util
import os

repository = os.environ.get("SPINFORMER_REPOSITORY", "{address}")
if importlib.util.find_spec("spinformer") is None:
    if not repository:
        raise ModuleNotFoundError("spinformer is missing: run `pip install .` in its checkout")
    %pip install --quiet "git+{{repository}}\""""


class ChapterError(ValueError):
    """A chapter that does not exist or whose files do not fit together."""


@dataclass(frozen=True)
class Chapter:
    """One chapter: `notebooks/<name>.md` and the notebook generated from it."""

    root: Path
    name: str

    @property
    def source_path(self) -> Path:
        """The MyST file a person edits."""
        return self.root / "notebooks" / f"{self.name}.md"

    @property
    def notebook_path(self) -> Path:
        """The generated, executed and committed notebook."""
        return self.root / "notebooks" / f"{self.name}.ipynb"

    @cached_property
    def template(self) -> nbformat.NotebookNode:
        """The notebook of the source, without outputs and without a public address."""
        return convert(self.source_path.read_text(encoding="utf-8"))

    @cached_property
    def parameters(self) -> list[Parameter]:
        """What papermill can change in this chapter."""
        return read_parameters(self.template)

    @property
    def title(self) -> str:
        """The first heading of the source."""
        lines = self.template.cells[0].source.splitlines()
        return lines[0].removeprefix("#").strip()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source and of every module of the package it imports, in order."""
        code = "\n".join(
            cell.source
            for cell in self.template.cells
            if cell.cell_type == "code" and "install" not in cell.metadata.get("tags", [])
        )
        sha = hashlib.sha256(self.source_path.read_bytes())
        for path in imported_files(code):
            sha.update(path.relative_to(PACKAGE).as_posix().encode())
            sha.update(path.read_bytes())
        return sha.hexdigest()

    def stale(self) -> str:
        """Return why the committed notebook must be regenerated, "" if it is up to date."""
        if not self.notebook_path.exists():
            return "there is no notebook yet"
        notebook = nbformat.read(self.notebook_path, as_version=4)
        if notebook.metadata.get("spinformer", {}).get("digest") != self.digest:
            return "its source or the package changed"
        if cell_sources(notebook) != cell_sources(self.template):
            return "its cells differ from the source"
        return ""


def chapters(root: Path | None = None, names: tuple[str, ...] = ()) -> list[Chapter]:
    """Return the chapters of the checkout in order, or those of `names`.

    Raises ChapterError for a name that is not one of them.
    """
    folder = root or project_root()
    known = {path.stem: Chapter(folder, path.stem) for path in folder.glob("notebooks/[0-9]*.md")}
    for name in names:
        if name not in known:
            raise ChapterError(f"no chapter named {name!r}; there are: {', '.join(sorted(known))}")
    return [known[name] for name in names] if names else [known[name] for name in sorted(known)]


def convert(text: str) -> nbformat.NotebookNode:
    """Return the notebook of a MyST source: ids by position, the install cell filled in."""
    notebook = jupytext.reads(text, fmt="md:myst")
    for position, cell in enumerate(notebook.cells):
        cell.id = f"cell-{position:03d}"
        if "install" in cell.metadata.get("tags", []):
            cell.source = install_source("")
        if cell.cell_type == "markdown":
            # The book shows the equation's number; Jupyter and Colab show the label, which
            # they also print beside the equation.
            cell.source = _EQUATION_LINK.sub(r"[(\1)](#\1)", cell.source)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return notebook


def install_source(address: str) -> str:
    """Return the code of the install cell for a repository at `address` ("" for none)."""
    return _INSTALL.format(address=address)


def stamp(notebook: nbformat.NotebookNode, address: str) -> None:
    """Write the public `address` of the repository into the install cell, in place."""
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", []):
            cell.source = install_source(address)


def cell_sources(notebook: nbformat.NotebookNode) -> list[tuple[str, str, str]]:
    """Return (type, id, source) of every cell, the public address left out."""
    plain = nbformat.from_dict(notebook)
    stamp(plain, "")
    return [(cell.cell_type, cell.id, cell.source) for cell in plain.cells]


def imported_files(code: str) -> list[Path]:
    """Return the files of the package that `code` imports, directly or through one another."""
    found: set[Path] = set()
    waiting = list(_targets(_without_magics(code)))
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_file_targets(path))
    return sorted(found)


def _without_magics(code: str) -> str:
    return "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("%"))


@cache
def _file_targets(path: Path) -> tuple[Path, ...]:
    if path.suffix != ".py":
        return ()
    # Data files beside a module (a text, say) are part of what it computes with.
    beside = [p for p in path.parent.glob("*.*") if path.name == "__init__.py" and _is_data(p)]
    return (*_targets(path.read_text(encoding="utf-8")), *beside)


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".py", ".pyc")


def _targets(code: str) -> tuple[Path, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(path for name in names for path in _module_files(name))


def _module_files(name: str) -> list[Path]:
    package, *parts = name.split(".")
    if package != PACKAGE.name:
        return []
    # Importing a module runs the __init__ of every package above it.
    folders = [PACKAGE.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    files = [folder / "__init__.py" for folder in folders]
    files.append(PACKAGE.joinpath(*parts).with_suffix(".py"))
    return [path for path in files if path.is_file()]
