"""The house rules that a machine can keep: who imports whom, how much there is, who is cited.

Everything is read from the source, nothing is imported: a rule that is broken is told with file
and line.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What may be imported of the checkout, by the longest prefix of the importing module's name.
TOOLS_OF_CHAPTERS = ["bookmaker.tables", "bookmaker.base", "bookmaker.figures"]
MAY_IMPORT = {
    "spinformer": ["spinformer.core"],
    "spinformer.core": ["spinformer.core"],
    "spinformer.hopfield": ["spinformer.core", "spinformer.hopfield"],
    "spinformer.spins": ["spinformer.core", "spinformer.spins"],
    "spinformer.dmft": ["spinformer.core", "spinformer.dmft"],
    "spinformer.language": ["spinformer.core", "spinformer.language"],
    "spinformer.plot": ["spinformer"],
    "compendium": ["spinformer", "compendium", *TOOLS_OF_CHAPTERS],
    "bookmaker": ["bookmaker"],
}
# Lines of code as ruff formats it, without docstrings, comments and blanks, and five per cent of
# room. Nothing else is counted: explaining costs nothing.
CODE_CEILINGS = {
    "spinformer": (["src/spinformer"], 12_900),
    "bookmaker": (["src/bookmaker", "book/_ext"], 4_300),
    "compendium": (["src/compendium"], 18_500),
}
# Of one chapter's folder; the largest is chapter 24's, with seven tasks and ten robustness tables.
CHAPTER_CEILING = 1_230


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(root):
    """Files of the packages below `root`, by dotted name."""
    found = {}
    for path in sorted((root / "src").rglob("*.py")):
        name = ".".join(path.relative_to(root / "src").with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def statements(path):
    """Everything in a file that is no expression, in breadth: ten times less than everything."""
    found: list[ast.AST] = [tree(path)]
    for node in found:
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            found += getattr(node, block, ())
    return found


def within(name, prefix):
    return name == prefix or name.startswith(prefix + ".")


def imported(path):
    """Lines and full names of what a module imports, modules and names alike."""
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def own_folder(name):
    """The chapter's folder that a module of `compendium` lies in, "" for none."""
    folder = re.match(r"compendium\.(c\d\d\w*)", name)
    return folder[1] if folder else ""


def forbidden_imports(root):
    wrong = []
    for name, path in modules(root).items():
        room = max((key for key in MAY_IMPORT if within(name, key)), key=len, default="")
        for line, target in imported(path):
            # A name that begins with a dot is refused: names are whole here.
            if target.partition(".")[0] not in ("", "spinformer", "compendium", "bookmaker"):
                continue
            allowed = room and any(within(target, prefix) for prefix in MAY_IMPORT[room])
            other = own_folder(name) and own_folder(target) not in ("", own_folder(name))
            if room and (not allowed or other):
                wrong.append(f"{name}:{line} imports {target}")
    return wrong


