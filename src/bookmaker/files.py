"""Write files so that nobody ever sees half of one; tables as text."""

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`: a reader sees the old file or the whole new one."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        partial.chmod(0o644)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def csv_text(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as comma-separated values; ValueError for a column that is not named.

    >>> csv_text(["a", "b"], [{"b": 2}])
    'a,b\\n,2\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
