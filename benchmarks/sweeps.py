"""What a sweep costs beside what it computes: python benchmarks/sweeps.py [--write].

On a machine that others use, too, wall times wander; so runs that are compared take turns, and
where workers only wait (a unit that sleeps) the load does not matter.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from distributed import LocalCluster

from bookmaker import sweeping
from bookmaker.execution import execute
from bookmaker.measured import write_results
from bookmaker.source import Chapter, read_notebook
from bookmaker.sweeping import POINTS, read_points, run_point, sweep_chapter
from bookmaker.sweeps.engine import Workers, add, stream, writing

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = "33b_lifetimes"
VALUES = {"copies": 8, "horizon": 100_000}


def nap(number: int) -> int:
    """A unit of ten milliseconds."""
    time.sleep(0.01)
    return number


def work(seed: int) -> float:
    """A unit of some tenths of a second of one core."""
    rng = np.random.default_rng(seed)
    couplings = rng.normal(size=(200, 200))
    state = rng.normal(size=200)
    for _ in range(20_000):
        state = np.tanh(couplings @ state)
    return float(state[0])


def elapsed(function, units, workers, chunk=1) -> float:
    """Seconds from the first result to the last: without the start of the workers."""
    outcomes = stream(function, units, workers=workers, chunk=chunk)
    next(outcomes)
    begin = time.perf_counter()
    for _ in outcomes:
        pass
    return time.perf_counter() - begin


def points_of_a_chapter(pairs: int = 5) -> None:
    chapter = Chapter(ROOT, CHAPTER)
    function = partial(run_point, root=str(ROOT), name=CHAPTER, code=chapter.digest)
    direct = []
    swept = []
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        workers = Workers(scheduler=cluster.scheduler_address)
        for turn in range(pairs + 1):
            begin = time.perf_counter()
            execute(chapter, VALUES)
            middle = time.perf_counter()
            ((_, row),) = stream(function, [{"values": VALUES}], workers=workers)
            assert not row["error"]
            # The first turn loads libraries on both sides.
            if turn:
                direct.append(middle - begin)
                swept.append(time.perf_counter() - middle)
    ratios = np.array(swept) / np.array(direct)
    print(
        f"a point of {CHAPTER}: direct {np.median(direct):.2f} s, by a worker "
        f"{np.median(swept):.2f} s; ratio in {pairs} pairs {np.median(ratios):.2f} "
        f"({ratios.min():.2f} to {ratios.max():.2f})"
    )


def added_to_a_point(count: int = 40) -> None:
    """What is done around the execution of a point, by driver and worker, without Dask's share."""
    chapter = Chapter(ROOT, CHAPTER)
    executed = read_notebook(chapter.notebook_path)
    points = read_points(chapter, {"seed": f"1:{count}:{count}"})
    sweeping.execute = lambda *_, **__: (executed, None)
    with tempfile.TemporaryDirectory() as folder:
        sweep_chapter(chapter, Path(folder), points[:1], workers=Workers())
        begin = time.process_time()
        sweep_chapter(chapter, Path(folder), points, workers=Workers())
        used = (time.process_time() - begin) / (count - 1)
    sweeping.execute = execute
    print(f"CPU time around the execution of a point: {1000 * used:.0f} ms")


def many_short_units(count: int = 10_000) -> None:
    units = [{"number": number} for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        begin = 0.0
        before = time.process_time()
        for place, value in stream(nap, units, workers=Workers(count=2), chunk=100):
            begin = begin or time.perf_counter()
            add(Path(folder), f"p{place}", value)
        wall = time.perf_counter() - begin
        driver = time.process_time() - before
    print(
        f"{count} units of 10 ms, 100 at a time, on 2 workers: {wall:.1f} s for "
        f"{count * 0.01 / 2:.0f} s of work on each; the driver used {driver:.1f} s"
    )


def waiting_units() -> None:
    units = [{"number": number} for number in range(2000)]
    one, two = (elapsed(nap, units, Workers(count=count), 10) for count in (1, 2))
    print(f"2000 units that only wait: 1 to 2 workers {one / two:.2f} times as fast")


def processes(units: list[dict[str, int]], count: int) -> float:
    """The same work by bare processes, each with its share from the start."""
    with get_context("spawn").Pool(count) as pool:
        pool.map(work, range(count), chunksize=1)
        begin = time.perf_counter()
        pool.map(work, [unit["seed"] for unit in units], chunksize=-(-len(units) // count))
        return time.perf_counter() - begin


def two_workers(pairs: int = 4) -> dict[str, float]:
    """Return how many times as fast two workers are as one, and two bare processes."""
    units = [{"seed": seed} for seed in range(24)]
    workers = []
    bare = []
    for _ in range(pairs):
        workers.append(
            elapsed(work, units, Workers(count=1)) / elapsed(work, units, Workers(count=2))
        )
        bare.append(processes(units, 1) / processes(units, 2))
    print(
        f"24 units of computing, 1 to 2 workers: {np.median(workers):.2f} times as fast "
        f"({min(workers):.2f} to {max(workers):.2f}), bare processes in turns with them "
        f"{np.median(bare):.2f} ({min(bare):.2f} to {max(bare):.2f})"
    )
    return {"workers": float(np.median(workers)), "processes": float(np.median(bare))}


def resuming(count: int = 10_000) -> None:
    chapter = Chapter(ROOT, CHAPTER)
    points = read_points(chapter, {"seed": f"0:{count - 1}:{count}"})
    with tempfile.TemporaryDirectory() as folder:
        about = {"chapter": chapter.name, "code": chapter.digest}
        with writing(Path(folder) / POINTS, about=about):
            rest = {"figures": {"C9.share": "0.12"}, "seconds": 1.0, "versions": "x" * 90}
            for point in points:
                row = {"values": dict(point.values), **rest, "error": ""}
                add(Path(folder) / POINTS, point.key, row)
        command = [sys.executable, "-m", "bookmaker", "sweep", CHAPTER]
        command += ["-p", "seed", f"0:{count - 1}:{count}", "-o", folder]
        walls = []
        cpus = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begin = time.perf_counter()
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            walls.append(time.perf_counter() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert f"0 computed now, {count} there already" in done.stdout, json.dumps(done.stdout)
    print(f"a finished sweep of {count} points again: {min(walls):.2f} s, {min(cpus):.2f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store what the pages state")
    options = parser.parse_args()
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
    resuming()
    many_short_units()
    waiting_units()
    added_to_a_point()
    points_of_a_chapter()
    speedup = two_workers()
    if options.write:
        write_results(__file__, speedup)
