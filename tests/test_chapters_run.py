"""The command line: list, run, build, and what is left behind when a run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

CLI = [sys.executable, "-m", "spinformer.chapters"]


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def printed(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


def test_list_shows_name_type_default_range_and_help(small_checkout: Path) -> None:
    text = call(small_checkout, "list").stdout
    assert "01_small: A small chapter" in text
    assert "beta = 1.5  (float in [0, 10])" in text
    assert "which landscape" in text


def test_papermill_itself_shows_the_same_parameters(small_checkout: Path) -> None:
    assert call(small_checkout, "build", "--no-progress").returncode == 0
    notebook = str(small_checkout / "notebooks" / "01_small.ipynb")
    papermill = [sys.executable, "-m", "papermill", "--help-notebook", notebook]
    text = subprocess.run(papermill, capture_output=True, text=True, check=True).stdout
    for line in (
        "beta: float (default 1.5)",
        "count: int (default 2)",
        'kind: str (default "flat")',
    ):
        assert line in text


def test_run_writes_notebook_and_page_with_the_values(small_checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["-p", "beta", "2", "-p", "kind", "steep", "-o", str(out), "--html"]
    result = call(small_checkout, "run", "01_small", *arguments)
    assert result.returncode == 0, result.stderr
    assert sorted(p.name for p in out.iterdir()) == ["01_small.html", "01_small.ipynb"]
    assert printed(out / "01_small.ipynb") == "steep 2.00\nsteep 2.00\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "bet", "2"], "Error: no parameter named bet; there are: beta, count, kind\n"),
        (["-p", "beta", "11"], "Error: beta must be float in [0, 10], got 11\n"),
        (["-p", "count", "x"], "Error: count must be int in [1, 100], got 'x'\n"),
    ],
)
def test_run_refuses_in_one_line_before_a_kernel_starts(
    small_checkout: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "out"
    result = call(small_checkout, "run", "01_small", *arguments, "-o", str(out))
    assert (result.returncode, result.stderr) == (2, message)
    assert not out.exists()


def test_run_refuses_unknown_chapter_and_the_committed_folder(small_checkout: Path) -> None:
    result = call(small_checkout, "run", "02_x", "-o", "out")
    assert result.returncode == 2
    assert "no chapter named '02_x'" in result.stderr
    result = call(small_checkout, "run", "01_small", "-o", "notebooks")
    assert result.returncode == 2
    assert "must not be the folder" in result.stderr


def test_build_executes_only_the_stale_and_changes_no_byte_the_second_time(
    small_checkout: Path,
) -> None:
    path = small_checkout / "notebooks" / "01_small.ipynb"
    assert "there is no notebook yet" in call(small_checkout, "build", "--no-progress").stdout
    first = path.read_bytes()
    assert b"flat 1.50" in first
    assert call(small_checkout, "check").returncode == 0
    assert "up to date" in call(small_checkout, "build", "--no-progress").stdout
    assert path.read_bytes() == first
    assert call(small_checkout, "build", "--all", "--no-progress").returncode == 0
    assert path.read_bytes() == first


def test_a_cell_that_writes_to_stderr_or_fails_keeps_the_old_notebook(small_checkout: Path) -> None:
    path = small_checkout / "notebooks" / "01_small.md"
    assert call(small_checkout, "build", "--no-progress").returncode == 0
    before = path.with_suffix(".ipynb").read_bytes()
    text = path.read_text(encoding="utf-8")
    for line, message in (
        ("import warnings; warnings.warn('late')", "writes to stderr"),
        ("1 / 0", "ZeroDivisionError"),
    ):
        path.write_text(f"{text}\n```{{code-cell}} ipython3\n{line}\n```\n", encoding="utf-8")
        result = call(small_checkout, "build", "--no-progress")
        assert result.returncode == 1
        assert message in result.stderr
        assert path.with_suffix(".ipynb").read_bytes() == before
        assert call(small_checkout, "check").returncode == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_build_leaves_nothing_half_written(
    small_checkout: Path, how: signal.Signals
) -> None:
    path = small_checkout / "notebooks" / "01_small.md"
    started = small_checkout / "started"
    sleep = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(30)"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n```{{code-cell}} ipython3\n{sleep}\n```\n", encoding="utf-8")
    process = subprocess.Popen(
        [*CLI, "build", "--no-progress"],
        cwd=small_checkout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert started.exists()
    os.killpg(process.pid, how)
    assert process.wait(timeout=60) != 0
    # The kernel runs in a session of its own; a killed parent does not take it along at once.
    assert [p.name for p in (small_checkout / "notebooks").iterdir()] == ["01_small.md"]
