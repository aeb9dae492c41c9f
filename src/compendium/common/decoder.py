"""The generator that the chapters of Part IV read: a causal model of transformers as they call it.

Its word embeddings are also its read-out, so that logits are final states times their transpose.
"""

from typing import Any

import torch
from torch import Tensor

from spinformer.core.records import record
from spinformer.language.soft_map_cache import cache_argument


@record
class Decoder:
    """Causal language model of transformers with tied embeddings, and its tokenizer.

    `width` is D, `heads` H of width d share keys and values (grouped-query attention).
    """

    model: Any
    tokenizer: Any = None

    @property
    def embedding(self) -> Tensor:
        """Word embeddings (V, D), which are also the read-out."""
        words: Tensor = self.model.get_input_embeddings().weight
        return words

    @property
    def width(self) -> int:
        """Model width D, the number of entries of a state."""
        return self.embedding.shape[1]

    @property
    def heads(self) -> int:
        """Number of query heads H."""
        return int(self.model.config.num_attention_heads)

    @property
    def head_width(self) -> int:
        """Head width d, the number of entries of a query."""
        return self.width // self.heads


def encode(model: Decoder, text: str) -> Tensor:
    """The numbers (N,) of the words of a text; no special tokens are added."""
    return torch.tensor(model.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)


def run_decoder(
    model: Decoder,
    inputs: Tensor,
    *,
    memory: list[tuple[Tensor, Tensor]] | None = None,
    span: int | None = None,
    start: int = 0,
) -> Tensor:
    """Final states (B, N, D), normalized, of embedded tokens or mixtures of them, (B, N, D).

    `memory` is a KV cache, a list that is empty at first: keys and values of the last `span` tokens
    of each layer. The first call reads up to `span` tokens, every later one a single token at the
    position `start`, which attends to itself and to the span − 1 tokens before it.
    """
    stack = model.model.base_model
    if memory is None or span is None:
        plain: Tensor = stack(inputs_embeds=inputs, use_cache=False).last_hidden_state
        return plain
    from transformers import DynamicCache

    kept = DynamicCache()
    for layer, pair in enumerate(memory):
        last = [part[:, :, max(part.shape[2] - (span - 1), 0) :] for part in pair]
        kept.update(*last, layer)
    places = torch.arange(start, start + inputs.shape[1])[None]
    options = {cache_argument(stack): kept, "position_ids": places, "use_cache": True}
    states: Tensor = stack(inputs_embeds=inputs, **options).last_hidden_state
    memory[:] = [(layer.keys[:, :, -span:], layer.values[:, :, -span:]) for layer in kept.layers]
    return states
