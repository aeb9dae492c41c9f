"""What the benchmarks measured: stored beside them as JSON, read by the pages that state it.

`python benchmarks/NAME.py --write` writes `benchmarks/results/NAME.json`, which pages and README
read as chapters' figures, {value}`benchmarks:NAME.ratio`. The file ends with a digest of what was
measured, so that a number that is changed by hand is noticed. `times:test.minutes` reads the
minutes that `make times` wrote.

Of the stored tables of chapters (`bookmaker.tables`) one file holds the digests, in the form of
`sha256sum`; `python -m bookmaker table` writes the line of the table that it makes.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bookmaker.base import Fault, SourceError, read_yaml, write_atomically
from bookmaker.figures import plain

BENCHMARKS = "benchmarks"
TIMES = "times"
RESULTS = f"{BENCHMARKS}/results"
TIMES_FILE = "book/times.yml"
COMPENDIUM = "src/compendium"
DIGESTS_FILE = f"{COMPENDIUM}/tables.sha256"
# What a sweep over a chapter wrote is none of `bookmaker.tables`; a chapter's tests compute it.
_SWEPT = re.compile(r"#.* sweep ")


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


def table_digests(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each stored table as it is, by its place below `src/compendium`."""
    folder = root / COMPENDIUM
    digests = {}
    for path in sorted(folder.glob("c[0-9]*/*.csv")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        if not _SWEPT.match(content.partition(b"\n")[0].decode(errors="replace")):
            name = path.relative_to(folder).as_posix()
            digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def recorded_digests(root: Path) -> dict[str, str]:
    """Return the digests that were recorded when the stored tables were made."""
    path = root / DIGESTS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {name: found for found, _, name in (line.partition("  ") for line in lines) if name}


def record_table(root: Path, path: Path) -> None:
    """Record the digest of a chapter's table that was made; drop those of tables that are gone."""
    folder = (root / COMPENDIUM).resolve()
    if not path.resolve().is_relative_to(folder):
        return
    now = table_digests(root)
    made = path.resolve().relative_to(folder).as_posix()
    kept = {name: found for name, found in recorded_digests(root).items() if name in now}
    kept[made] = now[made]
    lines = [f"{found}  {name}\n" for name, found in sorted(kept.items())]
    write_atomically(root / DIGESTS_FILE, "".join(lines))


def table_faults(root: Path) -> Iterator[Fault]:
    """Yield the stored tables that are not what was recorded when they were made."""
    now = table_digests(root)
    recorded = recorded_digests(root)
    for name in sorted(now.keys() | recorded.keys()):
        folder, _, file = name.partition("/")
        table, _, small = file.removesuffix(".csv").partition(".")
        again = f"python -m bookmaker table {folder[1:]} {table}{small and ' --small'}"
        if not (root / COMPENDIUM / name).is_file():
            yield Fault(DIGESTS_FILE, 1, f"{name} is recorded, but there is no such table")
        elif name in now and name not in recorded:
            message = f"nothing is recorded of when it was made: make it by `{again}`"
            yield Fault(f"{COMPENDIUM}/{name}", 1, message)
        elif name in now and now[name] != recorded[name]:
            message = f"it was changed by hand; make it by `{again}`"
            yield Fault(f"{COMPENDIUM}/{name}", 1, message)
