"""From a chapter's MyST source to its notebook; every fault names the file and the line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from jupytext.myst import myst_to_notebook

from bookmaker.errors import BookError, Fault, ParameterError, SourceError
from bookmaker.meaning import cell_tree, code_cells, code_digest, has_tag
from bookmaker.parameters import ParameterCell, parse_parameters
from bookmaker.project import project_root

_EQUATION_LINK = re.compile(r"\[\]\(#(eq-[\w-]+)\)")

# Runs before anything of the package: on Colab the notebook is all there is. A folder that is
# called like the package and lies beside the notebook has no origin.
_INSTALL = Path(__file__).with_name("install.txt").read_text(encoding="utf-8").rstrip()


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

    def fault(self, line: int, message: str) -> Fault:
        """Return a fault in a line of the source."""
        return Fault(f"notebooks/{self.name}.md", line, message)

    def at(self, cell: str, line: int, message: str) -> Fault:
        """Return a fault in a line of a cell, which is called by its id."""
        return self.fault(self._converted[1].get(cell, 1) + line - 1, message)

    @cached_property
    def text(self) -> str:
        """The source."""
        return self.source_path.read_text(encoding="utf-8")

    @property
    def template(self) -> nbformat.NotebookNode:
        """The notebook of the source, without outputs and without a public address.

        Raises SourceError for a source that cannot be converted.
        """
        return self._converted[0]

    @cached_property
    def _converted(self) -> tuple[nbformat.NotebookNode, dict[str, int]]:
        """The notebook, and for each cell the line of the source where its text begins."""
        try:
            notebook = myst_to_notebook(self.text, add_source_map=True)
        except Exception as error:
            # Each kind of damage has its own error in Python, jupytext, YAML and nbformat.
            words = " ".join(str(error).split())
            line = re.search(r"at line (\d+)", words)
            message = f"the file cannot be read: {words}"
            raise SourceError([self.fault(int(line[1]) if line else 1, message)]) from None
        lines = [line.strip() for line in self.text.split("\n")]
        begins = {}
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number:03d}"
            # Options of the cell stand before its text.
            begin, head = notebook.metadata.source_map[number], cell.source.split("\n")[0].strip()
            begins[cell.id] = (lines.index(head, begin) if head in lines[begin:] else begin) + 1
            if has_tag(cell, "install"):
                cell.source = install_source("")
            if cell.cell_type == "markdown":
                # The book shows the equation's number; Jupyter and Colab show the label, which
                # they also print beside the equation.
                cell.source = _EQUATION_LINK.sub(r"[(\1)](#\1)", cell.source)
        kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        notebook.metadata = nbformat.from_dict(metadata)
        notebook.nbformat, notebook.nbformat_minor = 4, 5
        return notebook, begins

    @cached_property
    def parameter_cell(self) -> ParameterCell:
        """What papermill can change in this chapter and what must fit together."""
        self.require_sound()
        return parse_parameters(self._tagged("parameters")[0].source)

    @property
    def title(self) -> str:
        """The first heading of the source."""
        return str(self.template.cells[0].source.splitlines()[0].removeprefix("#").strip())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the code means; see `meaning`."""
        return code_digest(self.template)

    def check_values(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Return `values` for the parameters, checked; ParameterError if they are not allowed."""
        try:
            return self.parameter_cell.check(values)
        except ParameterError as error:
            raise ParameterError(f"{self.name}: {error}") from None

    def faults(self) -> list[Fault]:
        """Return everything in the source that keeps the chapter from running as it should."""
        try:
            cells = self.template.cells
        except SourceError as error:
            return error.faults
        faults = []
        if not cells or not cells[0].source.startswith("# "):
            line = min(self._converted[1].values(), default=1)
            faults.append(self.fault(line, "the text must begin with a heading, `# Title`"))
        for tag in ("install", "parameters"):
            if (count := len(self._tagged(tag))) != 1:
                faults.append(self.fault(1, f"expected one cell tagged `{tag}`, found {count}"))
        for cell in code_cells(self.template):
            try:
                cell_tree(cell.source)
            except SyntaxError as error:
                faults.append(self.at(cell.id, error.lineno or 1, f"not Python: {error.msg}"))
        for cell in self._tagged("parameters"):
            faults += [self.at(cell.id, *fault) for fault in parse_parameters(cell.source).faults]
        return sorted(faults)

    def require_sound(self) -> None:
        """Raise SourceError if the source has faults."""
        if faults := self.faults():
            raise SourceError(faults)

    def _tagged(self, tag: str) -> list[nbformat.NotebookNode]:
        return [cell for cell in self.template.cells if has_tag(cell, tag)]


def chapters(root: Path | None = None, names: tuple[str, ...] = ()) -> list[Chapter]:
    """Return the chapters of the checkout in order, or those of `names`.

    Raises BookError for a name that is not one of them.
    """
    folder = root or project_root()
    known = {path.stem: Chapter(folder, path.stem) for path in folder.glob("notebooks/[0-9]*.md")}
    for name in names:
        if name not in known:
            raise BookError(f"no chapter named {name!r}; there are: {', '.join(sorted(known))}")
    return [known[name] for name in dict.fromkeys(names) or sorted(known)]


def install_source(address: str) -> str:
    """Return the code of the install cell for a repository at `address` ("" for none)."""
    return _INSTALL.replace("ADDRESS", address)
