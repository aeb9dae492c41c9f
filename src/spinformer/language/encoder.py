"""The encoder of a language model: its weights, one layer, all layers, with everything on the way.

A BERT encoder [devlin2019bert], written out: embeddings, then per layer attention, residual,
LayerNorm, a feed-forward network with GELU units, residual, LayerNorm. Shapes are those of the room
(see `spinformer.language`); weights have the names of the checkpoint.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from spinformer.core.checks import (
    check_choice,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.records import record

_PARTS = ("weight", "bias")


@record
class Architecture:
    """Sizes of a BERT encoder, by default those of MiniLM.

    Attributes
    ----------
    layers : int, default 6
        Number of layers.
    heads : int, default 12
        Number of heads H in each layer, which divides the width.
    width : int, default 384
        Model width D.
    inner : int, default 1536
        Number of units of the feed-forward network.
    vocabulary : int, default 30522
        Number of tokens in the vocabulary.
    positions : int, default 512
        Length of the longest sequence, in tokens.
    layer_norm_eps : float, default 1e-12
        Constant added to the variance in LayerNorm.

    Raises
    ------
    TypeError
        If a size is not an integer.
    ValueError
        If a size is not positive, or `heads` does not divide `width`.

    References
    ----------
    [wang2020minilm]

    Examples
    --------
    >>> Architecture().head_width, Architecture(heads=6).head_width
    (32, 64)
    """

    layers: int = 6
    heads: int = 12
    width: int = 384
    inner: int = 1536
    vocabulary: int = 30522
    positions: int = 512
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "inner", "vocabulary", "positions"):
            check_integer(name, getattr(self, name), low=1)
        check_real("layer_norm_eps", self.layer_norm_eps, low=0.0)
        if self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of the {self.heads} heads, got {self.width}"
            )

    @property
    def head_width(self) -> int:
        """Head width d, the dimension of queries, keys and values."""
        return self.width // self.heads

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights of a model of these sizes.

        Returns
        -------
        dict of str to tuple of int
            The shape of each weight, by its name in the checkpoint.
        """
        width, inner = self.width, self.inner
        heads = ("self.query", "self.key", "self.value", "output.dense")
        matrices = {f"attention.{name}": (width, width) for name in heads}
        matrices |= {"intermediate.dense": (inner, width), "output.dense": (width, inner)}
        rows = {"word": self.vocabulary, "position": self.positions, "token_type": 2}
        shapes: dict[str, tuple[int, ...]] = {
            f"embeddings.{name}_embeddings.weight": (count, width) for name, count in rows.items()
        }
        norms = ["embeddings"]
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}"
            for name, shape in matrices.items():
                shapes |= {f"{prefix}.{name}.weight": shape, f"{prefix}.{name}.bias": shape[:1]}
            norms += [f"{prefix}.attention.output", f"{prefix}.output"]
        for name in norms:
            shapes[f"{name}.LayerNorm.weight"] = shapes[f"{name}.LayerNorm.bias"] = (width,)
        return shapes


@record
class LanguageModel:
    """Pretrained or random encoder: weights, sizes and tokenizer.

    Attributes
    ----------
    weights : mapping of str to Tensor
        Floating-point weights of one dtype, by their names in the checkpoint.
    architecture : Architecture
        The sizes.
    tokenizer : object or None
        Tokenizer with `encode`, `decode` and `token_to_id`, as in the package tokenizers. Only
        reading text needs it.
    """

    weights: Mapping[str, torch.Tensor] = dataclasses.field(repr=False)
    architecture: Architecture
    tokenizer: Any = dataclasses.field(repr=False)


