"""A chapter at many points: what runs, what is skipped, what fails alone, what is left behind."""

import csv
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import nbformat
import pytest

from bookmaker import command, execution, sweeping
from bookmaker.base import RunError
from bookmaker.claims import Claim, read_claims, results
from bookmaker.figures import FIGURES
from bookmaker.source import Chapter, read_notebook
from bookmaker.sweeping import POINTS, TABLE, read_points, sweep_chapter
from bookmaker.sweeps.engine import Workers

# A last cell: it notes that it was begun, waits, fails at 7, dies at 8 and has a result.
LAST_CELL = """
```{code-cell} ipython3
:tags: [results]

import os, time
with open(os.environ["SWEEP_LOG"], "a") as file:
    file.write(f"{beta:g}\\n")
time.sleep(float(os.environ.get("SWEEP_PAUSE", "0")))
if beta == 7:
    raise ValueError("seven")
if beta == 8:
    os.kill(os.getpid(), 9)
display({"application/vnd.spinformer.figures+json": {"double": 2 * beta}}, raw=True)
```
"""


def handed(**figures):
    """The output of a cell that hands figures over."""
    return nbformat.v4.new_output("display_data", data={FIGURES: figures})


@pytest.fixture
def chapter(small_checkout, monkeypatch):
    """The small chapter with a result; it notes in the file `log` which points were begun."""
    monkeypatch.setenv("SWEEP_LOG", str(small_checkout / "log"))
    path = small_checkout / "notebooks" / "01_small.md"
    path.write_text(path.read_text(encoding="utf-8") + LAST_CELL, encoding="utf-8")
    return Chapter(small_checkout, "01_small")


def rows(folder):
    with (folder / TABLE).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def swept(chapter, folder, points, **options):
    """What a sweep in this process reports."""
    return sweep_chapter(chapter, folder, points, workers=Workers(), **options)


@pytest.fixture
def no_kernel(monkeypatch):
    """Replace execution; the values that were to be run with."""
    ran: list[dict[str, Any]] = []

    def execute(chapter, values, **_):
        ran.append(values)
        notebook = nbformat.from_dict(chapter.template)
        notebook.cells[-1].outputs = [handed(double=2 * values["beta"])]
        return notebook, None

    monkeypatch.setattr(sweeping, "execute", execute)
    return ran


def test_ranges_and_lists_multiply_and_doubles_count_once(chapter):
    found = read_points(chapter, {"beta": "1.2:1.3:11", "count": "1:5:3"})
    values = [tuple(point.values.values()) for point in found]
    betas = [1.2, 1.21, 1.22, 1.23, 1.24, 1.25, 1.26, 1.27, 1.28, 1.29, 1.3]
    assert values == [(beta, count, "flat") for beta in betas for count in (1, 3, 5)]
    words = read_points(chapter, {"kind": "flat,steep", "count": "2"})
    assert [point.asked for point in words] == ["kind = flat, count = 2", "kind = steep, count = 2"]
    # The default, asked for or not, is one point.
    assert len(read_points(chapter, {"beta": "1.5,1.50,2"})) == 2
    assert read_points(chapter, {}) == [
        replace(read_points(chapter, {"beta": "1.5"})[0], asked="the defaults")
    ]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("bet", "1"), "no parameter named bet; there are: beta, count, kind"),
        (("beta", "1:2"), "beta: a range reads low:high:count"),
        *(
            (("beta", text), "beta: a range reads low:high:count, 40:80:5 say for five values from")
            for text in (
                *("1:2:x", "0:1:0", "0:1:-1", "0:1:1000000000", "0:1:100001", "0:1:2.0", "٠:1:2"),
                *("0:1_0:2", "nan:1:2", "0:inf:2", "1e308:-1e308:3", "1e999:0:2", "::", "0:1:2:3"),
                "0:1:" + 5000 * "9",
            )
        ),
        (("beta", ",".join(2 * ["0:1:60000"])), "120000 points are asked for, at most 100000"),
        (("count", "1.2:1.4:2"), "count must be int in [1, 100], got 1.2"),
    ],
)
def test_what_can_be_no_point_is_refused_before_anything_starts(chapter, call, pair, message):
    result = call(chapter.root, "sweep", "01_small", "-p", *pair, "-o", "out")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (chapter.root / "out").exists()


