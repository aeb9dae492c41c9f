"""The two trained models, read once in a process, and what the decoder and one of its blocks do."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from spinformer.language.checkpoints import load_checkpoint
from spinformer.language.decoder import (
    BlockTrace,
    Decoder,
    encode,
    load_decoder,
    run_decoder,
)
from spinformer.language.encoder import LanguageModel
from spinformer.language.minilm import load_model
from spinformer.language.text import sample_texts

encoder = cache(load_model)
decoder = cache(load_decoder)
checkpoint = cache(load_checkpoint)


def next_token_distribution(model: Decoder, windows: Tensor, *, beta: float | Tensor) -> Tensor:
    """Probabilities (B, V) of the token after windows (B, T, D), at β or at one each (B, 1)."""
    states = run_decoder(model, windows)[:, -1]
    return torch.softmax(beta * (states @ model.embedding.T), -1)


def text_numbers(model: Decoder) -> list[Tensor]:
    """The words of the seven texts, by their numbers, text by text."""
    return [encode(model, text) for text in sample_texts().values()]


def block_trace(model: Decoder, inputs: Tensor, number: int) -> BlockTrace:
    """What block `number` computes on inputs (B, N, D); later blocks are not run."""
    kept: dict[int, BlockTrace] = {}
    below = replace(model, blocks=model.blocks[: number + 1])
    run_decoder(below, inputs, watch=kept.__setitem__)
    return kept[number]


def causal_attention(model: Decoder, trace: BlockTrace) -> Tensor:
    """Attention (B, H, N, N) of a block."""
    keys = trace.keys.repeat_interleave(model.heads // model.key_heads, 1)
    scores = trace.queries @ keys.mT / model.head_width**0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)


def head_maps(model: LanguageModel, layer: int) -> tuple[Tensor, Tensor]:
    """Query maps (H, d, D) and output maps (H, D, d) of a layer of the encoder."""
    name = f"encoder.layer.{layer}.attention"
    heads = model.architecture.heads
    reads = model.weights[f"{name}.self.query.weight"].unflatten(0, (heads, -1))
    writes = model.weights[f"{name}.output.dense.weight"].unflatten(-1, (heads, -1))
    return reads, writes.transpose(0, 1)


def compose_heads(reads: Tensor, writes: Tensor) -> Tensor:
    """Composition of an output map with the query map of each head, from the right: (H, d, d)."""
    return torch.einsum("hqD,hDv->hvq", reads, writes)
