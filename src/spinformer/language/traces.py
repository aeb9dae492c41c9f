r"""Activations inside the layers of any transformer of the library transformers.

A layer (block) adds to each state x of the residual stream the output of its attention heads and
then that of its feed-forward network. In a decoder both read the state through a norm (pre-norm),

    x ← x + W_O Σ_j softmax_j(β q·k_j) v_j ,   x ← x + f(norm(x)) ,

in an encoder of the BERT family the norm follows the sum (post-norm). `trace_layers` reads a text
with a model and returns what each layer computed, and `project` gives the queries, keys or values
that a layer makes of other states.

Queries, keys and values are taken where they meet, in the attention function of transformers: with
the positions applied by rotation (RoPE), with the norms of queries and keys that some models have,
and grouped (G groups of keys and values, H query heads). The layouts of BERT, Llama, Mistral, Qwen,
Gemma 3 and GPT-2 are read. transformers computes RMSNorm and the angles of RoPE in float32, in
models of float64, too; BERT and GPT-2 have neither.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.checks import (
    check_choice,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.records import record
from spinformer.language.library import load_transformers

# Name under which transformers finds the attention function that hands over what it is given.
_ATTENTION = "spinformer_trace"
_PROJECTIONS = ("query", "key", "value")


@record
class _Layout:
    """Where the parts of a layer are, as names inside of it."""

    # The norm in front of attention, "" where it reads the states themselves.
    norm: str
    attention: str
    # One matrix for all three where the names are the same.
    projections: tuple[str, str, str]
    output: str
    # The norm of the sum with what the heads add, which the feed-forward network reads.
    second_norm: str
    feed_forward: str


_LLAMA = _Layout(
    norm="input_layernorm",
    attention="self_attn",
    projections=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    output="self_attn.o_proj",
    second_norm="post_attention_layernorm",
    feed_forward="mlp",
)
# Of two that fit a layer, the first one is its layout: a layer of Gemma has the norms of one of
# Llama and two more.
_LAYOUTS = (
    dataclasses.replace(_LLAMA, second_norm="pre_feedforward_layernorm"),
    _LLAMA,
    _Layout(
        norm="ln_1",
        attention="attn",
        projections=("attn.c_attn",) * 3,
        output="attn.c_proj",
        second_norm="ln_2",
        feed_forward="mlp",
    ),
    _Layout(
        norm="",
        attention="attention.self",
        projections=("attention.self.query", "attention.self.key", "attention.self.value"),
        output="attention.output.dense",
        second_norm="attention.output.LayerNorm",
        feed_forward="output.dense",
    ),
)


@record
class LayerTrace:
    """Intermediate states of one layer of a transformer, for a batch of sequences.

    B sequences of N tokens, H heads of width d, G groups of heads that share keys and values (G = H
    if none do), model width D. Head h reads group h // (H/G).

    Attributes
    ----------
    layer : int
        Number of the layer, counted from 0.
    inputs : Tensor, shape (B, N, D)
        States that enter the layer.
    queries : Tensor, shape (B, H, N, d)
        Queries as they meet the keys, with position rotations applied.
    keys : Tensor, shape (B, G, N, d)
        Keys as they meet the queries.
    values : Tensor, shape (B, G, N, d)
        Values.
    mask : Tensor of bool, broadcastable to (B, H, N, N), or None
        True where a query may attend to a key. None if it may everywhere.
    beta : float
        Inverse temperature of the layer's heads, by which dot products are multiplied.
    attended : Tensor, shape (B, N, D)
        Output of the attention, biases included.
    residual : Tensor, shape (B, N, D)
        Inputs plus what attention adds, which is `attended` itself except in Gemma, where a norm
        stands in between.
    normalized : Tensor, shape (B, N, D)
        The norm of `residual`, which the feed-forward network reads.
    fed : Tensor, shape (B, N, D)
        Output of the feed-forward network, biases included.
    outputs : Tensor, shape (B, N, D)
        States that leave the layer.

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> trace = trace_layers(example_model().model, torch.tensor([[2, 5, 6, 3]]))[1]
    >>> trace.layer, tuple(trace.queries.shape), trace.beta
    (1, (1, 2, 4, 4), 0.5)
    """

    layer: int
    inputs: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    beta: float
    attended: Tensor
    residual: Tensor
    normalized: Tensor
    fed: Tensor
    outputs: Tensor

    @property
    def scores(self) -> Tensor:
        """Scores β q·k (B, H, N, N), −∞ where a query may not attend."""
        return attention_scores(self.queries, self.keys, beta=self.beta, mask=self.mask)

    @property
    def attention(self) -> Tensor:
        """Attention weights (B, H, N, N)."""
        return torch.softmax(self.scores, dim=-1)


def attention_scores(
    queries: Tensor, keys: Tensor, *, beta: float, mask: Tensor | None = None
) -> Tensor:
    """Scores of queries and keys, of which those of the keys may be shared by groups of heads.

    Parameters
    ----------
    queries : Tensor, shape (..., H, S, d)
        Queries.
    keys : Tensor, shape (..., G, N, d)
        Keys. Head h reads group h // (H/G).
    beta : float
        Inverse temperature.
    mask : Tensor of bool, broadcastable to (..., H, S, N), or None, default None
        True where a query may attend.

    Returns
    -------
    Tensor, shape (..., H, S, N)
        β q·k, and −∞ where a query may not attend.

    Raises
    ------
    TypeError
        If `beta` is no number.
    ValueError
        If `beta` is negative.

    Examples
    --------
    >>> attention_scores(torch.ones(2, 1, 4), torch.ones(1, 3, 4), beta=0.5)[:, 0]
    tensor([[2., 2., 2.],
            [2., 2., 2.]])
    """
    beta = check_real("beta", beta, low=0.0)
    shared = queries.shape[-3] // keys.shape[-3]
    if shared > 1:
        keys = keys.repeat_interleave(shared, -3)
    scores = beta * queries @ keys.mT
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


class _Enough(Exception):
    """Raised behind the last layer that is asked for, so that later ones are not computed."""


def trace_layers(
    model: Any, inputs: Tensor, *, layers: Iterable[int] | None = None
) -> list[LayerTrace]:
    """Run a transformer and collect the intermediate states of its layers.

    There is a graph if the inputs or the parameters of the model ask for a gradient.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Encoder or decoder of the layouts that this module names, in evaluation mode.
    inputs : Tensor, shape (B, N) or (B, N, D)
        Token numbers (int64), or embeddings of the model's dtype. The model adds positions if it
        has embeddings for them.
    layers : iterable of int, or None, default None
        Numbers of the layers, from 0. None is all. Layers behind the last one are not run.

    Returns
    -------
    list of LayerTrace
        One trace for each of these layers, in the order of the model.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the model is of another layout or in training mode, or does more with its scores than a
        softmax, there is no such layer, or the inputs are not tokens or embeddings of the model.

    References
    ----------
    [vaswani2017attention, Eq. (1)]

    [devlin2019bert]

    [su2021roformer]

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> for trace in trace_layers(example_causal_model("gemma"), torch.tensor([[2, 5, 6]])):
    ...     print(tuple(trace.queries.shape), tuple(trace.keys.shape))
    (1, 4, 3, 4) (1, 2, 3, 4)
    (1, 4, 3, 4) (1, 2, 3, 4)
    """
    blocks = model_layers(model)
    last = len(blocks) - 1
    chosen = list(range(len(blocks)))
    if layers is not None:
        if not isinstance(layers, Iterable):
            raise TypeError(f"layers must be the numbers of some layers, got {layers!r:.60}")
        chosen = sorted({check_integer("layers", one, low=0, high=last) for one in layers})
    if model.training:
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    inputs = _check_inputs(model, inputs)
    given = {"input_ids" if inputs.ndim == 2 else "inputs_embeds": inputs}
    parts: dict[int, dict[str, Any]] = {number: {} for number in chosen}
    hooks = []
    owners = {}
    for number in chosen:
        block = blocks[number]
        layout = _layout(block)
        kept = parts[number]
        owners[block.get_submodule(layout.attention)] = kept
        second_norm = block.get_submodule(layout.second_norm)
        hooks += [
            block.register_forward_pre_hook(_keep_input(kept, "inputs")),
            block.get_submodule(layout.output).register_forward_hook(_keep(kept, "attended")),
            second_norm.register_forward_pre_hook(_keep_input(kept, "residual")),
            second_norm.register_forward_hook(_keep(kept, "normalized")),
            block.get_submodule(layout.feed_forward).register_forward_hook(_keep(kept, "fed")),
            block.register_forward_hook(_keep(kept, "outputs", last=number == chosen[-1])),
        ]
    before = model.config._attn_implementation
    try:
        _set_attention(model)
        model.base_model(**given, use_cache=False, spinformer_owners=owners)
    except _Enough:
        pass
    finally:
        model.set_attn_implementation(before)
        for hook in hooks:
            hook.remove()
    return [LayerTrace(layer=number, **parts[number]) for number in chosen]


def project(model: nn.Module, layer: int, which: str, *, states: Tensor, start: int = 0) -> Tensor:
    """Query, key or value projection of one layer, as it meets the others in attention.

    The norm in front of the heads, the matrix, a norm of queries or keys, and the rotation by
    positions are applied, where the model has them.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Encoder or decoder.
    layer : int
        Number of the layer, counted from 0.
    which : {"query", "key", "value"}
        The projection.
    states : Tensor, shape (..., N, D)
        States that enter the layer, of the model's dtype.
    start : int, default 0
        Position of the first state.

    Returns
    -------
    Tensor, shape (..., H, N, d)
        The projected states of every head, of keys and values (..., G, N, d).

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If there is no such layer or projection, or the shape does not fit.

    References
    ----------
    [su2021roformer]

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> model = example_causal_model("llama")
    >>> trace = trace_layers(model, torch.tensor([[2, 5, 6]]))[1]
    >>> torch.equal(project(model, 1, "query", states=trace.inputs), trace.queries)
    True
    """
    check_choice("which", which, _PROJECTIONS)
    blocks = model_layers(model)
    block = blocks[check_integer("layer", layer, low=0, high=len(blocks) - 1)]
    start = check_integer("start", start, low=0)
    like = ("the model's weights", next(model.parameters()))
    check_tensor("states", states, like=like, shape=(..., "N", _text_config(model).hidden_size))
    layout = _layout(block)
    attention: Any = block.get_submodule(layout.attention)
    read = block.get_submodule(layout.norm)(states) if layout.norm else states
    place = _PROJECTIONS.index(which)
    flat = block.get_submodule(layout.projections[place])(read)
    if len(set(layout.projections)) == 1:
        flat = flat.chunk(3, -1)[place]
    width = getattr(attention, "head_dim", None) or attention.attention_head_size
    heads = flat.unflatten(-1, (-1, width)).transpose(-2, -3)
    own_norm = getattr(attention, {"query": "q_norm", "key": "k_norm"}.get(which, ""), None)
    if own_norm is not None:
        heads = own_norm(heads)
    rotary = getattr(_text_model(model), "rotary_emb", None)
    if rotary is None or which == "value":
        return heads
    # Angles of the positions, in some models of another base in some of the layers.
    places = torch.arange(start, start + states.shape[-2], device=states.device)[None]
    options = {}
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        options["layer_type"] = attention.layer_type
    cos, sin = rotary(states, places, **options)
    rotate = sys.modules[type(attention).__module__].apply_rotary_pos_emb
    turned: Tensor = rotate(heads, heads[..., :1, :, :], cos[0], sin[0], unsqueeze_dim=0)[0]
    return turned


def output_matrix(model: nn.Module, layer: int) -> Tensor:
    """Output projection W_O of the attention of one layer.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Encoder or decoder.
    layer : int
        Number of the layer, counted from 0.

    Returns
    -------
    Tensor, shape (D, H·d)
        The matrix, which maps the values that the heads return, side by side, to the state.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If there is no such layer.

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> tuple(output_matrix(example_causal_model("gpt2"), 0).shape)
    (16, 16)
    """
    blocks = model_layers(model)
    block = blocks[check_integer("layer", layer, low=0, high=len(blocks) - 1)]
    projection = block.get_submodule(_layout(block).output)
    weight: Tensor = projection.weight  # type: ignore[assignment]
    # GPT-2 has its matrices transposed.
    return weight if isinstance(projection, nn.Linear) else weight.T


def model_layers(model: nn.Module) -> list[nn.Module]:
    """Layers (blocks) of a transformer, in the order in which they are run.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Encoder or decoder.

    Returns
    -------
    list of torch.nn.Module
        The layers.

    Raises
    ------
    TypeError
        If the model is no torch module.
    ValueError
        If it is none of the library transformers, or of a layout that this module does not read.

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> len(model_layers(example_causal_model("qwen", layers=3)))
    3
    """
    check_instance("model", model, nn.Module)
    load_transformers()
    if not hasattr(model, "set_attn_implementation"):
        raise ValueError(
            f"model must be one of the library transformers, got a {type(model).__name__}"
        )
    stack = _text_model(model)
    for name in ("layers", "h", "encoder.layer"):
        try:
            blocks = list(stack.get_submodule(name).children())
        except AttributeError:
            continue
        _layout(blocks[0])
        return blocks
    raise _unknown_layout(model)


def _layout(block: nn.Module) -> _Layout:
    """Where the parts of a layer are."""
    for layout in _LAYOUTS:
        names = [layout.attention, layout.output, layout.second_norm, layout.feed_forward]
        names += [*layout.projections, layout.norm]
        try:
            for name in names:
                block.get_submodule(name)
        except AttributeError:
            continue
        return layout
    raise _unknown_layout(block)


def _unknown_layout(module: nn.Module) -> ValueError:
    return ValueError(
        "model must have the layers of BERT, Llama, Mistral, Qwen, Gemma 3 or GPT-2, got a "
        f"{type(module).__name__}"
    )


def _text_model(model: Any) -> nn.Module:
    """The stack of layers, without what reads images and without the read-out."""
    stack = model.base_model
    found: nn.Module = getattr(stack, "language_model", stack)
    return found


def _text_config(model: Any) -> Any:
    return model.config.get_text_config()


def _check_inputs(model: Any, inputs: Any) -> Tensor:
    """The inputs, token numbers (B, N) or embeddings (B, N, D) of the model."""
    config = _text_config(model)
    if not isinstance(inputs, Tensor) or (inputs.ndim == 2 and inputs.dtype != torch.int64):
        raise TypeError("inputs must be token numbers (B, N) of int64 or embeddings (B, N, D)")
    if inputs.ndim not in (2, 3):
        raise ValueError(f"inputs must have 2 or 3 axes, got shape {tuple(inputs.shape)}")
    if inputs.is_meta:
        raise TypeError("inputs must hold values, got a tensor of the meta device")
    longest = config.max_position_embeddings
    if not inputs.shape[0] or not 1 <= inputs.shape[1] <= longest:
        raise ValueError(
            f"inputs must hold sequences of 1 to {longest} tokens, got {tuple(inputs.shape)}"
        )
    if inputs.ndim != 2:
        like = ("the model's weights", next(model.parameters()))
        return check_tensor("inputs", inputs, like=like, shape=("B", "N", config.hidden_size))
    if int(inputs.min()) < 0 or int(inputs.max()) >= config.vocab_size:
        raise ValueError(f"inputs must have entries in [0, {config.vocab_size - 1}]")
    return inputs


def _keep(kept: dict[str, Any], name: str, *, last: bool = False) -> Callable[..., None]:
    """A hook that keeps the output of a module."""

    def hook(module: nn.Module, given: Any, output: Any) -> None:
        kept[name] = output[0] if isinstance(output, tuple) else output
        if last:
            raise _Enough

    return hook


def _keep_input(kept: dict[str, Any], name: str) -> Callable[..., None]:
    """A hook that keeps the first argument of a module."""

    def hook(module: nn.Module, given: Any) -> None:
        kept[name] = given[0]

    return hook


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    spinformer_owners: dict[nn.Module, dict[str, Any]],
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of transformers that keeps what it is given for the layers that are traced."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    kept = spinformer_owners.get(module)
    if kept is not None:
        mask = attention_mask
        if mask is None and module.is_causal:
            # transformers leaves out the mask that its kernel makes itself.
            mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
        kept |= {"queries": query, "keys": key, "values": value, "mask": mask, "beta": scaling}
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **options
    )


def _set_attention(model: Any) -> None:
    """Let a model attend by `_attend`, which transformers finds by its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if not model._supports_sdpa:
        raise ValueError(
            "model must be one that transformers runs with scaled_dot_product_attention, and a "
            f"{type(model).__name__} is not"
        )
    AttentionInterface.register(_ATTENTION, _attend)
    AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
    model.set_attn_implementation(_ATTENTION)
