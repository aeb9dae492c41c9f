"""From a chapter's MyST source to its notebook; every fault names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
import yaml
from jupytext.myst import MystMetadataParsingError, myst_to_notebook
from nbformat import ValidationError

from bookmaker.errors import ChapterError, Fault, ParameterError, SourceError
from bookmaker.meaning import cell_tree, code_digest, has_tag
from bookmaker.parameters import Parameter, ParameterCell, check_values, parse_parameters
from bookmaker.project import project_root

_EQUATION_LINK = re.compile(r"\[\]\(#(eq-[\w-]+)\)")
_CONFLICT = re.compile(r"^(<{7} |={7}$|>{7} )")
_HEADING = re.compile(r"^# +\S")

# Runs before anything of the package: on Colab the notebook is all there is. A folder that is
# called like the package and lies beside the notebook has no origin.
_INSTALL = """\
import importlib
import os
from importlib.util import find_spec

repository = os.environ.get("SPINFORMER_REPOSITORY", "{address}")
if getattr(find_spec("spinformer"), "origin", None) is None:
    if not repository:
        raise ModuleNotFoundError(
            "spinformer is missing: run `pip install '.[chapters]'` in its checkout, or put the "
            "address of its repository into the environment variable SPINFORMER_REPOSITORY"
        )
    %pip install --quiet "git+{{repository}}"
    %pip install --quiet "spinformer[chapters]"
    importlib.invalidate_caches()
    if getattr(find_spec("spinformer"), "origin", None) is None:
        raise ModuleNotFoundError(f"spinformer could not be installed from {{repository}}")"""


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

    @cached_property
    def text(self) -> str:
        """The source; SourceError if it is not UTF-8."""
        data = self.source_path.read_bytes()
        try:
            return data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            message = f"not UTF-8: byte {data[error.start]:#x}, save the file as UTF-8"
            raise SourceError([self.fault(line, message)]) from None

    @cached_property
    def template(self) -> nbformat.NotebookNode:
        """The notebook of the source, without outputs and without a public address.

        Raises SourceError for a source that cannot be converted.
        """
        return self._converted[0]

    @cached_property
    def cell_lines(self) -> list[int]:
        """For each cell the line of the source where its text begins."""
        lines = self.text.split("\n")
        return [
            _first_line(lines, begin, cell.source)
            for begin, cell in zip(self._converted[1], self.template.cells, strict=True)
        ]

    @cached_property
    def parameter_cell(self) -> ParameterCell:
        """What papermill can change in this chapter and what must fit together."""
        if faults := self.parameter_faults():
            raise SourceError(faults)
        cells = self.template.cells
        return parse_parameters(next(c.source for c in cells if has_tag(c, "parameters")))

    @property
    def parameters(self) -> list[Parameter]:
        """What papermill can change in this chapter."""
        return self.parameter_cell.parameters

    @property
    def title(self) -> str:
        """The first heading of the source; SourceError if it does not begin with one."""
        if faults := self.heading_faults():
            raise SourceError(faults)
        return str(self.template.cells[0].source.splitlines()[0].removeprefix("#").strip())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the code means; see `meaning`."""
        return code_digest(self.template)

    def check_values(self, values: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
        """Return `values` for the parameters, checked; ParameterError if they are not allowed."""
        try:
            return check_values(self.parameter_cell, values, text=text)
        except ParameterError as error:
            raise ParameterError(f"{self.name}: {error}") from None

    def unreadable(self) -> list[Fault]:
        """Return why the source cannot be converted at all, nothing if it can."""
        try:
            self.template  # noqa: B018
        except SourceError as error:
            return error.faults
        return []

    def faults(self) -> list[Fault]:
        """Return everything in the source that keeps the chapter from running as it should."""
        if unreadable := self.unreadable():
            return unreadable
        checks = (self.heading_faults, self.parameter_faults, self._code_faults)
        return sorted({fault for check in checks for fault in check()})

    def require_sound(self) -> None:
        """Raise SourceError if the source has faults."""
        if faults := self.faults():
            raise SourceError(faults)

    def heading_faults(self) -> list[Fault]:
        """Return the fault of a source that does not begin with a title."""
        cells = self.template.cells
        if cells and cells[0].cell_type == "markdown" and _HEADING.match(cells[0].source):
            return []
        line = self.cell_lines[0] if cells else 1
        return [self.fault(line, "the text must begin with a heading, `# Title`")]

    def parameter_faults(self) -> list[Fault]:
        """Return the faults of the parameters cell."""
        tagged = self._tagged("parameters")
        if not tagged:
            return [self.fault(1, "there is no code cell tagged `parameters`")]
        first, source = tagged[0]
        read = parse_parameters(source).faults
        return [
            *(self.fault(line, "a second cell is tagged `parameters`") for line, _ in tagged[1:]),
            *(self.fault(first + line - 1, message) for line, message in read),
        ]

    def _tagged(self, tag: str) -> list[tuple[int, str]]:
        """Return line and source of the cells with a tag."""
        cells = zip(self.cell_lines, self.template.cells, strict=True)
        return [(line, cell.source) for line, cell in cells if has_tag(cell, tag)]

    def _code_faults(self) -> list[Fault]:
        faults = []
        installs = [line for line, _ in self._tagged("install")]
        if len(installs) != 1:
            message = f"expected one cell tagged `install`, found {len(installs)}"
            faults.append(self.fault([*installs, 1, 1][1], message))
        for begin, cell in zip(self.cell_lines, self.template.cells, strict=True):
            if cell.cell_type == "code" and not has_tag(cell, "install"):
                try:
                    cell_tree(cell.source)
                except SyntaxError as error:
                    line = begin + (error.lineno or 1) - 1
                    faults.append(self.fault(line, f"not Python: {error.msg}"))
        return faults

    @cached_property
    def _converted(self) -> tuple[nbformat.NotebookNode, list[int]]:
        text = self.text
        if text.startswith("\ufeff"):
            message = "begins with a byte-order mark: save the file as UTF-8 without one"
            raise SourceError([self.fault(1, message)])
        lines = [n for n, line in enumerate(text.split("\n"), start=1) if _CONFLICT.match(line)]
        if lines:
            raise SourceError([self.fault(n, "a conflict of a merge is left") for n in lines])
        try:
            notebook = myst_to_notebook(text, add_source_map=True)
        except MystMetadataParsingError as error:
            line, message = _place_of(str(error), text)
            raise SourceError([self.fault(line, message)]) from None
        except (ValueError, TypeError, AttributeError, yaml.YAMLError, ValidationError) as error:
            words = " ".join(str(getattr(error, "message", error)).split())
            raise SourceError([self.fault(1, f"the file cannot be read: {words}")]) from None
        lines = [line + 1 for line in notebook.metadata.source_map]
        for line, cell in zip(lines, notebook.cells, strict=True):
            settings = cell.metadata.get("mystnb", {})
            parts = settings.values() if isinstance(settings, dict) else [settings]
            if not all(isinstance(part, dict) for part in parts):
                message = f"mystnb must hold `figure:` and `image:` with settings, got {settings}"
                raise SourceError([self.fault(line, message)])
        return _completed(notebook), lines


def chapters(root: Path | None = None, names: tuple[str, ...] = ()) -> list[Chapter]:
    """Return the chapters of the checkout in order, or those of `names`.

    Raises ChapterError for a name that is not one of them.
    """
    folder = root or project_root()
    known = {path.stem: Chapter(folder, path.stem) for path in folder.glob("notebooks/[0-9]*.md")}
    for name in names:
        if name not in known:
            raise ChapterError(f"no chapter named {name!r}; there are: {', '.join(sorted(known))}")
    return [known[name] for name in dict.fromkeys(names) or sorted(known)]


def install_source(address: str) -> str:
    """Return the code of the install cell for a repository at `address` ("" for none)."""
    return _INSTALL.format(address=address)


def stamp(notebook: nbformat.NotebookNode, address: str) -> None:
    """Write the public `address` of the repository into the install cell, in place."""
    for cell in notebook.cells:
        if has_tag(cell, "install"):
            cell.source = install_source(address)


def _completed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    for position, cell in enumerate(notebook.cells):
        cell.id = f"cell-{position:03d}"
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
    return notebook


def _first_line(lines: list[str], begin: int, source: str) -> int:
    """Return the line, from 1, where `source` stands at or after line `begin`."""
    head = source.split("\n")[0].strip()
    after = (n for n, line in enumerate(lines[begin - 1 :], begin) if head and line.strip() == head)
    return next(after, begin)


def _place_of(message: str, text: str) -> tuple[int, str]:
    """Return the line that a message of jupytext's means, and the message in one line."""
    flat = " ".join(message.split())
    if match := re.search(r"at line (\d+)", flat):
        begin = int(match[1])
        inner = re.search(r'in "<[^"]*>", line (\d+)', flat)
        return begin + (int(inner[1]) if inner else 0), flat
    if match := re.search(r'in "<[^"]*>", line (\d+)', flat):
        return int(match[1]) + int(text.startswith("---")), flat
    return 1, flat
