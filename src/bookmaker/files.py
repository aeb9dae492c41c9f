"""Write files so that nobody ever sees half of one, and find out beforehand that one can't."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bookmaker.errors import OutputError

# A chapter with its page and MathJax takes less than a fifth of this.
NEEDED_SPACE = 32 * 2**20


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`: a reader sees the old file or the whole new one.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", "whole")
    ...     (Path(folder) / "a.txt").read_text()
    'whole'
    """
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        partial.chmod(0o644)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def prepare_folder(folder: Path, names: list[str]) -> None:
    """Create `folder`; OutputError if files called `names` could not be written there."""
    text = str(folder)
    short = text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".", suffix=".part", dir=folder):
            free = shutil.disk_usage(folder).free
        taken = [folder / name for name in names if (folder / name).is_dir()]
    except FileExistsError:
        raise OutputError(f"{short} is not a folder") from None
    except OSError as error:
        raise OutputError(f"cannot write into {short}: {error.strerror}") from None
    if taken:
        raise OutputError(f"{taken[0]} is a folder; its name is needed for a file")
    if free < NEEDED_SPACE:
        needed = NEEDED_SPACE // 2**20
        raise OutputError(f"only {free // 2**20} MiB are free at {short}, {needed} are needed")


def keep(folder: Path, name: str, content: str) -> Path:
    """Write `content` as `name` into `folder`, elsewhere if that fails; return where it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="spinformer-"))
        write_atomically(folder / name, content)
    return folder / name
