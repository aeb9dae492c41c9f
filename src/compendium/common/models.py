"""The two trained models, read once in a process, and what one block of the decoder does."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from spinformer.language.decoder import BlockTrace, Decoder, load_decoder, run_decoder
from spinformer.language.minilm import load_model

encoder, decoder = cache(load_model), cache(load_decoder)


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
