"""The command line: list, run, build, and what is left behind when a run fails."""

import signal

import nbformat
import pytest
from papermill import inspect_notebook

from bookmaker import __main__ as command
from bookmaker import base, execution
from bookmaker.base import Lost, write_atomically
from bookmaker.tables import Table


def printed(path):
    notebook = nbformat.read(path, as_version=4)
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


def test_list_shows_name_type_default_range_and_help(built_checkout, call):
    other = call(built_checkout, "list", "02_other").stderr
    assert other == "Error: no chapter named '02_other'; there are: 01_small\n"
    text = call(built_checkout, "list").stdout
    assert "01_small: A small chapter" in text
    assert "beta = 1.5  (float in [0, 10])" in text
    assert "which landscape" in text
    assert 'requires kind == "flat" or count < 10 (steep is slow)' in text
    # papermill itself sees the same.
    seen = inspect_notebook(str(built_checkout / "notebooks" / "01_small.ipynb"))
    assert [(p["name"], p["inferred_type_name"], p["default"]) for p in seen.values()] == [
        ("beta", "float", "1.5"),
        ("count", "int", "2"),
        ("kind", "str", '"flat"'),
    ]


def test_run_writes_notebook_and_page_with_the_values(small_checkout, tmp_path, call):
    out = tmp_path / "out"
    arguments = ["-p", "beta", "2", "-p", "kind", "steep", "-o", str(out), "--html"]
    result = call(small_checkout, "run", "01_small", *arguments)
    assert result.exit_code == 0, result.stderr
    names = ["01_small.html", "01_small.ipynb", "mathjax"]
    assert sorted(p.name for p in out.iterdir()) == names
    assert "steep 2.00" in (out / "01_small.html").read_text(encoding="utf-8")
    assert printed(out / "01_small.ipynb") == "steep 2.00\nsteep 2.00\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-p bet 2", "01_small: no parameter named bet; there are: beta, count, kind"),
        (f"-p beta 1{400 * '0'}", f"01_small: beta must be float in [0, 10], got 1{59 * '0'}"),
        (
            "-p kind steep -p count 10",
            '01_small: the chapter requires kind == "flat" or count < 10 (steep is slow), '
            "got kind = 'steep', count = 10",
        ),
        ("-p beta 1 -p beta 2", "a parameter is given twice among beta, beta"),
        ("-o notebooks", "output must not be the folder of the committed notebooks"),
        ("-o README.md/out", "[Errno 20] Not a directory: 'README.md/out'"),
        (f"-o {300 * 'x'}", f"[Errno 36] File name too long: '{300 * 'x'}'"),
    ],
)
def test_run_refuses_in_one_line_before_a_kernel_starts(
    small_checkout, monkeypatch, call, arguments, message
):
    monkeypatch.setattr(execution, "execute", lambda *a, **k: pytest.fail("executed"))
    result = call(small_checkout, "run", "01_small", "-o", "out", *arguments.split())
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}\n")
    assert not (small_checkout / "out").exists()


def add_cell(checkout, lines):
    path = checkout / "notebooks" / "01_small.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n```{{code-cell}} ipython3\n{lines}\n```\n", encoding="utf-8")


def test_a_failed_run_leaves_the_notebook_as_far_as_it_came(small_checkout, call):
    add_cell(small_checkout, "x = 1\n1 / 0")
    result = call(small_checkout, "run", "01_small", "-p", "beta", "2", "-o", "out")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: notebooks/01_small.md:38: ZeroDivisionError: division by zero\n"
        "The notebook as far as it came: out/01_small.ipynb\n"
    )
    assert printed(small_checkout / "out" / "01_small.ipynb") == "flat 2.00\nflat 2.00\n"


def test_build_executes_only_the_stale_and_one_that_cannot_be_read_hides_no_other(
    built_checkout, call
):
    path = built_checkout / "notebooks" / "01_small.ipynb"
    first = path.read_bytes()
    assert "0 of 1 chapters" in call(built_checkout, "build").stdout
    assert path.read_bytes() == first
    # A merge left conflicts in it.
    path.write_bytes(first.replace(b'"cells"', b'<<<<<<< HEAD\n"cells"\n=======', 1))
    path.with_name("00_bad.md").write_bytes(b"# Bad\n\n\xff\n")
    result = call(built_checkout, "build")
    assert result.exit_code == 1
    assert "notebooks/00_bad.md:1: the file cannot be read: 'utf-8' codec" in result.stderr
    assert "01_small: notebooks/01_small.ipynb cannot be read" in result.stdout
    assert "1 of 2 chapters" in result.stdout
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("x = 1\nimport warnings; warnings.warn('late')", ":37: the cell writes to stderr"),
        ("%notmagic", ":37: the cell writes to stderr: UsageError: Line magic function"),
        ("import os; os._exit(1)", ":37: the kernel died in this cell"),
    ],
)
def test_a_cell_that_writes_to_stderr_or_fails_keeps_the_old_notebook(
    built_checkout, call, lines, message
):
    path = built_checkout / "notebooks" / "01_small.ipynb"
    before = path.read_bytes()
    add_cell(built_checkout, lines)
    result = call(built_checkout, "build")
    assert result.exit_code == 1
    assert f"Error: notebooks/01_small.md{message}" in result.stderr
    assert path.read_bytes() == before


def test_a_worker_that_died_is_said_in_a_line_and_a_build_that_is_ended_writes_nothing(
    built_checkout, call, monkeypatch
):
    path = built_checkout / "notebooks" / "01_small.ipynb"
    before = path.read_bytes()

    def die(**_):
        raise Lost("the worker died here")

    monkeypatch.setattr(command, "rebuild", die)
    result = call(built_checkout, "build", "--all")
    assert (result.exit_code, result.stderr) == (1, "Error: 01_small: the worker died here\n")
    table = Table(path=built_checkout / "squares.csv", units=[{"x": 1}], rows=die)
    monkeypatch.setattr(command, "tables_of", lambda _: {"squares": table})
    result = call(built_checkout, "table", "01_small", "squares")
    assert (result.exit_code, result.stderr) == (1, "Error: the worker died here\n")
    # A batch system ends it while it writes.
    monkeypatch.setattr(base.os, "replace", lambda *_: signal.raise_signal(signal.SIGTERM))
    source = path.with_suffix(".md")
    source.write_text(source.read_text(encoding="utf-8") + "\nMore prose.\n", encoding="utf-8")
    result = call(built_checkout, "build")
    assert result.exit_code == 130
    assert result.stderr == "stopped: what is finished is kept; the same command goes on\n"
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == [path, source]


@pytest.mark.nightly
def test_chapters_that_several_processes_build_are_the_same(built_checkout, call):
    pytest.importorskip("distributed")
    folder = built_checkout / "notebooks"
    before = (folder / "01_small.ipynb").read_bytes()
    bad = (folder / "01_small.md").read_text(encoding="utf-8").replace("range(count)", "range(x)")
    (folder / "02_bad.md").write_text(bad, encoding="utf-8")
    result = call(built_checkout, "build", "--all", "--jobs", "2")
    assert result.exit_code == 1
    assert "01_small: written\n" in result.stdout
    assert "Error: notebooks/02_bad.md:32: NameError: name 'x' is not defined" in result.stderr
    assert (folder / "01_small.ipynb").read_bytes() == before


def test_who_reads_a_file_while_it_is_replaced_keeps_the_old_one(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
