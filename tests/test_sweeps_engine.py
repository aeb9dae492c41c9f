"""The same values on Dask's workers as here, in whatever chunks, and whatever dies."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bookmaker.base import RunError
from bookmaker.sweeps.engine import ABOUT, LOCK, add, finished, locked_store, remove

pytest.importorskip("distributed")
import dask
from distributed import LocalCluster

from bookmaker.base import WorkerDied
from bookmaker.sweeps import engine
from bookmaker.sweeps.engine import Workers, stream, sweep


@pytest.fixture(scope="module")
def scheduler():
    """The address of a scheduler with two workers."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


def energy(seed, size):
    """Something whose last bits would show a different order of sums."""
    rng = np.random.default_rng(seed)
    couplings = rng.normal(size=(size, size))
    state = rng.normal(size=size)
    for _ in range(20):
        state = np.tanh(couplings @ state)
    return state.tobytes()


def logged(number, log, deadly, deaths):
    """Note that a unit was begun; at the unit `deadly` the first `deaths` processes die."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.05)
    if number == deadly and Path(log).read_text().split().count(str(number)) <= deaths:
        # What this worker finished before is fetched by then; else it would be lost with it.
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class Odd(Exception):
    """An error that cannot be sent: its arguments are not those of its constructor."""

    def __init__(self, number, text):
        super().__init__(f"{text} {number}")


def refuse(number):
    if number == 2:
        raise Odd(number, "odd")
    return number


def lose(number):
    raise WorkerDied(f"{number} is gone")


def fill(path):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_values_do_not_depend_on_chunks_and_workers(scheduler):
    units = [{"seed": seed, "size": 40} for seed in range(50)]
    here = sweep(energy, units)
    assert len(set(here)) == 50
    for chunk in (1, 7):
        assert sweep(energy, units, workers=Workers(scheduler=scheduler), chunk=chunk) == here


@pytest.mark.nightly
def test_a_worker_that_is_killed_costs_one_retry(scheduler, tmp_path):
    log = tmp_path / "log"
    units = [{"number": n, "log": str(log), "deadly": 3, "deaths": 1} for n in range(8)]
    assert sweep(logged, units, workers=Workers(scheduler=scheduler)) == list(range(8))
    assert Counter(log.read_text().split()) == {str(n): 1 + (n == 3) for n in range(8)}


@pytest.mark.nightly
def test_a_unit_that_kills_every_worker_is_lost_alone(tmp_path, monkeypatch, capsys):
    log = tmp_path / "log"
    units = [{"number": n, "log": str(log), "deadly": 3, "deaths": 9} for n in range(6)]
    monkeypatch.setattr(engine, "RETRIES", 1)
    # Workers of this machine are asked for, whatever cluster it is set up for.
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:9"}):
        found = dict(stream(logged, units, workers=Workers(count=2)))
    assert isinstance(found.pop(3), WorkerDied)
    assert found == {number: number for number in range(6) if number != 3}
    assert log.read_text().split().count("3") == 2
    assert capsys.readouterr().out.startswith("workers: 2, dashboard http://127.0.0.1:")


def test_of_a_chunk_that_is_lost_every_unit_is_told_and_no_more(scheduler):
    units = [{"number": number} for number in range(3)]
    found = dict(stream(lose, units, workers=Workers(scheduler=scheduler), chunk=2))
    assert sorted(found) == [0, 1, 2]
    assert all(isinstance(value, WorkerDied) for value in found.values())


def test_an_error_arrives_with_its_traceback(scheduler):
    units = [{"number": number} for number in range(5)]
    with pytest.raises(RunError, match=r"(?s)in refuse.*Odd: odd 2"):
        sweep(refuse, units, workers=Workers(scheduler=scheduler), chunk=5)
    with pytest.raises(Odd):
        sweep(refuse, units)


def test_workers_listen_on_this_machine_alone(monkeypatch):
    """The dashboard and every other port: whoever shares the network must not reach them."""
    psutil = pytest.importorskip("psutil")

    def listening():
        here = psutil.Process()
        found = set()
        for process in [here, *here.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                ports = getattr(process, "net_connections", None) or process.connections
                found |= {c.laddr for c in ports(kind="inet") if c.status == psutil.CONN_LISTEN}
        return found

    before = listening()
    with engine._client(Workers(count=1), 1) as client:
        opened = listening() - before
        port = int(client.dashboard_link.partition("//")[2].split("/")[0].rpartition(":")[2])
    assert port in {address.port for address in opened}
    assert {address.ip for address in opened} <= {"127.0.0.1", "::1"}


def test_a_full_disk_of_a_worker_is_told_as_one_of_this_process(scheduler):
    workers = Workers(scheduler=scheduler)
    with pytest.raises(OSError, match="No space left") as caught:
        sweep(fill, [{"path": "/x"}], workers=workers)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/x")


def test_what_is_missing_is_said_in_a_line(monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(RunError, match=f"no scheduler answers at {address}"):
            sweep(refuse, [{"number": 1}], workers=Workers(scheduler=address))
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        pytest.raises(RunError, match="--nthreads 1"),
    ):
        sweep(refuse, [{"number": 1}], workers=Workers(scheduler=cluster.scheduler_address))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RunError, match=r"distributed is missing: .*'spinformer\[sweep\]'"):
        sweep(refuse, [{"number": 1}], workers=Workers(count=2))
    assert sweep(refuse, [{"number": 1}]) == [1]


@pytest.mark.nightly
def test_the_room_of_sweeps_needs_no_large_library():
    code = "import sys, bookmaker.sweeping as _; "
    code += "print({'torch', 'scipy', 'distributed'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


WORK = {"work": "squares"}


def found(folder):
    """Results of all kinds."""
    return finished(folder, sound=lambda key, result: True)


HOLD = """
import sys, time
from pathlib import Path
from bookmaker.sweeps.engine import locked_store

