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
from typing import Any

from bookmaker.errors import RunError

# What a chunk should last, in seconds: long against a task's cost of some milliseconds, short
# against what one likes to lose.
CHUNK_SECONDS = 1.0
# How long a scheduler may take to answer, and idle workers to end.
PATIENCE = 10.0

Unit = Mapping[str, Any]


class SweepError(RunError):
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
    """What became of one unit: its `value`, or the `error`; `seconds` that it took.

    `place` is that of the unit among all.
    """

    place: int
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
    found: list[Any] = [None] * len(units)
    for outcome in stream(function, units, workers=workers, chunk=chunk):
        if outcome.error is not None:
            raise outcome.error
        found[outcome.place] = outcome.value
    return found


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
    workers = workers if workers is not None else Workers()
    places = list(enumerate(units))
    if not units or not (workers.count or workers.scheduler):
        for place in places:
            try:
                yield _compute(function, place)
            except Lost as error:
                yield Outcome(place=place[0], unit=place[1], error=error)
        return
    with _client(workers, units=len(units), alone=chunk == 1) as client:
        if say is not None:
            say(f"workers: {len(client.nthreads())}, dashboard {client.dashboard_link}")
        count = len(client.nthreads()) or 1
        if chunk is None and len(units) > 8 * count:
            # Two units in a row on each worker: the first may compile, the second is timed.
            times = []
            for outcome in _tasks(client, function, places[: 2 * count], 2, workers.retries):
                if outcome.place % 2:
                    times.append(outcome.seconds)
                yield outcome
            places = places[2 * count :]
            typical = max(sorted(times)[len(times) // 2], 1e-6)
            # So that at the end no worker waits long for another.
            chunk = min(round(CHUNK_SECONDS / typical), len(places) // (4 * count))
        yield from _tasks(client, function, places, max(chunk or 1, 1), workers.retries)


def _tasks(
    client: Any,
    function: Callable[..., Any],
    places: Sequence[tuple[int, Unit]],
    size: int,
    retries: int,
) -> Iterator[Outcome]:
    from distributed import KilledWorker, as_completed

    chunks = [places[start : start + size] for start in range(0, len(places), size)]
    futures = client.map(partial(_chunk, function), chunks, retries=retries, pure=False)
    chunk_of = {future.key: chunk for future, chunk in zip(futures, chunks, strict=True)}
    try:
        for future in as_completed(futures):
            lost = None
            try:
                yield from future.result()
            except KilledWorker:
                lost = Lost("the worker died here, every time it was tried (out of memory?)")
            except Lost as error:
                lost = error
            if lost is not None:
                for place, unit in chunk_of[future.key]:
                    yield Outcome(place=place, unit=unit, error=lost)
            future.release()
    except BaseException:
        client.cancel(futures)
        raise


def _chunk(function: Callable[..., Any], places: Sequence[tuple[int, Unit]]) -> list[Outcome]:
    """What a worker does in one task; what is lost there, Dask tries again."""
    return [_compute(function, place, travels=True) for place in places]


def _compute(
    function: Callable[..., Any], place: tuple[int, Unit], *, travels: bool = False
) -> Outcome:
    begin = time.perf_counter()
    value: Any = None
    problem: Exception | None = None
    try:
        value = function(**place[1])
    except Lost:
        raise
    except Exception as error:
        problem = error
        if travels:
            # With its traceback in words, and as another one if it cannot be sent.
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:
                problem = RuntimeError(f"{type(error).__name__}: {error}")
            problem.add_note("".join(traceback.format_exception(error)))
    seconds = time.perf_counter() - begin
    return Outcome(place=place[0], unit=place[1], value=value, seconds=seconds, error=problem)


@contextlib.contextmanager
def _client(workers: Workers, *, units: int, alone: bool) -> Iterator[Any]:
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
            f"{error.name} is missing: workers need `pip install 'spinformer[sweep]'`, in a "
            "checkout `pip install '.[sweep]'`"
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
            yield client
    finally:
        cluster.close(timeout=PATIENCE)


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
