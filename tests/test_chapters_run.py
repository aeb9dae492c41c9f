"""The command line: list, run, build, and what is left behind when a run fails."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from papermill import inspect_notebook
from test_book_of_one_chapter import read_links

from bookmaker import base, command, execution
from bookmaker.base import WorkerDied, write_atomically
from bookmaker.execution import write_page
from bookmaker.source import _INSTALL, Chapter
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
    page = (out / "01_small.html").read_text(encoding="utf-8")
    assert "steep 2.00" in page
    # Between the title and everything else.
    begin = page.index("<body")
    told = page.index("Run with other parameters", begin)
    assert page.index("A small chapter", begin) < told < page.index("Builds on", begin)
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
        ("-o notebooks", "output must not be a folder of the project itself, got notebooks"),
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


def test_own_folders_are_those_of_the_checkout(root):
    """All folders that are committed at the top, and those that are made there."""
    command = ["git", "ls-tree", "-d", "--name-only", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no git checkout")
    assert {*done.stdout.split(), "_build", ".venv", ".git"} <= set(base.OWN_FOLDERS)


def test_a_page_with_other_parameters_says_so_at_its_top(small_checkout, tmp_path):
    chapter = Chapter(small_checkout, "01_small")
    told = execution.parameters_told(chapter, {"beta": 2.0, "count": 2, "kind": "steep"})
    assert "`beta` = `2.0` (default `1.5`), `kind` = `'steep'` (default `'flat'`)" in told
    for word in ("text", "claims", "stored tables", "defaults"):
        assert word in told
    assert "count" not in told
    assert execution.parameters_told(chapter, {"beta": 1.5}) == ""
    assert execution.parameters_told(chapter, {}) == ""


@pytest.mark.parametrize("name", ["10_attention/..", "10_attention/", "..", "", "common", "x\0"])
def test_a_table_is_asked_for_by_the_name_of_a_chapter(small_checkout, call, name):
    result = call(small_checkout, "table", name)
    assert result.exit_code == 2
    told = f"Error: no folder of stored tables for {name!r}; there are: 10_attention, 11"
    assert result.stderr.startswith(told)


@pytest.mark.parametrize("library", ["click", "nbformat", "papermill", "yaml"])
def test_without_its_libraries_the_command_names_the_extra(library):
    code = f"import sys; sys.modules[{library!r}] = None; sys.argv = ['bookmaker', 'check']; "
    code += "from bookmaker.__main__ import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert done.stderr == (
        f"Error: {library} is missing: bookmaker needs the libraries of the extra `book`, "
        "`pip install 'spinformer[book]'` or, in a checkout, `pip install '.[book]'`\n"
    )


def test_ctrl_c_while_libraries_are_imported_is_a_line():
    """Also where a library would make an error of its own of it."""
    code = "import os, signal, sys, types\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "class Pressed:\n"
    code += "    def find_spec(self, name, path=None, target=None):\n"
    code += "        if name == 'bookmaker.command':\n"
    code += "            os.kill(os.getpid(), signal.SIGINT)\n"
    code += "sys.meta_path.insert(0, Pressed())\n"
    code += "from bookmaker.__main__ import main\nmain()\n"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "stopped: nothing was written\n")


def test_a_run_that_is_stopped_leaves_nothing_that_complains(small_checkout, monkeypatch):
    """No task that waits for a kernel, and no kernel with a way to the terminal."""
    loop = ensure_event_loop()
    waiting = []
    options = {}
    started = {}

    def stop(*_, **given):
        options.update(given)
        waiting.append(loop.create_task(asyncio.sleep(60)))
        loop.run_until_complete(asyncio.sleep(0))
        raise KeyboardInterrupt

    async def start(_, **given):
        started.update(given)

    monkeypatch.setattr(execution.papermill, "execute_notebook", stop)
    with pytest.raises(KeyboardInterrupt):
        execution.execute(Chapter(small_checkout, "01_small"), {})
    assert waiting[0].cancelled()
    monkeypatch.setattr(AsyncKernelManager, "start_kernel", start)
    loop.run_until_complete(options["kernel_manager_class"]().start_kernel(env={}))
    assert started == {"env": {}, "stderr": subprocess.DEVNULL}


def test_a_page_that_finds_no_room_is_told_in_a_sentence(small_checkout, call, monkeypatch):
    """The files beside it, too; the notebook, which was there before, is kept."""
    write = base.write_atomically

    def full(path, content):
        if "mathjax" in str(path):
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(execution, "write_atomically", full)
    result = call(small_checkout, "run", "01_small", "-p", "beta", "2", "-o", "out", "--html")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"Error: the page could not be written, \[Errno 28\] No space left on device: "
        r"'out/mathjax/.*'; out/01_small.ipynb is kept\n",
        result.stderr,
    )
    assert "Run with other parameters" in (small_checkout / "out" / "01_small.ipynb").read_text()


def test_a_file_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(base.Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"):
        write_atomically(tmp_path / "a.txt", "x")


def add_cell(checkout, lines):
    path = checkout / "notebooks" / "01_small.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n```{{code-cell}} ipython3\n{lines}\n```\n", encoding="utf-8")


def test_a_failed_run_leaves_the_notebook_as_far_as_it_came(small_checkout, call):
    add_cell(small_checkout, "x = 1\n1 / 0")
    result = call(small_checkout, "run", "01_small", "-p", "beta", "2", "-o", "out")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: notebooks/01_small.md:45: ZeroDivisionError: division by zero\n"
        "The notebook as far as it came: out/01_small.ipynb\n"
    )
    assert printed(small_checkout / "out" / "01_small.ipynb") == "flat 2.00\nflat 2.00\n"


def test_a_run_draws_into_the_notebook_whatever_backend_the_environment_names(
    small_checkout, call, monkeypatch
):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    add_cell(small_checkout, "import matplotlib.pyplot as plt\nplt.plot([0, 1])\nplt.show()")
    assert call(small_checkout, "run", "01_small", "-o", "out").exit_code == 0
    last = nbformat.read(small_checkout / "out" / "01_small.ipynb", as_version=4).cells[-1]
    assert any("image/png" in output.get("data", {}) for output in last.outputs)


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
        ("x = 1\nimport warnings; warnings.warn('late')", ":44: the cell writes to stderr"),
        ("%notmagic", ":44: the cell writes to stderr: UsageError: Line magic function"),
        ("import os; os._exit(1)", ":44: the kernel died in this cell"),
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
        raise WorkerDied("the worker died here")

    monkeypatch.setattr(command, "rebuild", die)
    result = call(built_checkout, "build", "--all")
    assert (result.exit_code, result.stderr) == (1, "Error: 01_small: the worker died here\n")
    table = Table(path=built_checkout / "squares.csv", units=[{"x": 1}], rows=die, seconds=1)
    monkeypatch.setattr(command, "tables_of", lambda _: {"squares": table})
    result = call(built_checkout, "table", "01_small", "squares")
    assert (result.exit_code, result.stderr) == (1, "Error: the worker died here\n")
    # A batch system ends it while it writes.
    monkeypatch.setattr(base.os, "replace", lambda *_: signal.raise_signal(signal.SIGTERM))
    source = path.with_suffix(".md")
    source.write_text(source.read_text(encoding="utf-8") + "\nMore prose.\n", encoding="utf-8")
    result = call(built_checkout, "build")
    assert result.exit_code == 130
    assert result.stderr == (
        "stopped: the chapters that are finished are kept in notebooks; the same command goes on\n"
    )
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == [path, source]


def test_the_small_unit_of_a_table_is_made_by_its_command(built_checkout, call, monkeypatch):
    path = built_checkout / "squares.csv"
    made = {"path": path, "units": [{"x": 5}], "rows": lambda x: [{"y": x**2}], "seconds": 1.0}
    tables = {"squares": Table(**made, small={"x": 2}), "cubes": Table(**made)}
    monkeypatch.setattr(command, "tables_of", lambda _: tables)
    result = call(built_checkout, "table", "01_small", "squares", "--small")
    assert result.exit_code == 0, result.output
    assert path.with_name("squares.small.csv").read_text("utf-8").splitlines()[1:] == ["x,y", "2,4"]
    assert not path.exists()
    result = call(built_checkout, "table", "01_small", "cubes", "--small")
    assert result.exit_code != 0
    assert "Error: 01_small has the tables with a small unit squares\n" in result.stderr


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
    assert "Error: notebooks/02_bad.md:39: NameError: name 'x' is not defined" in result.stderr
    assert (folder / "01_small.ipynb").read_bytes() == before


def test_who_reads_a_file_while_it_is_replaced_keeps_the_old_one(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX environment is laid out")
SCRIPT = """\
import importlib.util
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
before = importlib.util.find_spec("spinformer") is not None
result = shell.run_cell({source!r})
importlib.invalidate_caches()
print(before, result.success, importlib.util.find_spec("spinformer") is not None)
"""


def run_cell(folder, address):
    """Run the install cell in `folder` with every library at hand except the package."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*")) / "site-packages"
    # A path listed here is not searched for path files of its own, so the libraries of this
    # environment are visible and its editable install of the package is not.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SPINFORMER_REPOSITORY": address,
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    command = [str(python), "-c", SCRIPT.format(source=_INSTALL.replace("ADDRESS", ""))]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=folder, env=variables, timeout=300, **out).stdout