@pytest.mark.parametrize("failed", [0, 2])
def test_a_sweep_with_failed_points_ends_with_one(chapter, call, monkeypatch, failed):
    monkeypatch.setattr(command, "sweep_chapter", lambda *_, **__: ("3 points", failed))
    result = call(chapter.root, "sweep", "01_small", "-p", "beta", "1,2,3", "-o", "out")
    assert result.exit_code == min(failed, 1)


def test_a_sweep_says_how_many_points_there_are(chapter, call, no_kernel):
    arguments = ("-p", "beta", "4:8:5", "-o", "out", "--workers", "0")
    told = call(chapter.root, "sweep", "01_small", *arguments).stdout
    assert told.startswith("5 points, from beta = 4 to beta = 8\n")
    for own in (
        ".",
        "notebooks",
        "src/x",
        "tests",
        "book/sweep",
        "_build",
        "benchmarks",
        ".git",
        "x/../book",
    ):
        result = call(chapter.root, "sweep", "01_small", *arguments, "-o", own)
        assert result.exit_code == 2
        assert (
            result.stderr
            == f"Error: output must not be a folder of the project itself, got {own}\n"
        )


def test_a_point_that_is_not_allowed_fails_alone_before_its_kernel(chapter, tmp_path, no_kernel):
    pandas = pytest.importorskip("pandas")
    points = read_points(chapter, {"beta": "1,11,2", "kind": "flat,steep"})
    told, _ = swept(chapter, tmp_path / "out", points)
    assert [values["beta"] for values in no_kernel] == [1.0, 1.0, 2.0, 2.0]
    assert "6 points: 4 computed now, 0 there already, 2 refused; 2 failed" in told
    assert "beta = 11, kind = flat: 01_small: beta must be float in [0, 10], got 11" in told
    frame = eval(told.splitlines()[-1], {"pandas": pandas})
    assert frame.point.tolist() == [point.key for point in points]
    assert frame.error.isna().tolist() == [True, True, False, False, True, True]
    assert frame.double[frame.error.isna()].tolist() == [2.0, 2.0, 4.0, 4.0]
    assert frame.kind.tolist() == 3 * ["flat", "steep"]


def test_a_sweep_grows_and_the_table_is_that_of_one_command(chapter, tmp_path, no_kernel):
    for values in ("2,1", "1,2,3", "3,1,2"):
        points = read_points(chapter, {"beta": values})
        swept(chapter, tmp_path / "grown", points)
    assert len(no_kernel) == 3
    swept(chapter, tmp_path / "once", points)
    for row, other in zip(rows(tmp_path / "grown"), rows(tmp_path / "once"), strict=True):
        assert row | {"seconds": ""} == other | {"seconds": ""}
    # What is not asked for any more stands behind.
    swept(chapter, tmp_path / "grown", points[:1])
    betas = [row["beta"] for row in rows(tmp_path / "grown")]
    assert (betas[0], sorted(betas)) == ("3.0", ["1.0", "2.0", "3.0"])


def test_a_point_that_failed_is_tried_again_when_asked_for(
    chapter, tmp_path, no_kernel, monkeypatch
):
    points = read_points(chapter, {"beta": "1,2"})
    good = sweeping.execute

    def execute(chapter, values):
        return (chapter.template, RunError("two")) if values["beta"] == 2 else good(chapter, values)

    monkeypatch.setattr(sweeping, "execute", execute)
    for again, computed, failed in ((False, 2, 1), (False, 0, 1), (True, 1, 1), (True, 1, 0)):
        if not failed:
            monkeypatch.setattr(sweeping, "execute", good)
        told, count = swept(chapter, tmp_path / "out", points, again=again)
        assert f" {computed} computed now" in told
        assert count == failed


