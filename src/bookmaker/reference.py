"""The reference of the package as text for its pages, and which chapter uses which function.

Read from the source without importing it: signatures, docstrings with their examples, imports of
the chapters. A name that a package's `__init__` hands on is the one it was defined as.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "spinformer"
PACKAGES = (PACKAGE, "compendium", "bookmaker")
# Checks of arguments and compiled inner loops, which nobody calls from outside.
_INTERNAL = re.compile(r"\.(\w*inputs|kernels|checks|_\w+)(\.|$)")
# Rooms whose files are described as a whole.
READ = ("compendium.", "bookmaker.", "plot.")
_CITED = re.compile(r"\[([a-z]+\d{4}[a-z][^\]]*)\]")
_KEY = re.compile(r"\b[a-z]{2,}\d{4}[a-z]+\b")
# A line of a record's docstring that explains one or more of its fields.
_FIELD = re.compile(r"^([a-z]\w*(?:, \w+)*): ", re.MULTILINE)
_EXAMPLE = re.compile(r"(?:^>>>.*\n(?:(?!\s*$).*\n?)*)", re.MULTILINE)

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """One file: its name, docstring, public definitions, and what it imports of the package."""

    name: str
    doc: str
    definitions: Mapping[str, Definition]
    imported: Mapping[str, str]


class Reference:
    """All modules of the package, by name."""

    def __init__(self, source: Path) -> None:
        """Read every file of the packages below `source`."""
        self.modules: dict[str, Module] = {}
        paths = sorted(path for name in PACKAGES for path in (source / name).rglob("*.py"))
        for path in paths:
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            self.modules[name] = Module(
                name,
                ast.get_docstring(tree) or "",
                {
                    node.name: node
                    for node in tree.body
                    if isinstance(node, Definition) and not node.name.startswith("_")
                },
                dict(_imports(tree)),
            )

    def resolve(self, name: str) -> str:
        """Return where `spinformer.room.name` is defined, "" if nothing public is called so.

        >>> from bookmaker.project import project_root
        >>> reference = Reference(project_root() / "src")
        >>> reference.resolve("spinformer.hopfield.ags_capacity")
        'spinformer.hopfield.capacity.ags_capacity'
        """
        if name in self.modules:
            return name
        module, _, last = name.rpartition(".")
        if module not in self.modules:
            # A method of a class, perhaps.
            owner = self.resolve(module) if module else ""
            return owner if owner and owner not in self.modules else ""
        if last in self.modules[module].definitions:
            return name
        handed_on = self.modules[module].imported.get(last, "")
        return self.resolve(handed_on) if handed_on and handed_on != name else ""

    def named(self, last: str, *, near: str) -> str:
        """Return what a type's name means in the file that defines `near`, "" if nothing of ours.

        >>> from bookmaker.project import project_root
        >>> reference = Reference(project_root() / "src")
        >>> reference.named("Network", near="spinformer.dmft.mean_field.step")
        'spinformer.dmft.network.Network'
        """
        module = near
        while module and module not in self.modules:
            module = module.rpartition(".")[0]
        found = self.resolve(f"{module}.{last}") if module else ""
        return found if found and self.documented(found) else ""

    def documented(self, name: str) -> bool:
        """Whether chapters may name that definition: it is no inner part of a room."""
        module = name.rpartition(".")[0]
        return module in self.modules and not _INTERNAL.search(name)

    def used(self, code: str) -> list[str]:
        """Return the functions and classes that a chapter's code imports, in this order.

        >>> from bookmaker.project import project_root
        >>> reference = Reference(project_root() / "src")
        >>> reference.used("from spinformer.hopfield import continuous\\ncontinuous.energy(x)")
        ['spinformer.hopfield.continuous.energy']
        """
        tree = ast.parse(code)
        names = dict(_imports(tree))
        wanted = list(names.values())
        wanted += [
            f"{names[node.value.id]}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
        ]
        found = [self.resolve(name) for name in wanted]
        return list(dict.fromkeys(n for n in found if n not in self.modules and self.documented(n)))

    def page(self, rooms: Sequence[str], *, users: Mapping[str, Sequence[str]]) -> str:
        """Return the entries of some rooms (`hopfield`, `spins.ising`) as MyST text.

        `users` gives for each full name the chapters that use it.
        """
        lines: list[str] = []
        for room in rooms:
            for module in self._within(room):
                if not _INTERNAL.search(module.name):
                    lines += self._module(module, users)
        return "\n".join(lines)

    def index(self, room: str, *, users: Mapping[str, Sequence[str]]) -> str:
        """Return what each file of a room is for, for rooms that are read rather than called."""
        lines: list[str] = []
        for module in self._within(room):
            full = [f"{module.name}.{last}" for last in module.definitions]
            chapters = sorted({chapter for name in full for chapter in users.get(name, ())})
            names = ", ".join(f"`{last}`" for last in module.definitions)
            lines += [f"({_anchor(module.name)})=", f"## {_short(module.name)}", ""]
            lines += [_text(module.doc.split("\n\n")[0]), "", names, *_users(chapters), ""]
        return "\n".join(lines)

    def _within(self, room: str) -> Iterator[Module]:
        """Yield the modules of a room that define something."""
        for name, module in self.modules.items():
            if module.definitions and f"{_short(name)}.".startswith(f"{room}."):
                yield module

    def _module(self, module: Module, users: Mapping[str, Sequence[str]]) -> Iterator[str]:
        yield from (f"({_anchor(module.name)})=", f"## {_short(module.name)}", "")
        yield from (_text(module.doc), "")
        for name, node in module.definitions.items():
            full = f"{module.name}.{name}"
            if isinstance(node, ast.ClassDef):
                yield "``````{py:class} " + f"{full}{_fields(node)}"
                doc = ast.get_docstring(node) or ""
                yield from (_text(_FIELD.sub(r"* `\1`: ", doc)), "")
                yield from _users(users.get(full, ()))
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        yield from _method(full, method)
                yield from ("``````", "")
            else:
                yield "``````{py:function} " + f"{full}{_signature(node)}"
                yield from (_text(ast.get_docstring(node) or ""), "")
                yield from _users(users.get(full, ()))
                yield from ("``````", "")


@dataclass(frozen=True)
class Uses:
    """Which chapter uses which function; `code` holds the code of each chapter by its name."""

    reference: Reference
    code: Mapping[str, str]

    @cached_property
    def by_chapter(self) -> dict[str, list[str]]:
        """The full names that each chapter uses."""
        return {name: self.reference.used(code) for name, code in self.code.items()}

    @cached_property
    def by_function(self) -> dict[str, list[str]]:
        """The chapters that use each full name."""
        found: dict[str, list[str]] = {}
        for chapter, names in self.by_chapter.items():
            for name in names:
                found.setdefault(name, []).append(chapter)
        return found

    def chapter_markdown(self, chapter: str) -> str:
        """Return a section with the functions that a chapter uses, "" if there are none."""
        rooms: dict[str, list[str]] = {}
        for name in self.by_chapter.get(chapter, ()):
            rooms.setdefault(name.rpartition(".")[0], []).append(name)
        lines = [
            f"* [`{_short(room)}`](#{_anchor(room)}): " + ", ".join(map(_entry, names))
            for room, names in sorted(rooms.items())
        ]
        return "\n".join(["## Functions used here", "", *lines, ""]) if lines else ""


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that a file imports of the package, and what it stands for."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _short(name: str) -> str:
    return name.removeprefix(f"{PACKAGE}.")


def _anchor(module: str) -> str:
    return f"module-{_short(module)}".replace(".", "-").replace("_", "-")


def _entry(name: str) -> str:
    """Return a link to a function, or its name if only its file is described."""
    described = not _short(name).startswith(READ)
    return f"{{py:obj}}`~{name}`" if described else f"`{name.rpartition('.')[2]}`"


def _signature(node: ast.FunctionDef, *, method: bool = False) -> str:
    given = node.args
    if method and given.args and given.args[0].arg in ("self", "cls"):
        given = ast.arguments(
            posonlyargs=given.posonlyargs,
            args=given.args[1:],
            vararg=given.vararg,
            kwonlyargs=given.kwonlyargs,
            kw_defaults=given.kw_defaults,
            kwarg=given.kwarg,
            defaults=given.defaults,
        )
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(given)}){returned}"


def _fields(node: ast.ClassDef) -> str:
    """Return how a class is called: the arguments of `__init__`, or the fields of a record."""
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            return _signature(inner, method=True).partition(" -> ")[0]
    fields = [
        f"{ast.unparse(inner.target)}: {ast.unparse(inner.annotation)}"
        for inner in node.body
        if isinstance(inner, ast.AnnAssign)
    ]
    return f"({', '.join(fields)})" if fields else ""


def _method(owner: str, node: ast.FunctionDef) -> Iterator[str]:
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
    doc = ast.get_docstring(node) or ""
    if marks & {"property", "cached_property"}:
        yield "`````{py:property} " + f"{owner}.{node.name}"
    else:
        yield "`````{py:method} " + f"{owner}.{node.name}{_signature(node, method=True)}"
        yield from (f":{mark}:" for mark in ("classmethod", "staticmethod") if mark in marks)
    yield from ("", _text(doc), "`````", "")


def _users(chapters: Sequence[str]) -> list[str]:
    if not chapters:
        return []
    links = ", ".join(f"{{chapter}}`{name.partition('_')[0]}`" for name in chapters)
    return ["", f"*Used in* {links}.", ""]


def _text(doc: str) -> str:
    """Return a docstring as MyST: examples fenced, sources cited, dollars and headings as typed."""
    pieces, end = [], 0
    for match in _EXAMPLE.finditer(doc + "\n"):
        pieces += [_prose(doc[end : match.start()]), f"```pycon\n{match[0].rstrip()}\n```\n"]
        end = match.end()
    return "\n".join([*pieces, _prose(doc[end:])])


def _prose(text: str) -> str:
    text = re.sub(r"(?m)^(\s*)#", r"\1\\#", text).replace("$", r"\$")
    text = re.sub(r"<(?=[a-zA-Z/!?])", r"\\<", text)

    def cite(match: re.Match[str]) -> str:
        return "(" + _KEY.sub(lambda key: f"{{cite:t}}`{key[0]}`", match[1]) + ")"

    return _CITED.sub(cite, text)
