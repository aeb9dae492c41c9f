"""Write files so that nobody ever sees half of one, and find out beforehand that one can't."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bookmaker.errors import OutputError
from bookmaker.sweeps.files import write_atomically

# A chapter with its page and MathJax takes less than a fifth of this.
NEEDED_SPACE = 32 * 2**20


def prepare_folder(folder: Path, names: list[str]) -> None:
    """Create `folder`; OutputError if files called `names` could not be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
        os.close(handle)
        os.unlink(probe)
        for name in names:
            if (folder / name).is_dir():
                raise OutputError(f"{folder / name} is a folder; its name is needed for a file")
        free = shutil.disk_usage(folder).free
    except FileExistsError:
        raise OutputError(f"{_short(folder)} is not a folder") from None
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"cannot write into {_short(folder)}: {error.strerror}") from None
    if free < NEEDED_SPACE:
        raise OutputError(
            f"only {free // 2**20} MiB are free at {_short(folder)}, "
            f"{NEEDED_SPACE // 2**20} are needed"
        )


def keep(folder: Path, name: str, content: str) -> Path:
    """Write `content` as `name` into `folder`, elsewhere if that fails; return where it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    except OSError:
        spare = Path(tempfile.mkdtemp(prefix="spinformer-"))
        write_atomically(spare / name, content)
        return spare / name
    return folder / name


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"
