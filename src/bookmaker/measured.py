"""What the benchmarks measured: stored beside them as JSON, read by the pages that state it.

`python benchmarks/NAME.py --write` writes `benchmarks/results/NAME.json`, which pages and README
read as chapters' figures, {value}`benchmarks:NAME.ratio`. The file ends with a digest of what was
measured, so that a number that is changed by hand is noticed. `times:test.minutes` reads the
minutes that `make times` wrote.
"""

import hashlib
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
    stored["digest"] = digest(stored)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    return path


def digest(stored: Mapping[str, Any]) -> str:
    """Return the digest of what a file of results holds, without its own entry for it."""
    entries = {name: entry for name, entry in stored.items() if name != "digest"}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:16]


def measured(root: Path, source: str) -> dict[str, Any]:
    """Return what benchmarks, or with `times` the commands of the Makefile, were measured to take.

    Raises ValueError for a file that cannot be read or that is not as its benchmark wrote it.
    """
    if source == TIMES:
        try:
            return dict(read_yaml(root, TIMES_FILE, dict)[0])
        except SourceError as error:
            raise ValueError(str(error)) from None
    results = {}
    for path in sorted((root / RESULTS).glob("*.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored.get("digest") != digest(stored):
                again = f"python benchmarks/{path.stem}.py --write"
                raise ValueError(f"it was changed by hand; write it by `{again}`")
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{RESULTS}/{path.name} cannot be read: {error}") from None
        results[path.stem] = stored
    return results
