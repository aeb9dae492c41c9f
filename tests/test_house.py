"""The house rules that a machine can keep: who imports whom, how functions look, what files hold.

Everything is read from the source, nothing is imported: a rule that is broken is told with file
and line. Exceptions stand in tables with their reasons.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = "spinformer"

# What may be imported, by the longest prefix of the importing module's name.
MAY_IMPORT = {
    "": ["core", "hopfield", "spins", "dmft", "language", "plotting"],
    "core": ["core"],
    "hopfield": ["core", "hopfield"],
    "spins": ["core", "spins"],
    "spins.monte_carlo": ["core"],
    "spins.ising": ["core", "spins.ising", "spins.monte_carlo"],
    "spins.vectors": ["core", "spins.vectors", "spins.monte_carlo"],
    "spins.modules": ["core", "spins.modules", "spins.vectors", "spins.monte_carlo"],
    "dmft": ["core", "dmft"],
    "language": ["core", "language"],
    "plotting": ["core", "hopfield", "spins", "dmft", "language", "plotting"],
    "studies": ["core", "hopfield", "spins", "dmft", "language", "plotting", "studies", "sweeps"],
    # What finds out that a sweep is finished must not load torch.
    "sweeps": ["sweeps"],
    "chapters": ["core", "plotting", "chapters", "sweeps"],
}

# Rooms whose functions are held to the rules of form.
ROOMS = ("core", "hopfield", "spins", "dmft", "language", "studies", "sweeps")

# Annotations that are numbers or arrays: of these at most one may be given by position.
NUMERIC = {
    *("int", "float", "complex", "bool", "integer", "floating", "number"),
    *("ndarray", "NDArray", "ArrayLike", "Array", "Tensor", "Any", "Seed", "TorchSeed"),
    *("Generator", "Sequence", "Iterable", "list", "tuple"),
}
FORBIDDEN = {"rng", "generator", "max_iterations", "max_evaluations", "iterations"}
# Compiled by numba: called by position, from a few places of their own room.
COMPILED = {"njit", "jit", "vectorize", "guvectorize", "kernel", "inlined", "instruction"}
# Two arguments of one kind by position, and why.
SAFE = {
    "core.checks check_choice": "a check takes the value, then what is allowed, as its name says",
    "core.records same": "it is symmetric",
    "hopfield.separation Tables": "compiled code reads it; two lines of its own file make it",
    "dmft.state Context": "one is an array of at least two axes, the other an integer",
}

MAX_LINES = 400
NAMES = range(5, 26)
# Packages whose face is not a list of names, and why.
WITHOUT_NAMES: dict[str, str] = {
    "": "it has rooms, no names",
    "chapters": "a command, not a library",
    "studies": "a study is imported by its file: one chapter needs one, and each loads much",
}


@cache
def modules() -> dict[str, ast.Module]:
    """Syntax trees of the package, by dotted name inside it ("" is the package itself)."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = list(path.relative_to(SOURCE / PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def within(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(prefix + ".")


def room(name: str) -> str:
    """The longest key of MAY_IMPORT that holds the module."""
    return max((key for key in MAY_IMPORT if key and within(name, key)), key=len, default="")


def is_package(name: str) -> bool:
    return (SOURCE / PACKAGE / Path(*name.split(".")) / "__init__.py").exists()


# --- who imports whom ------------------------------------------------------------------------


def source_of(name: str, node: ast.ImportFrom) -> str:
    """The full name of what `from ... import` names, in the module `name`."""
    if not node.level:
        return node.module or ""
    here = [PACKAGE, *filter(None, name.split("."))]
    up = node.level - is_package(name)
    return ".".join([*here[: len(here) - up], *filter(None, [node.module])])


