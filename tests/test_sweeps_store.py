"""What is finished stays finished: whoever dies, and wherever in a line."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookmaker.sweeps.store import Store, StoreError, read_store

ABOUT = {"work": "squares"}
HOLD = """
import sys, time
from pathlib import Path
from bookmaker.sweeps.store import Store

with Store(Path(sys.argv[1]), about={"work": "squares"}) as store:
    print("here", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes: writes end as on a full disk, in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_store_cut_anywhere_loses_only_the_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "squares"
    whole = {"1": 1, "ü": {"a": [2.5, float("inf")]}, "3": "nine\n"}
    with Store(path, about=ABOUT) as store:
        store.add({"1": 1})
        store.add({"ü": whole["ü"], "3": whole["3"]})
    data = path.read_bytes()
    assert read_store(path) == (ABOUT, whole)
    begin = data.index(b"\n") + 1
    for length in range(begin, len(data) + 1):
        path.write_bytes(data[:length])
        count = data[begin:length].count(b"\n")
        with Store(path, about=ABOUT) as store:
            assert store.done == dict(list(whole.items())[:count])
            store.add({"9": 81})
        assert read_store(path)[1] == dict(list(whole.items())[:count]) | {"9": 81}
    # What a machine that goes down leaves: a line of zeros.
    path.write_bytes(data + bytes(20) + b"\n")
    with Store(path, about=ABOUT) as store:
        assert store.done == whole
    assert path.read_bytes() == data


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "squares"
    with Store(path, about=ABOUT) as store:
        store.add({"1": 1})
        size = path.stat().st_size
        with largest_file(size + 5), pytest.raises(OSError, match="squares") as caught:
            store.add({"2": "four"})
        assert caught.value.filename == str(path)
        assert path.stat().st_size == size
        assert store.done == {"1": 1}
        store.add({"3": 9})
    assert read_store(path)[1] == {"1": 1, "3": 9}


def test_one_process_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "squares"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    with pytest.raises(StoreError, match="another process is at work on"), Store(path, about=ABOUT):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with Store(path, about=ABOUT) as store:
        store.add({"1": 1})
        # Removed as finished by who waited for nobody: the next one begins anew.
        store.remove()
        with Store(path, about=ABOUT) as other:
            assert other.done == {}


def test_other_work_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "squares"
    for text in (json.dumps({"work": "cubes"}) + "\n", '{"{}": []}\n', "no store\n", ""):
        path.write_text(text)
        with pytest.raises(StoreError, match="not to work squares"), Store(path, about=ABOUT):
            pass
        assert path.read_text() == text