@cache
def _code_lines(path):
    """Lines of a file that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8").splitlines()
    quiet = {number for number, line in enumerate(text, 1) if line.strip()[:1] in ("", "#")}
    for node in statements(path):
        body = getattr(node, "body", None)
        documented = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and body
        if documented and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            quiet |= set(range(body[0].lineno, body[0].end_lineno + 1))
    return len(text) - len(quiet)


def code_lines(root, folder):
    """Lines of code in the Python files of a folder."""
    return sum(map(_code_lines, (root / folder).rglob("*.py")))


def unknown_sources(root):
    """Numbers of documents, and keys such as author2020word that the bibliography has not."""
    known = set(
        re.findall(r"^@\w+\{([^,\s]+)", (root / "book/references.bib").read_text("utf-8"), re.M)
    )
    wrong = []
    for path in sorted((root / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            cited = set(re.findall(r"\b[a-z]{2,}(?:19|20)\d\d[a-z]+\b", line))
            cited |= set(re.findall(r"\[([a-z]+\d{4}\w*)[,\]]", line))
            cited |= set(re.findall(r"documents? 00\d", line, re.IGNORECASE))
            wrong += [f"{path.relative_to(root)}:{number} {key}" for key in sorted(cited - known)]
    return wrong


def test_imports_point_downwards():
    """The package sees itself, a chapter's folder sees no other chapter's, nothing sees tests."""
    assert forbidden_imports(ROOT) == []


def test_a_chapter_stays_small():
    """What one chapter needs and no other; what many need is the package."""
    folders = (ROOT / "src" / "compendium").glob("c[0-9]*")
    assert [f.name for f in folders if code_lines(ROOT, f) > CHAPTER_CEILING] == []


def test_code_stays_below_its_ceilings():
    for name, (folders, ceiling) in CODE_CEILINGS.items():
        assert sum(code_lines(ROOT, folder) for folder in folders) <= ceiling, name


def test_sources_are_cited_by_their_keys():
    assert unknown_sources(ROOT) == []


def test_every_rule_notices_what_breaks_it(tmp_path):
    for name, text in {
        "spinformer/core/tools.py": "from spinformer import hopfield\nLIMIT, _OWN = 1, 2\n",
        "spinformer/hopfield/__init__.py": "from ..core import tools\nimport spinformer.plot\n",
        "spinformer/hopfield/energy.py": '"""One.\n\nTwo.\n"""\n\n# Why.\nimport bookmaker.run\n',
        "compendium/c10_one/study.py": "import numpy\nfrom compendium.c11_two.study import x\n",
        "compendium/c11_two/study.py": "from bookmaker.run import y\nx = 'nobody2099nothing'\n",
        "compendium/c11b_three/study.py": (
            "from compendium import c11_two\nfrom compendium.c11b_three.tables import z\n"
        ),
    }.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "references.bib").write_text("@misc{somebody2000some,\n", "utf-8")
    assert forbidden_imports(tmp_path) == [
        "compendium.c10_one.study:2 imports compendium.c11_two.study.x",
        "compendium.c11_two.study:1 imports bookmaker.run.y",
        "compendium.c11b_three.study:1 imports compendium.c11_two",
        "spinformer.core.tools:1 imports spinformer.hopfield",
        "spinformer.hopfield:1 imports ..core.tools",
        "spinformer.hopfield:2 imports spinformer.plot",
        "spinformer.hopfield.energy:7 imports bookmaker.run",
    ]
    assert code_lines(tmp_path, "src/spinformer/hopfield") == 3
    assert unknown_sources(tmp_path) == ["src/compendium/c11_two/study.py:2 nobody2099nothing"]


def test_an_init_gives_modules_and_names_from_them_and_nothing_else():
    """What a notebook was computed by leaves them out (`bookmaker.source`)."""
    lazy = {"spinformer.core.lazy.modules_on_demand", "spinformer.core.lazy.names_on_demand"}
    for name, path in modules(ROOT).items():
        if path.name == "__init__.py" and not within(name, "bookmaker"):
            kinds = {type(node) for node in tree(path).body}
            assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}, path
            run = [node for node in tree(path).body if isinstance(node, ast.ImportFrom)]
            told = {f"{node.module}.{alias.name}" for node in run for alias in node.names}
            assert told <= lazy, path


def test_a_room_exports_what_its_stub_says():
    """Type checkers and editors read the stub, and Python does when the room is imported."""
    exporting = 0
    for name, path in modules(ROOT).items():
        stub = path.with_suffix(".pyi")
        if path.name != "__init__.py" or not within(name, "spinformer") or not stub.exists():
            continue
        exporting += 1
        seen = {}
        for node in tree(stub).body:
            assert all(alias.name == alias.asname for alias in node.names), path
            seen |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        room = importlib.import_module(name)
        assert sorted(seen) == room.__all__
        # A name that is a module, too, would be hidden by it as soon as something imports it.
        assert not {child for child in modules(ROOT) if child in {f"{name}.{n}" for n in seen}}
        for exported, target in seen.items():
            module, _, own = target.rpartition(".")
            assert getattr(room, exported) is getattr(importlib.import_module(module), own)
            assert exported in dir(room)
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            room.nothing  # noqa: B018
    assert exporting == 5


def test_a_small_run_is_kept_of_every_chapter():
    """And of no other: a chapter without one is run, but nothing is compared."""
    kept = {path.stem for path in (ROOT / "tests" / "data" / "small_runs").iterdir()}
    assert kept == {path.stem for path in (ROOT / "notebooks").glob("*.md")}
