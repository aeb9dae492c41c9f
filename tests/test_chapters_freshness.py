"""From a source to its notebook, and back to stale when the meaning of code or outputs changed."""

import ast
import json

import nbformat
import pytest
from matplotlib.figure import Figure

from bookmaker import execution, source
from bookmaker.pictures import alike
from bookmaker.source import Chapter, cell_meaning, read_notebook
from spinformer.plot.vector import figure_svg


def chapter(checkout):
    return Chapter(checkout, "01_small")


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def build(call, monkeypatch):
    """Run `build` in a checkout; fail if it executes anything."""
    monkeypatch.setattr(execution, "execute", lambda *a, **k: pytest.fail("executed"))

    def build(checkout):
        result = call(checkout, "build")
        assert result.exit_code == 0, result.output
        return result.output

    return build


def test_conversion_is_deterministic_and_fills_the_install_cell(small_checkout):
    path = chapter(small_checkout).source_path
    edit(path, "small chapter\n", "small chapter\n\nSee [](#eq-e).\n\n$$ E = 0 $$ (eq-e)\n")
    cells = chapter(small_checkout).template.cells
    assert chapter(small_checkout).template.cells == cells
    assert [cell.id for cell in cells] == [f"cell-{i:03d}" for i in range(4)]
    assert "find_spec" in cells[1].source
    # A link to an equation has a text outside of the book.
    assert "[(eq-e)](#eq-e)" in cells[0].source


CELL = "```{code-cell} ipython3\nfrom"
OPTIONS = "---\nmystnb:\n  figure:\n    caption: Words.\n  image:\n    alt: Seen.\n---\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A small chapter", "# Another title"),
        ("# inverse temperature, in [0, 10]", "# a new comment, in [0, 12]"),
        ("for _ in range(count):", "# why\nfor _ in (range(\n    count,\n)):  # so often"),
        (":tags: [parameters]", ":tags: [parameters, hide-input]"),
        (CELL, f"More.\n\n{CELL}"),
        (CELL, f"```{{code-cell}} ipython3\n{OPTIONS}from"),
    ],
)
def test_prose_comments_format_and_tags_are_taken_over_without_execution(
    built_checkout, build, old, new
):
    before = read_notebook(chapter(built_checkout).notebook_path)
    edit(chapter(built_checkout).source_path, old, new)
    assert chapter(built_checkout).stale() == ("its text is not that of the source", False)
    assert "nothing executed" in build(built_checkout)
    after = read_notebook(chapter(built_checkout).notebook_path)
    old, new = (source.code_cells(notebook) for notebook in (before, after))
    assert [cell.outputs for cell in new] == [cell.outputs for cell in old]
    for cell, plain in zip(after.cells, chapter(built_checkout).template.cells, strict=True):
        for name in plain.keys() - {"outputs", "execution_count"}:
            assert cell[name] == plain[name]
    assert chapter(built_checkout).stale() == ("", False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("flat 1.50", "flat 9.99"),
        lambda text: text.replace('"outputs": [', '"output": [', 1),
        lambda text: json.dumps((book := json.loads(text)) | {"cells": book["cells"][:-1]}),
        lambda text: text[: len(text) // 2],
        lambda text: "{}",
        lambda text: text.replace('"cells"', '<<<<<<< HEAD\n"cells"\n=======', 1),
        lambda text: text.replace('"code": "', '"code": "0', 1),
        lambda text: text.replace('"execution_count": 3', '"execution_count": 7'),
        lambda text: json.dumps(json.loads(text) | {"metadata": {"spinformer": ["x"]}}),
    ],
)
def test_a_damaged_notebook_counts_as_stale(built_checkout, damage):
    path = chapter(built_checkout).notebook_path
    good = path.read_text(encoding="utf-8")
    assert damage(good) != good
    path.write_text(damage(good), encoding="utf-8")
    assert chapter(built_checkout).stale()[1]


def test_only_pictures_that_differ_by_more_than_rounding_are_replaced(small_checkout):
    path = chapter(small_checkout).notebook_path

    def write(place=1, text="1"):
        """The committed notebook after a run that drew a line to `place`."""
        notebook = nbformat.from_dict(chapter(small_checkout).template)
        data = {"image/svg+xml": f'<svg><path d="M {place} 1"/></svg>', "text/plain": text}
        notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=data)]
        execution.write_notebook(chapter(small_checkout), notebook)
        return path.read_bytes()

    first = write()
    assert write(place=1.01) == first
    assert write(place=1.2) != first
    # What else the output holds is taken over whatever the picture is.
    write()
    assert b'"2"' in write(place=1.01, text="2")
    path.write_bytes(first.replace(b"<path", b"<<<<<<< HEAD"))
    assert write() == first


def test_a_drawing_is_replaced_if_a_point_moved_or_a_word_changed():
    def drawn(end, label="0.5", shade=0.5):
        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.plot([0, end], [0, 1])
        axes.imshow([[shade, 0], [1, 0]], extent=(0, 1, 0, 1))
        axes.set(xlim=(0, 2), xticks=[1], xticklabels=[label])
        return figure_svg(figure)

    # The same bytes, then other bytes within rounding, other names of parts included.
    assert drawn(1) == drawn(1)
    assert drawn(1 + 2e-4) != drawn(1)
    assert alike(drawn(1), drawn(1 + 2e-4))
    assert not alike(drawn(1), drawn(1.1))
    assert not alike(drawn(1), drawn(1, "0.51"))
    assert not alike(drawn(1), drawn(1, shade=0.6))


