"""A chapter's MyST source, what its code means, and whether its committed notebook is stale.

A notebook carries two digests: of what the code meant when it was executed, and of the outputs it
then gave. Where both still hold, everything else (prose, captions, tags, comments in the code) is
taken over from the source without executing anything.

The first covers the code cells and every module of the checkout that they need, as syntax trees
without comments and docstrings, and the data files beside those modules. It does not depend on
the version of Python that computes it. The `__init__` of a package gives its modules and names from
them, and says what it is: it decides no number, and a name that it gives stands for its module.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import nbformat
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from jupytext.myst import myst_to_notebook
from nbformat import NotebookNode

from bookmaker.base import (
    BookError,
    Fault,
    ParameterError,
    SourceError,
    project_root,
    repository_address,
)
from bookmaker.measured import BENCHMARKS, TIMES, measured
from bookmaker.parameters import ParameterCell, parse_parameters
from bookmaker.values import filled, prose, reported

SOURCE = Path(__file__).resolve().parents[1]
FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_EQUATION_LINK = re.compile(r"\[\]\(#(eq-[\w-]+)\)")
# Runs before anything of the package: on Colab the notebook is all there is. A folder that is
# called like the package and lies beside the notebook has no origin.
_INSTALL = Path(__file__).with_name("install.txt").read_text(encoding="utf-8").rstrip()
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Where a name stands, comments on types, and how a string was prefixed: not part of the meaning.
_SKIPPED = {"ctx", "type_ignores", "type_comment", "kind"}


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
        return self.source_path.with_suffix(".ipynb")

    def fault(self, line: int, message: str, cell: str = "") -> Fault:
        """Return a fault in a line of the source, or of a cell, which is called by its id."""
        if cell:
            line += self._converted[1].get(cell, 1) - 1
        return Fault(f"notebooks/{self.name}.md", line, message)

    @cached_property
    def text(self) -> str:
        """The source."""
        return self.source_path.read_text(encoding="utf-8")

    @property
    def template(self) -> NotebookNode:
        """The notebook of the source, without outputs and with its roles as they are typed.

        Raises SourceError for a source that cannot be converted.
        """
        return self._converted[0]

    @cached_property
    def _converted(self) -> tuple[NotebookNode, dict[str, int]]:
        return self._convert()

    def _convert(self, filled_text: str | None = None) -> tuple[NotebookNode, dict[str, int]]:
        """The notebook, and for each cell the line of the source where its text begins."""
        try:
            text = self.text if filled_text is None else filled_text
            notebook = myst_to_notebook(text, add_source_map=True)
        except Exception as error:
            # Each kind of damage has its own error in Python, jupytext, YAML and nbformat.
            words = " ".join(str(error).split())
            line = re.search(r"at line (\d+)", words)
            fault = self.fault(int(line[1]) if line else 1, f"the file cannot be read: {words}")
            raise SourceError([fault]) from None
        lines = [line.strip() for line in text.split("\n")]
        begins = {}
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number:03d}"
            # Options of the cell stand before its text.
            begin = notebook.metadata.source_map[number]
            head = cell.source.split("\n")[0].strip()
            begins[cell.id] = (lines.index(head, begin) if head in lines[begin:] else begin) + 1
            if has_tag(cell, "install"):
                cell.source = _INSTALL.replace("ADDRESS", repository_address(self.root))
            if cell.cell_type == "markdown":
                # The book shows the equation's number; Jupyter and Colab show the label, which
                # they also print beside the equation.
                cell.source = _EQUATION_LINK.sub(r"[(\1)](#\1)", cell.source)
        kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        notebook.metadata = nbformat.from_dict(metadata)
        notebook.nbformat = 4
        notebook.nbformat_minor = 5
        return notebook, begins

    def filled_text(self, executed: NotebookNode, missing: str | None = None) -> str:
        """Return the source with the numbers of `executed` in the place of its roles.

        Raises SourceError, as `bookmaker.values.filled` does, unless `missing` stands in.
        """
        return filled(
            self.text,
            file=f"notebooks/{self.name}.md",
            own=reported(executed),
            others=partial(chapter_figures, self.root),
            missing=missing,
        )

    def filled_template(self, executed: NotebookNode, missing: str | None = None) -> NotebookNode:
        """Return the notebook of the source with the numbers of `executed` in its text."""
        text = self.filled_text(executed, missing)
        return nbformat.from_dict(self.template) if text == self.text else self._convert(text)[0]

    @cached_property
    def shown_text(self) -> str:
        """The source as readers see it, with the numbers of the committed notebook."""
        if "{" not in prose(self.text):
            return self.text
        return self.filled_text(read_notebook(self.notebook_path))

    @cached_property
    def parameter_cell(self) -> ParameterCell:
        """What papermill can change in this chapter and what must fit together."""
        self.require_sound()
        return parse_parameters(self._tagged("parameters")[0].source)

    @property
    def parameters_id(self) -> str:
        """The id of the cell tagged `parameters`."""
        return str(self._tagged("parameters")[0].id)

    @property
    def title(self) -> str:
        """The first heading of the source."""
        heading = str(self.template.cells[0].source.splitlines()[0].removeprefix("#").strip())
        if "{" in heading:
            heading = self._convert(self.shown_text)[0].cells[0].source.splitlines()[0][2:]
        return heading

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the code cells mean, with what they import from the checkout."""
        sources = [c.source for c in code_cells(self.template) if not has_tag(c, "install")]
        waiting = set[Path]().union(*(imported(cell_tree(source)) for source in sources))
        files: dict[Path, bytes] = {}
        while waiting:
            file = waiting.pop()
            files[file], needed = _module(file, file.stat().st_mtime_ns)
            waiting |= needed - files.keys()
            if file.parent == SOURCE / "bookmaker":
                continue  # templates of the tool, which decide no number
            for path in set(file.parent.glob("[!.]*.*[!~]")) - files.keys():
                if path.is_file() and path.suffix not in (".py", ".pyi", ".pyc"):
                    files[path] = path.read_bytes().replace(b"\r\n", b"\n")
        parts = [cell_meaning(source).encode() for source in sources]
        for file in sorted(files):
            parts += [file.relative_to(SOURCE).as_posix().encode(), files[file]]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def check_values(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Return `values` for the parameters, checked; ParameterError if they are not allowed."""
        try:
            return self.parameter_cell.check(values)
        except ParameterError as error:
            raise ParameterError(f"{self.name}: {error}") from None

    def faults(self) -> list[Fault]:
        """Return everything in the source that keeps the chapter from running as it should."""
        try:
            notebook, begins = self._converted
        except SourceError as error:
            return error.faults
        faults = []
        if not notebook.cells or not notebook.cells[0].source.startswith("# "):
            line = min(begins.values(), default=1)
            faults.append(self.fault(line, "the text must begin with a heading, `# Title`"))
        for tag in ("install", "parameters"):
            if (count := len(self._tagged(tag))) != 1:
                faults.append(self.fault(1, f"expected one cell tagged `{tag}`, found {count}"))
        cells = code_cells(notebook)
        if cells and self._tagged("install") and not has_tag(cells[0], "install"):
            # Open cells need NumPy or torch, which a lone notebook may have to install.
            message = "the cell tagged `install` must stand before all other code"
            faults.append(self.fault(begins[cells[0].id], message))
        for cell in cells:
            try:
                cell_tree(cell.source)
            except SyntaxError as error:
                faults.append(self.fault(error.lineno or 1, f"not Python: {error.msg}", cell.id))
        for cell in self._tagged("parameters"):
            in_cell = parse_parameters(cell.source).faults
            faults += [self.fault(line, message, cell.id) for line, message in in_cell]
        return sorted(faults)

    def require_sound(self) -> None:
        """Raise SourceError if the source has faults."""
        if faults := self.faults():
            raise SourceError(faults)

    def stale(self) -> tuple[str, bool]:
        """Why the committed notebook must be written anew, "" if not, and whether by executing.

        Raises SourceError if its text reads a figure that no cell hands over.
        """
        try:
            notebook = read_notebook(self.notebook_path)
        except BookError as error:
            return str(error), True
        recorded = notebook.metadata.get("spinformer")
        if not isinstance(recorded, dict) or recorded.get("code") != self.digest:
            return "its code or what it imports changed", True
        if recorded.get("outputs") != outputs_digest(notebook):
            return "its outputs are not those it was executed with", True
        if self.merge_outputs(notebook) != notebook:
            return "its text is not that of the source", False
        return "", False

    def merge_outputs(self, executed: NotebookNode, missing: str | None = None) -> NotebookNode:
        """Return the notebook of the source with the outputs of `executed`, cell by code cell.

        Its text has the numbers of `executed`; see `filled_text` for those that are missing.
        """
        notebook = self.filled_template(executed, missing)
        for cell, done in zip(code_cells(notebook), code_cells(executed), strict=True):
            cell.outputs = nbformat.from_dict(done.outputs)
            cell.execution_count = done.execution_count
        notebook.metadata["spinformer"] = {
            "source": self.source_path.name,
            "code": self.digest,
            "outputs": outputs_digest(notebook),
        }
        return notebook

    def _tagged(self, tag: str) -> list[NotebookNode]:
        return [cell for cell in self.template.cells if has_tag(cell, tag)]


def front_matter(text: str) -> dict[str, Any]:
    """Return what a source says before its text, nothing if that cannot be read."""
    match = FRONT_MATTER.match(text)
    try:
        said = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError:
        said = None  # named elsewhere
    return said if isinstance(said, dict) else {}


def chapters(root: Path | None = None, names: tuple[str, ...] = ()) -> list[Chapter]:
    """Return the chapters of the checkout in order, or those of `names`.

    Raises BookError for a name that is not one of them.
    """
    folder = root or project_root()
    by_name = {path.stem: Chapter(folder, path.stem) for path in folder.glob("notebooks/[0-9]*.md")}
    for name in names:
        if name not in by_name:
            raise BookError(f"no chapter named {name!r}; there are: {', '.join(sorted(by_name))}")
    return [by_name[name] for name in dict.fromkeys(names) or sorted(by_name)]


def chapter_figures(root: Path, number: str) -> Mapping[str, Any]:
    """Return the figures and parameters of the chapter with a number; ValueError if it is none.

    What was measured is read as if `benchmarks` and `times` were chapters.
    """
    if number in (BENCHMARKS, TIMES):
        return measured(root, number)
    for path in root.glob(f"notebooks/{number}_*.ipynb"):
        try:
            return reported(read_notebook(path))
        except BookError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f"no chapter {number} has a notebook")


def read_notebook(path: Path) -> NotebookNode:
    """Return a notebook; BookError that names the file if it cannot be read."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except Exception as error:
        # nbformat raises a dozen kinds of errors for what is not a notebook.
        first = str(error).strip().partition("\n")[0]
        message = f"notebooks/{path.name} cannot be read ({first}): `make notebooks` writes it anew"
        raise BookError(message) from None


@lru_cache(maxsize=100)
def _parsed(text: str) -> NotebookNode:
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    return notebook


def outputs_digest(notebook: NotebookNode) -> str:
    """Return the SHA-256 of the outputs and execution counts of the code cells."""
    results = [[cell.execution_count, cell.outputs] for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_tag(cell: NotebookNode, tag: str) -> bool:
    """Return whether a cell carries `tag`."""
    return tag in cell.metadata.get("tags", [])


def python_source(source: str) -> str:
    """Return a cell with its magics written as the calls that IPython makes of them."""
    return TransformerManager().transform_cell(source)


@cache
def cell_tree(source: str) -> ast.Module:
    """Return the syntax tree of a cell; SyntaxError if it has none."""
    return ast.parse(python_source(source))


def cell_meaning(source: str) -> str:
    """Return what a cell means, equal for cells that do the same."""
    # A string alone in a cell is shown, and a semicolon at the end keeps a value from being shown.
    return ast_fingerprint(cell_tree(source).body) + ";" * source.rstrip().endswith(";")


def ast_fingerprint(node: object) -> str:
    """Return a syntax tree in words, without docstrings and what only some Pythons write."""
    if isinstance(node, list):
        return f"[{','.join(map(ast_fingerprint, node))}]"
    if isinstance(node, ast.Constant) or not isinstance(node, ast.AST):
        return repr(getattr(node, "value", node))
    fields = dict(ast.iter_fields(node))
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [part for part in node.values if getattr(part, "value", None) != ""]
    # Newer versions of Python add fields that are empty in older code.
    kept = {k: v for k, v in fields.items() if k not in _SKIPPED and v not in (None, [])}
    parts = [f"{name}={ast_fingerprint(value)}" for name, value in kept.items()]
    return f"{type(node).__name__}({','.join(parts)})"


def imported(tree: ast.Module) -> set[Path]:
    """Return the files of the checkout that some code imports itself."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            homes = _exports(SOURCE / node.module.replace(".", "/") / "__init__.pyi")
            own = {alias.name for alias in node.names}
            names |= {node.module, *(f"{node.module}.{name}" for name in own)}
            names |= {homes[name] for name in own & homes.keys()}
    paths = {SOURCE / f"{name.replace('.', '/')}.py" for name in names}
    return {path for path in paths if path.is_file()}


@cache
def _exports(stub: Path) -> dict[str, str]:
    """Return, by name, the modules from which a package exports names: the imports of its stub."""
    if not stub.is_file():
        return {}
    return {
        alias.name: str(node.module)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def _module(path: Path, _changed: int) -> tuple[bytes, set[Path]]:
    """Return the digest of what a module means, and the files that it imports.

    `_changed`, when the file did, is part of the key under which this is kept.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return hashlib.sha256(ast_fingerprint(tree).encode()).digest(), imported(tree)