@pytest.mark.nightly
def test_installs_from_a_git_address(root, tmp_path):
    if not (root / ".git").exists():
        pytest.skip("installing from git needs a git checkout of the book")
    text = run_cell(tmp_path, f"file://{root}")
    assert text.strip().endswith("False True True"), text


def test_says_what_to_do_while_there_is_no_address(tmp_path):
    text = run_cell(tmp_path, "")
    assert "spinformer is missing: run `pip install '.[chapters]'` in its checkout" in text
    assert text.strip().endswith("False False False"), text


PROSE = r"""
See {cite}`bal2021transformers` and [](../notebooks/01_small.md), [the claims](../book/claims.md),
[](#eq-small).

$$ E = \tfrac12 $$ (eq-small)

:::{admonition} Summary
A box.
:::
"""
FIGURE = """\
---
mystnb:
  figure:
    name: fig-small
    caption: What the figure says.
  image:
    alt: A single gray point.
---
from"""


def test_page_needs_nothing_from_elsewhere_and_resolves_what_the_source_writes(
    small_checkout, tmp_path
):
    chapter = Chapter(small_checkout, "01_small")
    text = chapter.source_path.read_text(encoding="utf-8")
    text = text.replace("# A small chapter\n", f"# A small chapter\n{PROSE}")
    text = text.replace("```{code-cell} ipython3\nfrom", f"```{{code-cell}} ipython3\n{FIGURE}")
    chapter.source_path.write_text(text, encoding="utf-8")
    notebook = nbformat.from_dict(chapter.template)
    image = nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg><path/></svg>"})
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="flat 1.50\n"), image]
    page = write_page(chapter, notebook, tmp_path)
    text = page.read_text(encoding="utf-8")
    targets = [target for target in read_links(page).targets if target[0] != "#"]
    assert any("mathjax" in target for target in targets)
    for target in targets:
        assert target.startswith("data:") or (page.parent / target).is_file(), target
    assert "https://cdn" not in text
    body = " ".join(re.sub(r"<[^>]+>", "", text[text.index("<body") :]).split())
    assert "See [bal2021transformers] and 01_small, the claims" in body
    for told in ('<div class="box">', "<strong>Summary</strong>", 'id="eq-small"'):
        assert told in text
    for told in ('aria-label="A single gray point."', "<title>A small chapter"):
        assert told in text
    for raw in ("{cite", ":::", "find_spec"):
        assert raw not in text
    assert "What the figure says." in body
    assert "flat 1.50" in body
