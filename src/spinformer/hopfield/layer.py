"""Attention as a trainable Hopfield layer: projections, norms, and n update steps per head.

Queries are states, patterns are what is stored. In each head the state moves n − 1 times by
ξ ← softmax(β ξKᵀ) K and a last time onto the values, softmax(β ξKᵀ) V. n = 1 is multi-head
attention [bal2020energy, Sec. 3; ramsauer2020hopfield, Sec. 2, whose Hopfield, HopfieldPooling and
HopfieldLayer are options of one class here]. Every step is one call of the framework's fused
kernel; β multiplies the keys once, before the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.hopfield.inputs import check_mask


class HopfieldLayer(nn.Module):
    """Multi-head continuous Hopfield retrieval, batch first, differentiable.

    width: features of the queries and of the output.
    heads: number of heads, which divide `width`; each works in its own width/heads features.
    pattern_width: features of the stored patterns (default `width`).
    steps: update steps n ≥ 1. beta: one inverse temperature > 0, or one per head (default
        1/√(width/heads)); features never share a β across heads. learn_beta: train log β, per head.
    memories: number of learned patterns, stored beside those given to `forward`, or alone.
    pooling: number of learned queries; then `forward` takes none, and the output has this length.
    normalize: LayerNorm on queries and on patterns before the projections.
    bias: biases in the four projections. dropout: probability on the softmax weights, when
        training, at every step.
    Raises TypeError or ValueError naming the argument.

    >>> layer = HopfieldLayer(8, heads=2, steps=3)
    >>> tokens = torch.zeros(1, 5, 8)
    >>> layer(tokens, patterns=tokens).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        pattern_width: int | None = None,
        steps: int = 1,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        memories: int = 0,
        pooling: int = 0,
        normalize: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.width = check_integer("width", width, low=1)
        self.heads = check_integer("heads", heads, low=1)
        if self.width % self.heads:
            raise ValueError(f"heads must divide width {width}, got {heads}")
        self.pattern_width = (
            self.width
            if pattern_width is None
            else check_integer("pattern_width", pattern_width, low=1)
        )
        self.steps = check_integer("steps", steps, low=1)
        self.dropout = check_real("dropout", dropout, low=0.0, high=1.0)
        for name, flag in (("learn_beta", learn_beta), ("normalize", normalize), ("bias", bias)):
            check_choice(name, flag, (True, False))
        memories = check_integer("memories", memories, low=0)
        pooling = check_integer("pooling", pooling, low=0)
        made = {"device": device, "dtype": dtype}

        log_beta = torch.tensor(self._betas(beta), dtype=torch.float64).log()
        log_beta = log_beta.to(device=device, dtype=dtype or torch.get_default_dtype())
        if learn_beta:
            self.log_beta = nn.Parameter(log_beta)
        else:
            self.register_buffer("log_beta", log_beta)
        self.query_norm = nn.LayerNorm(self.width, **made) if normalize else nn.Identity()
        self.pattern_norm = nn.LayerNorm(self.pattern_width, **made) if normalize else nn.Identity()
        self.to_query = nn.Linear(self.width, self.width, bias=bias, **made)
        self.to_key = nn.Linear(self.pattern_width, self.width, bias=bias, **made)
        self.to_value = nn.Linear(self.pattern_width, self.width, bias=bias, **made)
        self.to_output = nn.Linear(self.width, self.width, bias=bias, **made)
        self.memory = (
            nn.Parameter(torch.randn(memories, self.pattern_width, **made)) if memories else None
        )
        self.pooled_queries = (
            nn.Parameter(torch.randn(pooling, self.width, **made)) if pooling else None
        )

    @property
    def beta(self) -> torch.Tensor:
        """Inverse temperatures, shape (heads,)."""
        return self.log_beta.exp()

    def forward(
        self,
        queries: torch.Tensor | None = None,
        *,
        patterns: torch.Tensor | None = None,
        pattern_mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        """Retrieved values, shape (B, S, width).

        queries: (B, S, width), or None with `pooling`. patterns: (B, N, pattern_width), or None
        with `memories`. pattern_mask: (B, N) booleans, True where a pattern exists.
        attention_mask: booleans broadcastable to (B, heads, S, N), True where a query may look.
        causal: query t sees patterns up to position t only. Learned memories are never masked. A
        query that may look at nothing has no update: it raises ValueError.
        """
        state, keys, values, mask = self._prepare(
            queries, patterns, pattern_mask, attention_mask, causal
        )
        scaled = keys * self.beta.view(-1, 1, 1)
        dropout = self.dropout if self.training else 0.0
        for step in range(self.steps):
            content = values if step == self.steps - 1 else keys
            state = functional.scaled_dot_product_attention(
                state, scaled, content, attn_mask=mask, dropout_p=dropout, scale=1.0
            )
        return self.to_output(state.transpose(1, 2).flatten(-2))

    def attention_weights(
        self,
        queries: torch.Tensor | None = None,
        *,
        patterns: torch.Tensor | None = None,
        pattern_mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        """Softmax weights of the last step, shape (B, heads, S, N + memories), memories last.

        Arguments as in `forward`; dropout is not applied. Made explicitly: S·N entries a head.
        """
        state, keys, _, mask = self._prepare(
            queries, patterns, pattern_mask, attention_mask, causal
        )
        scaled = keys * self.beta.view(-1, 1, 1)
        weights = state
        for _ in range(self.steps):
            scores = state @ scaled.mT
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            weights = torch.softmax(scores, dim=-1)
            state = weights @ keys
        return weights

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"width={self.width}, heads={self.heads}, steps={self.steps}"

    def _betas(self, beta: float | Sequence[float] | None) -> list[float]:
        if beta is None:
            return [1.0 / math.sqrt(self.width // self.heads)] * self.heads
        if isinstance(beta, Sequence) and not isinstance(beta, str):
            if len(beta) != self.heads:
                raise ValueError(
                    f"beta must be one number or one per head ({self.heads}), got {len(beta)}"
                )
            return [check_real("beta", value, low=0.0, open_low=True) for value in beta]
        return [check_real("beta", beta, low=0.0, open_low=True)] * self.heads

    def _prepare(
        self,
        queries: torch.Tensor | None,
        patterns: torch.Tensor | None,
        pattern_mask: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        causal: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        pooled = self.pooled_queries
        if (queries is None) != (pooled is not None):
            raise ValueError("queries must be given exactly where the layer has no pooling")
        if patterns is None and self.memory is None:
            raise ValueError("patterns must be given where the layer has no memories")
        _check_input("queries", queries, self.width, model=self.to_query.weight)
        _check_input("patterns", patterns, self.pattern_width, model=self.to_key.weight)
        batch = next((len(t) for t in (queries, patterns) if t is not None), 1)
        if queries is not None and patterns is not None and len(queries) != len(patterns):
            raise ValueError(
                f"patterns must have the queries' batch size {len(queries)}, got {len(patterns)}"
            )
        given = 0 if patterns is None else patterns.shape[1]
        states = queries if pooled is None else pooled.expand(batch, -1, -1)
        assert states is not None
        if self.memory is not None:
            memory = self.memory.expand(batch, -1, -1)
            patterns = memory if patterns is None else torch.cat([patterns, memory], dim=1)

        mask = self._mask(batch, states.shape[1], given, pattern_mask, attention_mask, causal)
        normed = self.pattern_norm(patterns)
        state = self._split(self.to_query(self.query_norm(states)))
        return state, self._split(self.to_key(normed)), self._split(self.to_value(normed)), mask

    def _split(self, features: torch.Tensor) -> torch.Tensor:
        return features.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _mask(
        self,
        batch: int,
        length: int,
        given: int,
        pattern_mask: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        causal: bool,
    ) -> torch.Tensor | None:
        """One boolean mask, broadcastable to (B, heads, S, N + memories), or None."""
        parts = []
        if pattern_mask is not None:
            check_mask("pattern_mask", pattern_mask, shape=(batch, given), exact=True)
            parts.append(pattern_mask[:, None, None, :])
        if attention_mask is not None:
            check_mask("attention_mask", attention_mask, shape=(batch, self.heads, length, given))
            parts.append(attention_mask)
        if check_choice("causal", causal, (True, False)):
            parts.append(
                torch.ones(length, given, dtype=torch.bool).tril().to(self.log_beta.device)
            )
        if not parts:
            return None
        mask = parts[0]
        for part in parts[1:]:
            mask = mask & part
        while mask.ndim < 4:
            mask = mask.unsqueeze(0)
        if self.memory is not None:
            mask = functional.pad(
                mask.expand(*mask.shape[:-1], given), (0, len(self.memory)), value=True
            )
        elif not bool(mask.any(-1).all()):
            raise ValueError("the masks must leave at least one pattern to every query")
        return mask


def _autocast(device: str) -> bool:
    """Whether torch converts types by itself there."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # torch before 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def _check_input(name: str, value: torch.Tensor | None, width: int, *, model: torch.Tensor) -> None:
    if value is None:
        return
    # One sum in place of a scan: the scan, several times as slow, only where it is not finite.
    if not (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and math.isfinite(float(value.detach().sum(dtype=torch.float32)))
    ):
        check_tensor(name, value)
    if value.dtype != model.dtype and not _autocast(value.device.type):
        raise TypeError(f"{name} must be {model.dtype} like the layer, got {value.dtype}")
    if value.ndim != 3 or value.shape[-1] != width or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape (batch, length, {width}), got {tuple(value.shape)}"
        )
