"""A function of many units of work, computed here or by the workers of Dask.

The result of a unit depends on the unit alone, so it is the same, byte for byte, in whatever
chunks and on however many workers it is computed. A task of Dask should take a second or more:
units that are shorter are sent in chunks of about that length.

Dask restarts a worker that dies and gives its task to another one. What raises is not tried again,
except where the function raises `Lost`: its unit is not to blame.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

# What a chunk should last, in seconds: long against a task's cost of some milliseconds, short
# against what one likes to lose.
CHUNK_SECONDS = 1.0
# How long a scheduler may take to answer, and idle workers to end.
PATIENCE = 10.0

Unit = Mapping[str, Any]


class SweepError(RuntimeError):
    """Work that cannot begin: a library or a scheduler is missing, or its workers do not fit."""


class Lost(RuntimeError):
    """A unit whose process died; the unit itself need not be the reason."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who computes: `count` processes of this machine, those of `scheduler`, or (0) this process.

    A negative count is as many processes as the machine has cores (of those it may use).
    `retries` is how often a unit is tried again whose process died. An existing scheduler keeps
    its own setting for workers that die (`distributed.scheduler.allowed-failures`, 3 as a rule).
    """

    count: int = 0
    scheduler: str = ""
    retries: int = 3


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one unit: its `value`, or the `error`; `seconds` that it took."""

    unit: Unit
    value: Any = None
    seconds: float = 0.0
    error: Exception | None = None


def sweep(
    function: Callable[..., Any],
    units: Sequence[Unit],
    *,
    workers: Workers | None = None,
    chunk: int | None = None,
) -> list[Any]:
    """The values `function(**unit)` in the order of `units`; see `stream`.

    Raises the error of the first unit that ends with one.

    >>> sweep(pow, [{"base": 2, "exp": n} for n in range(5)])
    [1, 2, 4, 8, 16]
    """
    found: dict[int, Any] = {}
    for place, outcome in _places(function, units, workers=workers, chunk=chunk, say=_quiet):
        if outcome.error is not None:
            raise outcome.error
        found[place] = outcome.value
    return [found[place] for place in range(len(units))]


def stream(
    function: Callable[..., Any],
    units: Sequence[Unit],
    *,
    workers: Workers | None = None,
    chunk: int | None = None,
    say: Callable[[str], object] | None = None,
) -> Generator[Outcome, None, None]:
    """Compute `function(**unit)` for each unit; yield what became of it as it ends.

    `workers` says where (in this process if it is not given), `chunk` how many units make a task
    (about a second's worth). `say` is given a line on where the workers can be watched. Whoever
    stops early closes the iterator, which ends the workers. Raises SweepError where there are no
    workers to be had.

    >>> good, bad = stream(round, [{"number": 1.26, "ndigits": 1}, {"number": "two"}])
    >>> good.value, type(bad.error).__name__
    (1.3, 'TypeError')
    """
    for _, outcome in _places(
        function, units, workers=workers, chunk=chunk, say=say if say is not None else _quiet
    ):
        yield outcome


def _quiet(line: str) -> None:
    """Say nothing."""


