"""What is finished, in a file that survives any death of its writer.

A store is a file of lines: the first says what work it belongs to, each other holds the key of a
finished unit and its result, in JSON. A line is added when a unit is finished and never changed. A
writer that is killed, or whose disk is full, leaves at most the beginning of a line at the end; the
next one takes it away. While a process writes, it holds a lock on the file that the system gives
back when the process ends, however it ends; there is no such lock on Windows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bookmaker.files import write_atomically


class StoreError(RuntimeError):
    """A store that another process writes to, or that belongs to other work."""


class Store:
    """The finished units of one piece of work, to read and to add to.

    `about` says what work it is; what is there must belong to the same. Opened by `with`: raises
    StoreError if another process has it open or if it belongs to other work, OSError if the file
    cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "squares.part"
    ...     with Store(path, about={"work": "squares"}) as store:
    ...         store.add({"3": 9})
    ...     with Store(path, about={"work": "squares"}) as store:
    ...         store.done
    {'3': 9}
    """

    def __init__(self, path: Path, *, about: Mapping[str, Any]) -> None:
        """Nothing happens to the file before `with`."""
        self.path = path
        self.about = dict(about)
        self.done: dict[str, Any] = {}

    def __enter__(self) -> Store:
        """Lock, read, and take away what a writer that died left of its last line."""
        while True:
            if not self.path.exists():
                # Whole, before anyone can lock it.
                write_atomically(self.path, json.dumps(self.about) + "\n")
            try:
                self._file = self.path.open("r+b", buffering=0)
            except FileNotFoundError:
                continue
            try:
                self._lock()
                if self.path.exists() and os.path.samestat(
                    os.fstat(self._file.fileno()), self.path.stat()
                ):
                    break
                # The last writer removed it, as finished, before we had the lock.
                self._file.close()
            except BaseException:
                self._file.close()
                raise
        about, self.done, self._end = _parse(self._file.read())
        if about != self.about:
            self._file.close()
            raise StoreError(f"{self.path} belongs to {_words(about)}, not to {_words(self.about)}")
        self._file.truncate(self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, which gives back the lock."""
        self._file.close()

    def add(self, finished: Mapping[str, Any]) -> None:
        """Keep the results of units, by their keys; OSError, and nothing of them, if that fails."""
        text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in finished.items())
        data = text.encode()
        try:
            self._file.seek(self._end)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            error.filename = error.filename or str(self.path)
            raise
        self._end += len(data)
        self.done.update(finished)

    def remove(self) -> None:
        """Remove the file: its work is done and kept elsewhere."""
        self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        with contextlib.suppress(ModuleNotFoundError):  # Windows
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another process is at work on {self.path}") from None


def read_store(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a store belongs to and what is finished in it; ({}, {}) if there is none. Takes no lock.

    >>> read_store(Path("/nowhere/points.jsonl"))
    ({}, {})
    """
    if not path.exists():
        return {}, {}
    about, done, _ = _parse(path.read_bytes())
    return about, done


def _parse(data: bytes) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What the work is, what is finished, and where the last whole line ends."""
    lines = data.split(b"\n")[:-1]
    about: Any = None
    done: dict[str, Any] = {}
    end = 0
    for number, line in enumerate(lines):
        try:
            found = json.loads(line)
            if number:
                key, result = found
                done[key] = result
            else:
                about = found
        except (ValueError, TypeError):
            # The machine itself went down while this was written.
            break
        end += len(line) + 1
    return about if isinstance(about, dict) else {}, done, end


def _words(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in about.items()) or "no work known"