def test_on_a_full_disk_what_is_finished_stays(chapter, tmp_path, no_kernel, monkeypatch, call):
    write = sweeping.write_atomically
    folder = tmp_path / "out"
    points = read_points(chapter, {"beta": "1,2,3"})

    def full(path, content):
        if list((folder / POINTS).glob("*.ipynb")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    monkeypatch.setattr(sweeping, "write_atomically", full)
    with pytest.raises(OSError, match="No space left on device"):
        swept(chapter, folder, points)
    # In one sentence, with the place.
    arguments = ("-p", "beta", "1,2,3", "-o", str(folder), "--workers", "0")
    result = call(chapter.root, "sweep", "01_small", *arguments)
    assert result.exit_code == 2
    assert re.fullmatch(
        r"Error: \[Errno 28\] No space left on device: '.*'; what is finished is kept in "
        rf"{folder / POINTS}; the same command goes on\n",
        result.stderr,
    )
    monkeypatch.undo()
    monkeypatch.setattr(sweeping, "execute", lambda *_: pytest.fail("computed again"))
    with pytest.raises(BaseException, match="computed again"):
        swept(chapter, folder, points)
    swept(chapter, folder, points[:1])
    assert [row["double"] for row in rows(folder)] == ["2.0"]


def test_code_that_changed_is_refused(chapter, tmp_path, no_kernel):
    points = read_points(chapter, {"beta": "1"})
    swept(chapter, tmp_path / "out", points)
    text = chapter.text.replace("2 * beta", "3 * beta")
    chapter.source_path.write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"belongs to .*, not to .*: choose another folder"):
        swept(Chapter(chapter.root, chapter.name), tmp_path / "out", points)
    # A worker that has other code than the driver had at the start.
    with pytest.raises(RunError, match="changed during the sweep"):
        sweeping.run_point(root=str(chapter.root), name=chapter.name, values={}, code="0")


@pytest.mark.parametrize("text", ["[]", "{}", "3", "null", '{"error": ""}', "[" * 9000, '"x"'])
def test_a_stored_row_that_is_damaged_is_computed_again(chapter, tmp_path, no_kernel, call, text):
    points = read_points(chapter, {"beta": "1,2"})
    swept(chapter, tmp_path / "out", points)
    whole = (tmp_path / "out" / TABLE).read_text()
    first, second = (tmp_path / "out" / POINTS / f"{point.key}.json" for point in points)
    # That of another point is not this one's either.
    for damaged in (text, second.read_text()):
        first.write_text(damaged)
        dry = ("sweep", "01_small", "-p", "beta", "1,2", "--dry-run", "-o", str(tmp_path / "out"))
        assert call(chapter.root, *dry).stdout == "beta = 1: to run\nbeta = 2: finished\n"
        told, failed = swept(chapter, tmp_path / "out", points)
        assert " 1 computed now, 1 there already" in told
        assert not failed
        table = (tmp_path / "out" / TABLE).read_text()
        assert [line.split(",")[:4] for line in table.splitlines()] == [
            line.split(",")[:4] for line in whole.splitlines()
        ]


def test_a_dry_run_lists_and_writes_nothing(chapter, call, no_kernel):
    swept(chapter, chapter.root / "out", read_points(chapter, {"beta": "1"}))
    arguments = ("01_small", "-p", "beta", "1,2,11", "--dry-run", "-o")
    for folder, now in (("other", "to run"), ("out", "finished")):
        found = call(chapter.root, "sweep", *arguments, folder).stdout
        assert found.startswith(
            f"beta = 1: {now}\nbeta = 2: to run\nbeta = 11: refused, 01_small: "
        )
    assert not (chapter.root / "other").exists()


def test_figures_of_claims_are_results_but_for_what_a_stored_table_holds():
    def cell(tag, **figures):
        made = nbformat.v4.new_code_cell("", metadata={"tags": [tag]})
        made.outputs = [handed(**figures)]
        return made

    ran = cell("results", rate=-1.5e-3, v2=7, word="warm")
    fit = cell("claim-A1", fit={"value": 3.1, "error": 0.2})
    notebook = nbformat.v4.new_notebook(cells=[ran, fit])
    figures = {"slope": "fit", "error": "fit.error"}

    def found(limit=3, **row):
        claim = Claim("A1", "It rises.", "holds", "01_small", "", figures=figures,
                      criterion=f"slope > {limit} and error < 1", **row)  # fmt: skip
        return results(notebook, [claim])

    own = {"rate": "-0.0015", "v2": "7"}
    assert found() == own | {"A1.slope": "3.1", "A1.error": "0.2", "A1.met": "1"}
    assert found(limit=4)["A1.met"] == "0"
    assert found(stored=["error"]) == own | {"A1.slope": "3.1"}
    assert found(stored="all") == own


