"""What is finished, in a folder that survives any death of its writer.

Each finished unit is a file of JSON, written under another name and renamed when it is whole; a
writer that is killed, or whose disk is full, leaves nothing under a final name. `about.json` says
what work it is. Who writes holds a lock on it that the system gives back when the process
ends, however it ends.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bookmaker.errors import RunError
from bookmaker.files import write_atomically

ABOUT = "about.json"


def key_of(values: Any) -> str:
    """Return the name of a unit in a store; it depends on its values alone.

    >>> key_of({"beta": 1.0}) == key_of({"beta": 1.0}) != key_of({"beta": 2.0})
    True
    """
    # A letter first: nobody takes it for a number.
    return f"p{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]}"


@contextmanager
def writing(folder: Path, *, about: Mapping[str, Any]) -> Iterator[None]:
    """Hold a store, alone, to add to it.

    `about` says what work it is; what is there must belong to the same. Raises RunError if
    another process holds it or if it belongs to other work, OSError if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ABOUT).exists():
        write_atomically(folder / ABOUT, json.dumps(about))
    with (folder / ABOUT).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is at work on {folder}") from None
        if (known := _read(folder / ABOUT)) != about:
            raise RunError(f"{folder} belongs to {known}, not to {about}: choose another folder")
        yield


def add(folder: Path, key: str, result: Any) -> None:
    """Keep the result of a unit; OSError, and nothing of it, if that fails."""
    write_atomically(folder / f"{key}.json", json.dumps(result, ensure_ascii=False))


def finished(folder: Path) -> dict[str, Any]:
    """Return the results of finished units by key."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("p*.json"))}
    return {key: result for key, result in found.items() if result is not None}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        # The machine itself went down before the disk had it.
        return None