def test_line_endings_do_not_matter(built_checkout):
    for path in (chapter(built_checkout).source_path, chapter(built_checkout).notebook_path):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert chapter(built_checkout).stale() == ("", False)


def test_the_address_is_one_setting_and_is_taken_over_without_execution(built_checkout, build):
    project = built_checkout / "pyproject.toml"
    notebook = chapter(built_checkout).notebook_path
    before = notebook.read_bytes()
    text = project.read_text(encoding="utf-8")
    addition = '\n[project.urls]\nRepository = "https://github.com/o/book"\n'
    project.write_text(text + addition, encoding="utf-8")
    build(built_checkout)
    assert "https://github.com/o/book" in notebook.read_text(encoding="utf-8")
    project.write_text(text, encoding="utf-8")
    build(built_checkout)
    assert notebook.read_bytes() == before


def module_meaning(text):
    return source.ast_fingerprint(ast.parse(text))


def test_what_a_cell_and_a_module_mean():
    for one, other in (
        ("x;", "x"),
        ('"shown"', '"other"'),
        ("%pip list", "%pip freeze"),
        ('f"{x:.2f}"', 'f"{x:.3f}"'),
    ):
        assert cell_meaning(one) != cell_meaning(other)
    assert module_meaning('class A:\n    "One."\n    x = 1') == module_meaning("class A:\n    x=1")
    forms = ["x + y", "x - y", "x < y", "x <= y", "y + x", "x + -y", "x and y", "x or y", "x(y)"]
    forms += ["def f(a, *, b): ...", "def f(a, b): ...", "x = 1", "x = 1.0", "x = True"]
    forms += ["x = 'a'", "x = a", "x: float = 1.0", "x: float = 2.0", "x = 1\npass"]
    assert len({module_meaning(form) for form in forms}) == len(forms)


def test_the_meaning_is_written_the_same_by_every_python():
    assert module_meaning('"""Doc."""\ndef f(x, *, y=1.0): return f"{x:>{y}.2f}a"\n') == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')],"
        "kwonlyargs=[arg(arg='y')],kw_defaults=[1.0]),body=[Return(value=JoinedStr(values=["
        "FormattedValue(value=Name(id='x'),conversion=-1,format_spec=JoinedStr(values=['>',"
        "FormattedValue(value=Name(id='y'),conversion=-1),'.2f'])),'a']))])])"
    )


FILES = {
    "__init__.py": '"""All."""\n__version__ = "1"\n',
    "a/one.py": "from spinformer.b.three import k\n\ndef f(): ...\n",
    "a/two.py": "from spinformer.b import three\ndef g(): ...\n",
    "a/data.txt": "words\n",
    "b/three.py": "k = 1\n",
}


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("from spinformer.a.two import g", {"a/two.py", "b/three.py", "a/data.txt"}),
        ("if True:\n    from spinformer.a import two", {"a/two.py", "b/three.py", "a/data.txt"}),
        ("import spinformer.b.three", {"b/three.py"}),
        ("from spinformer import a", set()),
        ("import numpy", set()),
    ],
)
def test_only_what_changes_the_meaning_of_what_is_imported_changes_the_digest(
    small_checkout, tmp_path, monkeypatch, code, needed
):
    monkeypatch.setattr(source, "SOURCE", tmp_path)
    for name, text in FILES.items():
        path = tmp_path / "spinformer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    edit(chapter(small_checkout).source_path, "from bookmaker.base import Fault", code)
    digest = chapter(small_checkout).digest
    for name, old in FILES.items():
        path = tmp_path / "spinformer" / name
        quiet = f'"""Doc."""\n# why\n{old}' if name.endswith(".py") else old.replace("\n", "\r\n")
        path.write_bytes(quiet.encode())
        assert chapter(small_checkout).digest == digest, name
        path.write_text(f"{old}x = 2\n", encoding="utf-8")
        assert (chapter(small_checkout).digest != digest) == (name in needed), name
        path.write_text(old, encoding="utf-8")


def test_a_template_of_the_tool_decides_no_number(small_checkout, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "SOURCE", tmp_path)
    (tmp_path / "bookmaker").mkdir()
    (tmp_path / "bookmaker" / "base.py").write_text("class Fault: ...\n", encoding="utf-8")
    digest = chapter(small_checkout).digest
    (tmp_path / "bookmaker" / "template.md").write_text("# A title\n", encoding="utf-8")
    assert chapter(small_checkout).digest == digest
    (tmp_path / "bookmaker" / "base.py").write_text("class Fault: x = 1\n", encoding="utf-8")
    assert chapter(small_checkout).digest != digest


def test_a_name_that_a_room_exports_stands_for_its_module():
    room = ast.parse("from spinformer.dmft import lyapunov_spectrum")
    module = ast.parse("from spinformer.dmft.lyapunov import lyapunov_spectrum")
    assert source.imported(room) == source.imported(module) != set()
    assert source.imported(ast.parse("from spinformer import core")) == set()