def _places(
    function: Callable[..., Any],
    units: Sequence[Unit],
    *,
    workers: Workers | None,
    chunk: int | None,
    say: Callable[[str], object],
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes, each with the place of its unit in `units`."""
    workers = workers if workers is not None else Workers()
    if not units:
        return
    if not workers.count and not workers.scheduler:
        for place, unit in enumerate(units):
            yield place, _outcome(function, unit, here=True)
        return
    places = range(len(units))
    with _client(workers, units=len(units), alone=chunk == 1, say=say) as client:
        # Two units in a row on each worker: the first may compile, the second is timed.
        count = sum(client.nthreads().values()) or 1
        if chunk is None and len(units) > 8 * count:
            times: list[float] = []
            first = [places[start : start + 2] for start in range(0, 2 * count, 2)]
            for place, outcome in _tasks(client, function, units, first, workers.retries):
                if place % 2:
                    times.append(outcome.seconds)
                yield place, outcome
            places = places[2 * count :]
            typical = sorted(times)[len(times) // 2]
            # So that at the end no worker waits long for another.
            chunk = min(round(CHUNK_SECONDS / max(typical, 1e-6)), len(places) // (4 * count))
        size = max(chunk or 1, 1)
        chunks = [places[start : start + size] for start in range(0, len(places), size)]
        yield from _tasks(client, function, units, chunks, workers.retries)


def _tasks(
    client: Any,
    function: Callable[..., Any],
    units: Sequence[Unit],
    chunks: Sequence[Sequence[int]],
    retries: int,
) -> Iterator[tuple[int, Outcome]]:
    from distributed import KilledWorker, as_completed

    futures = client.map(
        partial(_chunk, function),
        [[units[place] for place in chunk] for chunk in chunks],
        retries=retries,
        pure=False,
    )
    chunk_of = {future.key: chunk for future, chunk in zip(futures, chunks, strict=True)}
    try:
        for future in as_completed(futures):
            chunk = chunk_of[future.key]
            try:
                outcomes = future.result()
            except KilledWorker:
                lost = Lost("the worker died here, every time it was tried (out of memory?)")
                outcomes = [Outcome(unit=units[place], error=lost) for place in chunk]
            except Lost as error:
                outcomes = [Outcome(unit=units[place], error=error) for place in chunk]
            future.release()
            yield from zip(chunk, outcomes, strict=True)
    except BaseException:
        client.cancel(futures)
        raise


def _chunk(function: Callable[..., Any], units: Sequence[Unit]) -> list[Outcome]:
    """What a worker does in one task."""
    return [_outcome(function, unit, here=False) for unit in units]


def _outcome(function: Callable[..., Any], unit: Unit, *, here: bool) -> Outcome:
    """Compute one unit, `here` or on a worker, where Dask tries again what is lost."""
    begin = time.perf_counter()
    try:
        value = function(**unit)
    except Lost as error:
        if not here:
            raise
        return Outcome(unit=unit, error=error, seconds=time.perf_counter() - begin)
    except Exception as error:
        seconds = time.perf_counter() - begin
        return Outcome(unit=unit, error=error if here else _that_travels(error), seconds=seconds)
    return Outcome(unit=unit, value=value, seconds=time.perf_counter() - begin)


def _that_travels(error: Exception) -> Exception:
    """The error with its traceback in words, or another one if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("".join(traceback.format_exc()))
    return error


@contextlib.contextmanager
def _client(
    workers: Workers, *, units: int, alone: bool, say: Callable[[str], object]
) -> Iterator[Any]:
    """A client of the scheduler, or of one that is started here with workers.

    `alone`: a worker is given its next task when it is done, not before, so that one which dies
    takes no other task with it. For short tasks the wait would cost too much.
    """
    try:
        import dask
        from dask.system import CPU_COUNT
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise SweepError(
            f"{error.name} is missing: workers need the extra `sweep`, "
            "`pip install '.[sweep]'` in the checkout"
        ) from None
    if workers.scheduler:
        try:
            client = Client(workers.scheduler, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())
            raise SweepError(f"no scheduler answers at {workers.scheduler}: {why}") from None
        with client:
            if any(threads > 1 for threads in client.nthreads().values()):
                raise SweepError("each worker must have one thread: start it with --nthreads 1")
            say(_where(client, "the scheduler's"))
            yield client
        return
    settings: dict[str, float] = {"distributed.scheduler.allowed-failures": workers.retries}
    if alone:
        settings["distributed.scheduler.worker-saturation"] = 1.0
    count = min(workers.count if workers.count > 0 else CPU_COUNT, units)
    try:
        with dask.config.set(settings), _uninterrupted():
            cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
    except RuntimeError as error:
        raise SweepError(
            f"the workers did not start ({error}); they import the program that asks for them, so "
            'a script does that below `if __name__ == "__main__":`'
        ) from None
    try:
        with Client(cluster) as client:
            say(_where(client, f"{count} single-threaded"))
            yield client
    finally:
        cluster.close(timeout=PATIENCE)


def _where(client: Any, which: str) -> str:
    pages = "" if find_spec("bokeh") else " (its pages need `pip install bokeh`)"
    return f"{which} workers, dashboard {client.dashboard_link}{pages}"


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let processes that start now ignore the Ctrl-C that the terminal sends to all of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