@record
class LayerTrace:
    """Intermediate states of one layer of an encoder, for a batch of sequences.

    Attributes
    ----------
    layer : int
        Number of the layer, counted from 0.
    inputs : Tensor, shape (B, N, D)
        States that enter the layer.
    queries : Tensor, shape (B, H, N, d)
        Queries of the inputs.
    keys : Tensor, shape (B, H, N, d)
        Keys of the inputs.
    values : Tensor, shape (B, H, N, d)
        Values of the inputs.
    attended : Tensor, shape (B, N, D)
        Output of the attention, biases included.
    residual : Tensor, shape (B, N, D)
        Inputs plus `attended`.
    normalized : Tensor, shape (B, N, D)
        LayerNorm of `residual`.
    outputs : Tensor, shape (B, N, D)
        States that leave the layer, after the feed-forward network, its residual connection and
        its LayerNorm.

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> trace = run_model(example_model(), torch.tensor([[2, 5, 6, 3]]))[1]
    >>> trace.layer, tuple(trace.queries.shape), trace.beta
    (1, (1, 2, 4, 4), 0.5)
    """

    layer: int
    inputs: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    attended: torch.Tensor
    residual: torch.Tensor
    normalized: torch.Tensor
    outputs: torch.Tensor

    @property
    def beta(self) -> float:
        """Inverse temperature of the layer's heads, 1/√d."""
        return self.queries.shape[-1] ** -0.5


def project(model: LanguageModel, layer: int, which: str, *, states: torch.Tensor) -> torch.Tensor:
    """Query, key or value projection of one layer of an encoder.

    Parameters
    ----------
    model : LanguageModel
        The encoder.
    layer : int
        Number of the layer, counted from 0.
    which : {"query", "key", "value"}
        The projection.
    states : Tensor, shape (..., N, D)
        States that enter the layer, of the weights' dtype.

    Returns
    -------
    Tensor, shape (..., H, N, d)
        The projected states of every head.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If there is no such layer or projection, or the shape does not fit.

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> states = torch.zeros(3, 8, dtype=torch.float64)
    >>> tuple(project(example_model(), 0, "key", states=states).shape)
    (2, 3, 4)
    """
    check_choice("which", which, ("query", "key", "value"))
    check_instance("model", model, LanguageModel)
    layer = check_integer("layer", layer, low=0, high=model.architecture.layers - 1)
    like = ("the model's weights", next(iter(model.weights.values())))
    check_tensor("states", states, like=like, shape=(..., "N", model.architecture.width))
    flat = _linear(model, f"encoder.layer.{layer}.attention.self.{which}", states)
    return flat.unflatten(-1, (model.architecture.heads, -1)).transpose(-2, -3)


@torch.no_grad()
def run_model(model: LanguageModel, tokens: torch.Tensor) -> list[LayerTrace]:
    """Forward pass of an encoder, with the intermediate states of every layer.

    Parameters
    ----------
    model : LanguageModel
        The encoder.
    tokens : Tensor of int64, shape (B, N)
        Token numbers. Word, position and segment 0 embeddings are added and normalized.

    Returns
    -------
    list of LayerTrace
        One trace for each layer. The `outputs` of the last one are the final states.

    Raises
    ------
    TypeError
        If `tokens` is not an int64 matrix or `model` is not a LanguageModel.
    ValueError
        If a sequence is empty or too long, or a token is not in the vocabulary.

    References
    ----------
    [devlin2019bert]

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> traces = run_model(example_model(), torch.tensor([[2, 5, 6, 3]]))
    >>> [trace.layer for trace in traces], torch.equal(traces[1].inputs, traces[0].outputs)
    ([0, 1], True)
    """
    check_instance("model", model, LanguageModel)
    if not isinstance(tokens, torch.Tensor) or tokens.dtype != torch.int64 or tokens.ndim != 2:
        raise TypeError("tokens must be an int64 tensor with 2 axes (sequences, tokens)")
    if tokens.is_meta:
        raise TypeError("tokens must hold values, got a tensor of the meta device")
    sizes, shape = model.architecture, tuple(tokens.shape)
    if not 1 <= shape[1] <= sizes.positions or not shape[0]:
        raise ValueError(
            f"tokens must hold sequences of 1 to {sizes.positions} tokens, got shape {shape}"
        )
    if int(tokens.min()) < 0 or int(tokens.max()) >= sizes.vocabulary:
        raise ValueError(f"tokens must have entries in [0, {sizes.vocabulary - 1}]")
    words, positions, segments = (
        model.weights[f"embeddings.{kind}_embeddings.weight"]
        for kind in ("word", "position", "token_type")
    )
    states = _norm(model, "embeddings", words[tokens] + positions[: shape[1]] + segments[0])
    traces: list[LayerTrace] = []
    for layer in range(sizes.layers):
        traces.append(_run_layer(model, layer, states))
        states = traces[-1].outputs
    return traces


