"""The two trained models, read once in a process, and what the chapters ask of them."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from compendium.common.decoder import Decoder, encode, run_decoder
from spinformer.language.checkpoints import load_checkpoint
from spinformer.language.minilm import load_model
from spinformer.language.text import sample_texts
from spinformer.language.traces import output_matrix

encoder = cache(load_model)
checkpoint = cache(load_checkpoint)


@cache
def decoder(*, dtype: torch.dtype = torch.float32) -> Decoder:
    """The generator, in single precision the same one as `checkpoint()`."""
    found = checkpoint() if dtype == torch.float32 else checkpoint(dtype=dtype)
    return Decoder(model=found.model, tokenizer=found.tokenizer)


def next_token_distribution(model: Decoder, windows: Tensor, *, beta: float | Tensor) -> Tensor:
    """Probabilities (B, V) of the token after windows (B, T, D), at β or at one each (B, 1)."""
    states = run_decoder(model, windows)[:, -1]
    return torch.softmax(beta * (states @ model.embedding.T), -1)


def text_numbers(model: Decoder) -> list[Tensor]:
    """The words of the seven texts, by their numbers, text by text."""
    return [encode(model, text) for text in sample_texts().values()]


def layer_modules(model: Any, layer: int) -> Any:
    """A layer of the encoder, with the names that transformers gives to its parts."""
    return model.encoder.layer[layer]


def head_maps(model: Any, layer: int) -> tuple[Tensor, Tensor]:
    """Query maps (H, d, D) and output maps (H, D, d) of a layer of the encoder."""
    heads = model.config.num_attention_heads
    reads = layer_modules(model, layer).attention.self.query.weight.unflatten(0, (heads, -1))
    writes = output_matrix(model, layer).unflatten(-1, (heads, -1))
    return reads, writes.transpose(0, 1)


def compose_heads(reads: Tensor, writes: Tensor) -> Tensor:
    """Composition of an output map with the query map of each head, from the right: (H, d, d)."""
    return torch.einsum("hqD,hDv->hvq", reads, writes)
