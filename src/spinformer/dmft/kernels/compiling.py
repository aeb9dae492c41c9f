"""How a kernel is compiled, and when a compiled one that lies on disk is still good."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.extending import intrinsic


def source_digest(folder: Path) -> str:
    """SHA-256 of the Python files of a folder, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


SOURCES = source_digest(Path(__file__).parent)


def instruction(function: Callable[..., Any]) -> Any:
    """A function given by the machine instruction that it stands for (`numba.extending`)."""
    return intrinsic(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as a part of every kernel that calls it.

    A call that passes a `Block` copies a hundred words and counts references to a dozen arrays;
    inlined, all that is gone, and a step takes four fifths of the time.
    """
    return njit(error_model="numpy", forceinline=True)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter's lock, division as in NumPy, and keep the result on disk.

    Numba looks at the file of a function to see whether what it kept is stale, but kernels call
    those of the neighbouring files. What is kept here is therefore marked with all of them.
    """
    compiled: Any = njit(nogil=True, error_model="numpy", cache=True)(function)
    # The place of the mark is Numba's own affair: one that keeps it elsewhere marks it by file.
    kept = getattr(compiled._cache, "_cache_file", None)
    if kept is not None:
        kept._source_stamp = SOURCES
    return compiled
