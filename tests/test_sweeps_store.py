"""What is finished stays finished: whoever dies, and wherever."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest

from bookmaker.base import RunError
from bookmaker.sweeps.engine import ABOUT, add, finished, writing

WORK = {"work": "squares"}
HOLD = """
import sys, time
from pathlib import Path
from bookmaker.sweeps.engine import writing

with writing(Path(sys.argv[1]), about={"work": "squares"}):
    print("here", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def largest_file(size):
    """Let no file grow beyond `size` bytes: writes end as on a full disk, in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_only_whole_results_have_a_final_name(tmp_path):
    """On a full disk nothing is left; a file that the machine cut when it went down is not done."""
    folder = tmp_path / "squares"
    whole = {"p1": 1, "p2": {"ü": [2.5, float("inf")]}, "p3": "nine\n"}
    with writing(folder, about=WORK):
        for key, result in whole.items():
            add(folder, key, result)
        with largest_file(5), pytest.raises(OSError, match="File too large"):
            add(folder, "p4", "sixteen")
    assert sorted(path.name for path in folder.iterdir()) == [
        ABOUT, "p1.json", "p2.json", "p3.json"
    ]  # fmt: skip
    assert finished(folder) == whole
    for cut in ("", '{"ü": [2.5', "\0\0\0"):
        (folder / "p2.json").write_text(cut)
        assert set(finished(folder)) == {"p1", "p3"}


def test_one_process_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path):
    folder = tmp_path / "squares"
    command = [sys.executable, "-c", HOLD, str(folder)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    with (
        pytest.raises(RunError, match="another process is at work on"),
        writing(folder, about=WORK),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with writing(folder, about=WORK):
        add(folder, "p1", 1)
        # Removed as finished by who waited for nobody: the next one begins anew.
        shutil.rmtree(folder)
        with writing(folder, about=WORK):
            assert finished(folder) == {}


def test_other_work_is_refused_and_left_as_it_is(tmp_path):
    folder = tmp_path / "squares"
    folder.mkdir()
    for text in (json.dumps({"work": "cubes"}), "no store", ""):
        (folder / ABOUT).write_text(text)
        with pytest.raises(RunError, match=r"not to .*squares"), writing(folder, about=WORK):
            pass
        assert (folder / ABOUT).read_text() == text