def imported(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and targets, inside the package, of every import of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` imports the module as well.
            targets = [f"{source_of(name, node)}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            if parts[0] != PACKAGE:
                continue
            inside = ".".join(parts[1:])
            while inside and inside not in modules():
                inside = inside.rpartition(".")[0]
            yield node.lineno, inside


def forbidden_imports() -> list[str]:
    wrong = []
    for name, tree in modules().items():
        allowed = MAY_IMPORT[room(name)]
        for line, target in imported(name, tree):
            if target and not any(within(target, prefix) for prefix in allowed):
                wrong.append(f"{name or PACKAGE}:{line} imports {target}")
    return wrong


def test_imports_point_downwards():
    """Theory rooms see core and themselves; studies see the rooms; nothing sees the chapters."""
    assert forbidden_imports() == []


# --- how functions look ----------------------------------------------------------------------


def names_of(node: ast.AST | None) -> set[str]:
    """The classes an annotation names; containers count as what they hold."""
    if node is None:
        return {"Any"}
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return names_of(ast.parse(node.value, mode="eval").body)
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.BinOp):
        return names_of(node.left) | names_of(node.right)
    if isinstance(node, ast.Subscript):
        (outer,) = names_of(node.value)
        if outer in ("Callable", "Literal", "type", "Mapping", "dict", "MutableMapping"):
            return {outer}
        if outer in ("NDArray", "ndarray"):
            return {outer}
        inner = names_of(node.slice)
        return inner if outer in ("Sequence", "Iterable", "list", "tuple", "Optional") else {outer}
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*(names_of(item) for item in node.elts)) if node.elts else set()
    return {ast.unparse(node)}


def kind(annotation: ast.AST | None, aliases: dict[str, ast.AST]) -> str:
    """One word for what a parameter takes: "number or array", or the names of its classes."""
    names, seen = names_of(annotation), set()
    while extra := (names & aliases.keys()) - seen:
        seen |= extra
        names = (names - extra).union(*(names_of(aliases[name]) for name in extra))
    names -= {"None", "NoneType"}
    return "number or array" if names & NUMERIC else "|".join(sorted(names))


@cache
def type_aliases() -> dict[str, ast.AST]:
    """Names that modules give to types, as in `Array = np.ndarray`."""
    found: dict[str, ast.AST] = {}
    for tree in modules().values():
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            typed = isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp)
            if typed and name[:1].isupper() and not name.isupper() and name not in NUMERIC:
                found[name] = node.value
    return found


def decorators(node: ast.FunctionDef | ast.ClassDef) -> dict[str, ast.AST]:
    """Decorators by their last name."""
    plain = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    return {
        item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", ""): whole
        for item, whole in zip(plain, node.decorator_list, strict=True)
    }


def fields(node: ast.ClassDef) -> list[tuple[str, ast.AST]]:
    return [
        (item.target.id, item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in names_of(item.annotation)
    ]


def keyword_only(decorator: ast.AST) -> bool:
    return isinstance(decorator, ast.Call) and any(
        item.arg == "kw_only" and getattr(item.value, "value", False) is True
        for item in decorator.keywords
    )


class Public:
    """A public function or class: where it stands, what it takes, what it says of itself."""

    def __init__(self, module: str, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.place = f"{module}:{node.lineno} {node.name}"
        self.module, self.name, self.node = module, node.name, node
        self.text = ast.get_docstring(node) or ""
        self.bases = {name for base in getattr(node, "bases", ()) for name in names_of(base)}
        self.methods = (
            {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            if isinstance(node, ast.ClassDef)
            else {}
        )

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def positional(self) -> list[tuple[str, ast.AST | None]]:
        """Parameters that can be given by position, of a class those of its constructor."""
        if self.is_class:
            marks = decorators(self.node)
            if "dataclass" in marks and not keyword_only(marks["dataclass"]):
                return fields(self.node)
            if "NamedTuple" in self.bases:
                return fields(self.node)
            if "__init__" not in self.methods:
                return []
            arguments = self.methods["__init__"].args
            return [(item.arg, item.annotation) for item in arguments.args[1:]]
        arguments = self.node.args
        return [(item.arg, item.annotation) for item in (*arguments.posonlyargs, *arguments.args)]

    def parameters(self) -> set[str]:
        """Names of all parameters, of a class those of its fields and public methods as well."""
        found = {name for name, _ in fields(self.node)} if self.is_class else set()
        functions = (
            [
                f
                for name, f in self.methods.items()
                if not name.startswith("_") or name == "__init__"
            ]
            if self.is_class
            else [self.node]
        )
        for function in functions:
            arguments = function.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            found |= {item.arg for item in every}
        return found

    def shown_elsewhere(self) -> bool:
        """Whether a class needs no example of its own.

        An error or a list of constants is shown where it is raised or returned; so is a record
        that only carries what a function found: without public methods there is nothing to call.
        """
        if not self.is_class:
            return False
        if {"Exception", "RuntimeError", "ValueError", "IntEnum", "Enum", "Protocol"} & self.bases:
            return True
        public = [
            name
            for name, method in self.methods.items()
            if not name.startswith("_") and "property" not in decorators(method)
        ]
        return not public and "__init__" not in self.methods


@cache
def public() -> list[Public]:
    """Public functions and classes of the rooms.

    Kernels, their states and tools are exempt, and so is a reference of a kernel, which has the
    arguments of the function it stands for.
    """
    found = []
    kernels = {
        f"{node.name.lstrip('_')}_reference"
        for tree in modules().values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and COMPILED & decorators(node).keys()
    }
    for name, tree in modules().items():
        if not any(within(name, part) for part in ROOMS):
            continue
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            compiled = COMPILED & decorators(node).keys() or node.name in kernels
            if compiled or "kernels" in name.split("."):
                continue
            found.append(Public(name, node))
    return found


def swappable() -> list[str]:
    wrong = []
    for item in public():
        if f"{item.module} {item.name}" in SAFE:
            continue
        kinds: dict[str, list[str]] = {}
        for name, annotation in item.positional():
            kinds.setdefault(kind(annotation, type_aliases()), []).append(name)
        wrong += [
            f"{item.place}: {', '.join(names)} ({what})"
            for what, names in kinds.items()
            if len(names) > 1
        ]
    return wrong


def without_example() -> list[str]:
    wrong = [f"{item.place}: no docstring" for item in public() if not item.text]
    return wrong + [
        f"{item.place}: no example"
        for item in public()
        if item.text and ">>>" not in item.text and not item.shown_elsewhere()
    ]


def undocumented_methods() -> list[str]:
    return [
        f"{item.place}.{name}"
        for item in public()
        for name, method in item.methods.items()
        if not name.startswith("_") and not ast.get_docstring(method)
    ]


def forbidden_names() -> list[str]:
    return [
        f"{item.place}: {name}"
        for item in public()
        for name in sorted(item.parameters() & FORBIDDEN)
    ]


def test_no_two_positional_arguments_can_be_swapped():
    """At most one number or array, and one object of each class, may be given by position."""
    assert swappable() == []


def test_public_functions_and_classes_have_docstrings_with_an_example():
    assert without_example() == []
    assert undocumented_methods() == []


def test_one_name_for_randomness_and_for_limits():
    """`seed` and `max_steps`, nothing else."""
    assert forbidden_names() == []


# --- what files hold -------------------------------------------------------------------------


def long_files() -> list[str]:
    counts = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(SOURCE.rglob("*.py"))
    }
    return [f"{path.relative_to(SOURCE)}: {n}" for path, n in counts.items() if n > MAX_LINES]


def unnamed_rooms() -> list[str]:
    """Packages whose `__all__` is missing, too short or long, unsorted, or does not resolve."""
    wrong = []
    for name, tree in modules().items():
        if not is_package(name) or name in WITHOUT_NAMES:
            continue
        listed, bound = None, set()
        for node in tree.body:
            if isinstance(node, ast.Assign) and names_of(node.targets[0]) == {"__all__"}:
                listed = ast.literal_eval(node.value)
            if isinstance(node, ast.ImportFrom):
                source = source_of(name, node)
                bound |= {alias.asname or alias.name for alias in node.names}
                wrong += [
                    f"{name}: {alias.name} is not in {source}"
                    for alias in node.names
                    if source.startswith(PACKAGE) and not defines(source, alias.name)
                ]
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
        if listed is None or len(listed) not in NAMES:
            wrong.append(f"{name}: __all__ of {len(listed or [])} names")
        wrong += [f"{name}: {missing} does not resolve" for missing in set(listed or []) - bound]
    return wrong


def defines(module: str, name: str) -> bool:
    """Whether a module of the package has `name` at its top level, or as a module inside it."""
    inside = module.removeprefix(PACKAGE).removeprefix(".")
    if inside not in modules():
        return False
    tree = modules()[inside]
    bound = {name} if f"{inside}.{name}".removeprefix(".") in modules() else set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            bound |= {
                item.id
                for target in node.targets
                for item in ast.walk(target)
                if isinstance(item, ast.Name)
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            bound.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
    return name in bound


def numbered_documents() -> list[str]:
    return [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"documents? 00\d", line, re.IGNORECASE)
    ]


def unknown_sources() -> list[str]:
    """Keys such as author2020word that src names and book/references.bib has not."""
    known = set(
        re.findall(r"^@\w+\{([^,\s]+)", (ROOT / "book/references.bib").read_text("utf-8"), re.M)
    )
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            cited = set(re.findall(r"\b[a-z]{2,}(?:19|20)\d\d[a-z]+\b", line))
            cited |= set(re.findall(r"\[([a-z]+\d{4}\w*)[,\]]", line))
            wrong += [f"{path.relative_to(SOURCE)}:{number} {key}" for key in cited - known]
    return wrong


def test_no_file_is_too_long():
    assert long_files() == []


def test_every_room_says_what_it_offers():
    """An `__all__` of some ten names, each of which is there."""
    assert unnamed_rooms() == []
    assert set(WITHOUT_NAMES) <= set(modules())


def test_sources_are_cited_by_their_keys():
    """No numbered documents; every key that is cited is in the bibliography."""
    assert numbered_documents() == []
    assert unknown_sources() == []


# --- the rules themselves --------------------------------------------------------------------

BROKEN = {
    "core/__init__.py": "from spinformer.core.tools import Tool\n__all__ = ['Tool', 'absent']\n",
    "core/tools.py": "from spinformer import hopfield\nclass Tool:\n    'A tool.'\n"
    "    def __init__(self, size: int, dim: int): 'Make.'\n    def turn(self): pass\n",
    "hopfield/__init__.py": "from ..chapters import run\n",
    "hopfield/energy.py": "import numpy as np\nArray = np.ndarray\n"
    "def energy(states: Array, beta: float | None, *, rng=0):\n"
    "    'Document 001, and [nobody2099nothing, Eq. (1)].'\n",
    "spins/__init__.py": "",
    "spins/ising/__init__.py": "from spinformer.plotting import style\n",
    "spins/vectors/__init__.py": "import spinformer.spins.ising\n" + "\n" * 400,
    "chapters/__init__.py": "",
    "plotting/__init__.py": "",
    "plotting/style.py": "",
    "studies/__init__.py": "from numpy.random import Generator as rng\n",
    "__init__.py": "",
}


@pytest.fixture
def broken_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that breaks every rule, in place of ours."""
    for name, text in BROKEN.items():
        path = tmp_path / "src" / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "references.bib").write_text("@misc{somebody2000some,\n", "utf-8")
    monkeypatch.setattr("test_house.ROOT", tmp_path)
    monkeypatch.setattr("test_house.SOURCE", tmp_path / "src")
    caches = (modules, type_aliases, public)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("broken_house")
def test_every_rule_notices_what_breaks_it():
    assert forbidden_imports() == [
        "core.tools:1 imports hopfield",
        "hopfield:1 imports chapters",
        "spins.ising:1 imports plotting.style",
        "spins.vectors:1 imports spins.ising",
    ]
    assert swappable() == [
        "core.tools:2 Tool: size, dim (number or array)",
        "hopfield.energy:3 energy: states, beta (number or array)",
    ]
    assert without_example() == [
        "core.tools:2 Tool: no example",
        "hopfield.energy:3 energy: no example",
    ]
    assert undocumented_methods() == ["core.tools:2 Tool.turn"]
    assert forbidden_names() == ["hopfield.energy:3 energy: rng"]
    assert long_files() == ["spinformer/spins/vectors/__init__.py: 401"]
    assert numbered_documents() == ["spinformer/hopfield/energy.py:4"]
    assert unknown_sources() == ["spinformer/hopfield/energy.py:4 nobody2099nothing"]
    assert unnamed_rooms() == [
        "core: __all__ of 2 names",
        "core: absent does not resolve",
        "hopfield: run is not in spinformer.chapters",
        "hopfield: __all__ of 0 names",
        "plotting: __all__ of 0 names",
        "spins: __all__ of 0 names",
        "spins.ising: __all__ of 0 names",
        "spins.vectors: __all__ of 0 names",
    ]