OFFER = re.compile(r"bookmaker sweep (\w+)((?: +-p [\w.]+[ =][^ \\`]+)*)")


def test_chapters_offered_for_sweeping_have_results_of_their_own(root):
    """Numbers of the run itself, in every chapter whose sweep a reader is told to type."""
    pages = [root / "README.md", *(root / "book").glob("*.md"), *(root / "notebooks").glob("*.md")]
    names = {n for page in pages for n, _ in OFFER.findall(page.read_text(encoding="utf-8"))}
    assert {"33_phase_transitions", "33b_lifetimes", "21_ising"} <= names
    claims = read_claims(root)
    for name in names:
        mine = [claim for claim in claims if claim.chapter == name]
        numbers = results(read_notebook(root / "notebooks" / f"{name}.ipynb"), mine)
        assert any(number.isidentifier() for number in numbers), name
        if name == "33_phase_transitions":
            # It prints shares and portraits from stored tables, whatever its parameters are.
            assert not any(number.startswith(("C9.", "C10.")) for number in numbers)
            wide = {name: float(text) for name, text in numbers.items() if "wide_" in name}
            assert 0.0 < wide.pop("wide_largest_exponent") < 1.0
            assert sum(wide.values()) == pytest.approx(1.0, abs=0.003)
            assert "C13.rate" in numbers


@pytest.mark.nightly
def test_a_table_of_points_that_end_in_every_way(chapter, call):
    pytest.importorskip("distributed")
    arguments = ("-p", "beta", "1,7,8", "-o", "out", "--workers", "2")
    result = call(chapter.root, "sweep", "01_small", *arguments)
    assert result.exit_code == 1
    assert "3 points: 3 computed now, 0 there already, 0 refused; 2 failed" in result.stdout
    folder = chapter.root / "out"
    good, raised, died = rows(folder)
    assert good["double"] == "2.0"
    assert float(good["seconds"]) > 0
    assert good["versions"].startswith("python ")
    assert raised["error"] == "notebooks/01_small.md:51: ValueError: seven"
    assert "the kernel died in this cell" in died["error"]
    assert Counter((chapter.root / "log").read_text().split()) == {"1": 1, "7": 1, "8": 3}
    names = {path.stem for path in (folder / POINTS).glob("*.ipynb")}
    assert names == {good["point"], raised["point"]}
    single, _ = execution.execute(chapter, {"beta": 1.0})
    stored = nbformat.read(folder / POINTS / f"{good['point']}.ipynb", as_version=4)
    assert [c.get("outputs") for c in stored.cells] == [c.get("outputs") for c in single.cells]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "workers"),
    [(signal.SIGKILL, 2), (signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGINT, 0)],
)
def test_a_sweep_that_is_stopped_goes_on(chapter, tmp_path, how, workers):
    pytest.importorskip("distributed")
    command = [sys.executable, "-m", "bookmaker", "sweep", "01_small", "-p", "beta", "1:3:3"]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "out"), "--workers", str(workers)],
        cwd=chapter.root,
        env=os.environ | {"SWEEP_PAUSE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts a process in the background lets it ignore this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    folder = tmp_path / "out" / POINTS
    deadline = time.monotonic() + 120
    while not list(folder.glob("p*.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # Ctrl-C goes to all processes of the terminal.
    os.killpg(process.pid, how) if how == signal.SIGINT else os.kill(process.pid, how)
    out, err = process.communicate(timeout=60)
    finished = {path.stem for path in folder.glob("p*.json")}
    assert 1 <= len(finished) < 3
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert "stopped: what is finished is kept in " in err
        # Nor does anything else complain: the kernel, the loop of its client.
        for word in ("Traceback", "ERROR", "Task", "Exception"):
            assert word not in out + err
        assert len(rows(tmp_path / "out")) == len(finished)
    points = read_points(chapter, {"beta": "1:3:3"})
    told, failed = swept(chapter, tmp_path / "out", points)
    assert f" {3 - len(finished)} computed now, {len(finished)} there already" in told
    assert not failed
    assert [row["double"] for row in rows(tmp_path / "out")] == ["2.0", "4.0", "6.0"]
    assert {path.stem for path in folder.glob("p*.*")} == {point.key for point in points}
