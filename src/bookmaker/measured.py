"""What the benchmarks measured: stored beside them as JSON, read by the pages that state it.

`python benchmarks/NAME.py --write` writes `benchmarks/results/NAME.json`, which pages and README
read as chapters' figures, {value}`benchmarks:NAME.ratio`; `times:test.minutes` reads the minutes
that `make times` wrote.
"""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bookmaker.base import SourceError, read_yaml, write_atomically
from bookmaker.figures import plain

BENCHMARKS = "benchmarks"
TIMES = "times"
RESULTS = f"{BENCHMARKS}/results"
TIMES_FILE = "book/times.yml"


def machine() -> str:
    """Return what a time depends on most: cores, kind of processor, Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}"


def write_results(script: str, figures: Mapping[str, Any]) -> Path:
    """Store what a benchmark measured, with the machine; return the file.

    `script` is the benchmark's own file, `figures` what `bookmaker.figures.plain` takes.
    """
    source = Path(script).resolve()
    path = source.parent / "results" / f"{source.stem}.json"
    stored = {"where": machine()} | {name: plain(name, value) for name, value in figures.items()}
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    return path


def measured(root: Path, source: str) -> dict[str, Any]:
    """Return what benchmarks, or with `times` the commands of the Makefile, were measured to take.

    Raises ValueError for a file that cannot be read.
    """
    if source == TIMES:
        try:
            return dict(read_yaml(root, TIMES_FILE, dict)[0])
        except SourceError as error:
            raise ValueError(str(error)) from None
    results = {}
    for path in sorted((root / RESULTS).glob("*.json")):
        try:
            results[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{RESULTS}/{path.name} cannot be read: {error}") from None
    return results