def _run_layer(model: LanguageModel, layer: int, inputs: torch.Tensor) -> LayerTrace:
    prefix = f"encoder.layer.{layer}"
    queries, keys, values = (
        project(model, layer, which, states=inputs) for which in ("query", "key", "value")
    )
    attention = torch.softmax(queries.shape[-1] ** -0.5 * queries @ keys.mT, dim=-1)
    heads = (attention @ values).transpose(-2, -3).flatten(-2)
    attended = _linear(model, f"{prefix}.attention.output.dense", heads)
    residual = inputs + attended
    normalized = _norm(model, f"{prefix}.attention.output", residual)
    inner = functional.gelu(_linear(model, f"{prefix}.intermediate.dense", normalized))
    written = normalized + _linear(model, f"{prefix}.output.dense", inner)
    outputs = _norm(model, f"{prefix}.output", written)
    told = {"attended": attended, "residual": residual, "normalized": normalized}
    told |= {"inputs": inputs, "queries": queries, "keys": keys, "values": values}
    return LayerTrace(layer=layer, **told, outputs=outputs)


def _linear(model: LanguageModel, name: str, states: torch.Tensor) -> torch.Tensor:
    return functional.linear(states, *(model.weights[f"{name}.{part}"] for part in _PARTS))


def _norm(model: LanguageModel, name: str, states: torch.Tensor) -> torch.Tensor:
    gain, shift = (model.weights[f"{name}.LayerNorm.{part}"] for part in _PARTS)
    return functional.layer_norm(states, gain.shape, gain, shift, model.architecture.layer_norm_eps)


def join_traces(runs: Sequence[Sequence[LayerTrace]]) -> list[LayerTrace]:
    """Concatenate the layer traces of several runs along the batch.

    Running window by window keeps arrays small.

    Parameters
    ----------
    runs : sequence of sequences of LayerTrace
        Traces of one model on windows of one length, as returned by `run_model`.

    Returns
    -------
    list of LayerTrace
        One trace for each layer, whose batch holds all runs.

    Raises
    ------
    TypeError
        If `runs` holds anything else.
    ValueError
        If the runs differ in layers or in the length of their windows.

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> runs = [run_model(example_model(), torch.tensor([[2, n, 6, 3]])) for n in (5, 7, 8)]
    >>> [tuple(trace.inputs.shape) for trace in join_traces(runs)]
    [(3, 4, 8), (3, 4, 8)]
    """
    kinds = {type(trace) for run in runs for trace in run} if isinstance(runs, Sequence) else set()
    if kinds != {LayerTrace}:
        raise TypeError(f"runs must be sequences of LayerTrace, got {runs!r:.60}")
    shapes = {tuple((trace.layer, *trace.inputs.shape[1:]) for trace in run) for run in runs}
    if len(shapes) != 1:
        raise ValueError(f"runs must have the same layers and window, got {sorted(shapes)}")

    joined = []
    for parts in zip(*runs, strict=True):
        names = vars(parts[0]).keys() - {"layer"}
        whole = {name: torch.cat([vars(part)[name] for part in parts]) for name in names}
        joined.append(dataclasses.replace(parts[0], **whole))
    return joined
