"""A function of many units of work, computed here or by the workers of Dask, each once.

The result of a unit depends on the unit alone, so it is the same, byte for byte, in whatever
chunks and on however many workers it is computed. A task of Dask should take a second or more.

Dask restarts a worker that dies and gives its task to another one. What raises is not tried again,
except where the function raises `WorkerDied`: its unit is not to blame.

What is finished is kept in a folder that survives any death of its writer. Each finished unit is a
file of JSON, written under another name and renamed when it is whole; a writer that is killed, or
whose disk is full, leaves nothing under a final name. `about.json` says what work it is. Who writes
holds a lock on the file `lock` that the system gives back when the process ends, however it ends.
That file is opened, or made if it is not there, in one step, and never replaced: whoever comes at
the same time asks for the same lock.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from bookmaker.base import RunError, WorkerDied, has_no_room, write_atomically

# How long a scheduler may take to answer, in seconds; how often a unit is tried again whose process
# died.
PATIENCE = 10.0
RETRIES = 2

ABOUT = "about.json"
LOCK = "lock"

Unit = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who computes: `count` processes of this machine, those of `scheduler`, or (0) this process.

    A negative count is as many processes as the machine has cores (of those it may use). An
    existing scheduler keeps its own setting for workers that die
    (`distributed.scheduler.allowed-failures`, 3 as a rule).
    """

    count: int = 0
    scheduler: str = ""


HERE = Workers()


def sweep(
    function: Callable[..., Any], units: Sequence[Unit], *, workers: Workers = HERE, chunk: int = 1
) -> list[Any]:
    """The values `function(**unit)` in the order of `units`; see `stream`.

    >>> sweep(pow, [{"base": 2, "exp": n} for n in range(5)])
    [1, 2, 4, 8, 16]
    """
    values = dict(stream(function, units, workers=workers, chunk=chunk))
    for value in values.values():
        if isinstance(value, WorkerDied):
            raise value
    return [values[place] for place in range(len(units))]


def complete(
    folder: Path,
    function: Callable[..., Any],
    units: Mapping[str, Unit],
    *,
    workers: Workers,
    title: str,
    kept: Callable[[str, Any], Any],
) -> None:
    """Compute units, by key, and keep `kept(key, value)` of each one in a store as it ends."""
    keys = list(units)
    with contextlib.closing(stream(function, list(units.values()), workers=workers)) as outcomes:
        for place, value in tqdm(outcomes, desc=title, total=len(units), disable=None):
            add(folder, keys[place], kept(keys[place], value))


def stream(
    function: Callable[..., Any], units: Sequence[Unit], *, workers: Workers = HERE, chunk: int = 1
) -> Generator[tuple[int, Any], None, None]:
    """Compute `function(**unit)` for each unit; yield its place and value as it ends.

    The value of a unit whose process died, every time it was tried, is the error `WorkerDied`.
    `chunk` units make a task. Whoever stops early closes the iterator, which ends the workers.
    Raises RunError where there are no workers to be had or a unit raises there, OSError where the
    disk of one of them is full; here what a unit raises.
    """
    if not units or workers == HERE:
        for place, unit in enumerate(units):
            try:
                yield place, function(**unit)
            except WorkerDied as error:
                yield place, error
        return
    starts = range(0, len(units), chunk)
    with _client(workers, len(starts)) as client:
        from distributed import KilledWorker, as_completed

        tqdm.write(f"workers: {len(client.nthreads())}, dashboard {client.dashboard_link}")
        started = {
            client.submit(_chunk, function, units[n : n + chunk], retries=RETRIES, pure=False): n
            for n in starts
        }
        for future in as_completed(started):
            start = started[future]
            try:
                values = future.result()
            except (KilledWorker, WorkerDied) as error:
                lost = WorkerDied(f"the worker died here, every time it was tried: {error}")
                values = [lost] * len(units[start : start + chunk])
            if isinstance(values, RunError | OSError):
                raise values
            yield from enumerate(values, start)
            future.release()