with locked_store(Path(sys.argv[1]), about={"work": "squares"}):
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
    with locked_store(folder, about=WORK):
        for key, result in whole.items():
            add(folder, key, result)
        with largest_file(5), pytest.raises(OSError, match="File too large"):
            add(folder, "p4", "sixteen")
    assert sorted(path.name for path in folder.iterdir()) == [
        ABOUT, LOCK, "p1.json", "p2.json", "p3.json"
    ]  # fmt: skip
    assert found(folder) == whole
    for cut in ("", '{"ü": [2.5', "\0\0\0"):
        (folder / "p2.json").write_text(cut)
        assert set(found(folder)) == {"p1", "p3"}


def test_one_process_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path):
    folder = tmp_path / "squares"
    command = [sys.executable, "-c", HOLD, str(folder)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    with (
        pytest.raises(RunError, match="another process is at work on"),
        locked_store(folder, about=WORK),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with locked_store(folder, about=WORK):
        add(folder, "p1", 1)
        # Removed as finished by who waited for nobody: the next one begins anew.
        shutil.rmtree(folder)
        with locked_store(folder, about=WORK):
            assert found(folder) == {}


def test_of_many_that_start_at_once_one_holds_the_store(tmp_path, monkeypatch):
    """Also where writing takes time, as on a disk in a network: nobody replaces what is locked."""
    number = 6
    folder = tmp_path / "squares"
    holders = []
    begin = threading.Barrier(number)
    end = threading.Barrier(number)
    pause = threading.local()
    write = engine.write_atomically

    def slow(path, content):
        time.sleep(0.03 * pause.place)
        write(path, content)

    monkeypatch.setattr(engine, "write_atomically", slow)

    def start(place):
        pause.place = place
        begin.wait(60)
        try:
            with locked_store(folder, about=WORK):
                holders.append(place)
                end.wait(60)  # until all others have tried
        except RunError:
            end.wait(60)

    threads = [threading.Thread(target=start, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 1


def test_a_store_that_goes_while_its_lock_is_asked_for_is_made_again(tmp_path, monkeypatch):
    """Who has finished removes the store, with the lock that somebody has just opened."""
    folder = tmp_path / "squares"
    gone = []
    lock = engine.fcntl.flock

    def late(file, how):
        if not gone:
            gone.append(folder)
            remove(folder)
        lock(file, how)

    monkeypatch.setattr(engine.fcntl, "flock", late)
    with locked_store(folder, about=WORK):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["squares"]
        with pytest.raises(RunError, match="another process"), locked_store(folder, about=WORK):
            pass


def test_other_work_is_refused_and_left_as_it_is(tmp_path):
    folder = tmp_path / "squares"
    folder.mkdir()
    for text in (json.dumps({"work": "cubes"}), "no store", ""):
        (folder / ABOUT).write_text(text)
        with pytest.raises(RunError, match=r"not to .*squares"), locked_store(folder, about=WORK):
            pass
        assert (folder / ABOUT).read_text() == text