def _chunk(function: Callable[..., Any], units: Sequence[Unit]) -> list[Any] | RunError | OSError:
    """The values of one task, or what a unit raised; WorkerDied is raised, and Dask tries again."""
    try:
        return [function(**unit) for unit in units]
    except WorkerDied:
        raise
    except Exception as error:
        if isinstance(error, OSError) and has_no_room(error):
            return OSError(error.errno, error.strerror, error.filename)
        return RunError(traceback.format_exc().strip())


@contextlib.contextmanager
def _client(workers: Workers, tasks: int) -> Iterator[Any]:
    """A client of the scheduler, or of one that is started here with workers."""
    try:
        import dask
        from dask.system import CPU_COUNT
        from distributed import Client
    except ModuleNotFoundError as error:
        raise RunError(
            f"{error.name} is missing: workers need `pip install 'spinformer[sweep]'`, in a "
            "checkout `pip install '.[sweep]'`"
        ) from None
    if workers.scheduler:
        try:
            client = Client(workers.scheduler, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise RunError(f"no scheduler answers at {workers.scheduler}: {error}") from None
    else:
        settings = {
            "distributed.scheduler.allowed-failures": RETRIES,
            # A worker is given its next task when it is done, so that one which dies takes no
            # other task with it.
            "distributed.scheduler.worker-saturation": 1.0,
            # One that the machine is set up for counts only where it is asked for.
            "scheduler-address": None,
        }
        # Processes that start now ignore the Ctrl-C that the terminal sends to all of them.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with dask.config.set(settings):
                client = Client(
                    n_workers=min(workers.count if workers.count > 0 else CPU_COUNT, tasks),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
        finally:
            signal.signal(signal.SIGINT, before)
    with client:
        if max(client.nthreads().values(), default=1) > 1:
            raise RunError("each worker must have one thread: start it with --nthreads 1")
        yield client


def parameter_hash(values: Any) -> str:
    """Return the name of a unit in a store; it depends on its values alone.

    >>> parameter_hash({"beta": 1.0}) == parameter_hash({"beta": 1.0})
    True
    >>> parameter_hash({"beta": 1.0}) == parameter_hash({"beta": 2.0})
    False
    """
    # A letter first: nobody takes it for a number.
    return f"p{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def locked_store(folder: Path, *, about: Mapping[str, Any]) -> Iterator[None]:
    """Hold a store, alone, to add to it.

    `about` says what work it is; what is there must belong to the same. Raises RunError if
    another process holds it or if it belongs to other work, OSError if it cannot be written.
    """
    with _locked(folder):
        if not (folder / ABOUT).exists():
            write_atomically(folder / ABOUT, json.dumps(about))
        recorded = (folder / ABOUT).read_text(encoding="utf-8", errors="replace")
        if recorded != json.dumps(about):
            raise RunError(f"{folder} belongs to {recorded}, not to {about}: choose another folder")
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made if it is not there."""
    for _ in range(100):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # Removed in between by who had finished.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open_at(lock, folder / LOCK):
                yield
                return
        except BlockingIOError:
            raise RunError(f"another process is at work on {folder}") from None
        finally:
            os.close(lock)
    raise RunError(f"{folder} is removed again and again: choose another folder")


def _is_open_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this name now: not one that was removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def remove(folder: Path) -> None:
    """Remove a store that the caller holds, in one step for everybody who comes now."""
    gone = folder.with_name(f".{uuid4().hex}{folder.suffix}")
    folder.rename(gone)
    shutil.rmtree(gone)


def add(folder: Path, key: str, result: Any) -> None:
    """Keep the result of a unit; OSError, and nothing of it, if that fails."""
    write_atomically(folder / f"{key}.json", json.dumps(result, ensure_ascii=False))


def finished(folder: Path, *, sound: Callable[[str, Any], bool]) -> dict[str, Any]:
    """Return the results of finished units by key.

    What is there and is not `sound(key, result)` is not finished: a damaged file is computed anew.
    """
    results = {}
    for path in sorted(folder.glob("p*.json")):
        # If the machine itself went down before the disk had it, there is half of it.
        with contextlib.suppress(ValueError, RecursionError):
            result = json.loads(path.read_bytes())
            if sound(path.stem, result):
                results[path.stem] = result
    return results
