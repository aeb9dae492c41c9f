"""Attention as a trainable Hopfield layer: projections, norms, and hops to a memory, per head.

Queries are states, patterns are what is stored. In each head the state hops over the keys,
ξ ← Σ_i p_i k_i, and at last reads the values, Σ_i p_i v_i; p = softmax(β k·ξ), or the weights of
another convex `Lagrangian`. One read without a hop is multi-head attention [bal2020energy, Sec. 3;
ramsauer2020hopfield, Sec. 2, whose Hopfield, HopfieldPooling and HopfieldLayer are options of one
class here]. Hops are counted in advance (`steps`) or go on until nothing moves (`tolerance`).
Hops and read are calls of the framework's fused kernel; β multiplies the keys once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real, check_tensor
from spinformer.hopfield.attention_module import attention_state
from spinformer.hopfield.lagrangians import LOG_SUM_EXP, Lagrangian, check_lagrangian
from spinformer.hopfield.layer_inputs import (
    arrange,
    as_bias,
    combine_masks,
    head_size,
    inverse_temperatures,
)
from spinformer.hopfield.resting import LayerRetrieval, explicit_weights, hop, judge, rest


class _Parts(NamedTuple):
    start: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    batched: bool


class HopfieldLayer(nn.Module):
    """Multi-head continuous Hopfield retrieval, differentiable, in place of attention.

    width: features of the queries and of the output. heads, head_width: number and width of the
        heads (default width/heads, which must be whole).
    pattern_width, value_width: features of the stored patterns and of values that are not the
        patterns (default: `width`, and those of the patterns).
    steps: n − 1 hops and a read (default 1: attention). tolerance: instead, hop until no state
        moves farther than this, or `max_steps` times, then read; the derivative is implicit, and
        the query has none through the rest it reached (it chooses the basin, see `resting`).
    beta: one inverse temperature > 0, or one per head (default 1/√head_width). learn_beta: train
        log β, per head. lagrangian: what turns scores into weights (`hopfield.lagrangians`).
    memories: number of learned patterns, stored beside those given to `forward`, or alone.
    pooling: number of learned queries; then `forward` takes none, and the output has this length.
    static: no projections, queries and patterns are used as they are (the output has the
        values' width). tied: values = keys, so that the read is one more hop.
    normalize: LayerNorm on queries, patterns, values before the projections (default: unless
        static). bias: biases in the projections. dropout: probability on the weights, when
        training; with a tolerance at the read only. batch_first: False for (length, batch, width).

    A state's rest never depends on its neighbours. Second derivatives are right through a rest;
    through fixed steps the fused kernel refuses them, torch's math kernel has them (and `vmap`).
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
        head_width: int | None = None,
        pattern_width: int | None = None,
        value_width: int | None = None,
        steps: int | None = None,
        tolerance: float | None = None,
        max_steps: int = 100,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        lagrangian: Lagrangian = LOG_SUM_EXP,
        memories: int = 0,
        pooling: int = 0,
        static: bool = False,
        tied: bool = False,
        normalize: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        batch_first: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.width = check_integer("width", width, low=1)
        self.heads = check_integer("heads", heads, low=1)
        self.static, self.tied = check_flag("static", static), check_flag("tied", tied)
        self.batch_first = check_flag("batch_first", batch_first)
        self.head_width = head_size(
            self.width,
            heads=self.heads,
            head_width=head_width,
            pattern_width=pattern_width,
            value_width=value_width,
            static=self.static,
            tied=self.tied,
        )
        self.pattern_width = pattern_width or self.width
        self.value_width = value_width or self.pattern_width
        if steps is not None and tolerance is not None:
            raise ValueError("tolerance must be None where steps says when to stop, or steps None")
        self.steps = check_integer("steps", 1 if steps is None else steps, low=1)
        self.tolerance = None if tolerance is None else check_real("tolerance", tolerance, low=0.0)
        self.max_steps = check_integer("max_steps", max_steps, low=1)
        self.lagrangian = check_lagrangian(lagrangian)
        self.dropout = check_real("dropout", dropout, low=0.0, high=1.0)
        for name, flag in (("learn_beta", learn_beta), ("bias", bias)):
            check_choice(name, flag, (True, False))
        normalize = check_choice("normalize", normalize, (True, False, None))
        normalize = not static if normalize is None else normalize
        memories = check_integer("memories", memories, low=0)
        if memories and value_width is not None:
            raise ValueError("memories must be 0 where values have a width of their own")
        pooling = check_integer("pooling", pooling, low=0)
        made = {"device": device, "dtype": dtype}

        log_beta = torch.tensor(
            inverse_temperatures(beta, heads=self.heads, head_width=self.head_width),
            dtype=torch.float64,
        ).log()
        log_beta = log_beta.to(device=device, dtype=dtype or torch.get_default_dtype())
        if learn_beta:
            self.log_beta = nn.Parameter(log_beta)
        else:
            self.register_buffer("log_beta", log_beta)

        def norm(size: int) -> nn.Module:
            return nn.LayerNorm(size, **made) if normalize else nn.Identity()

        def project(size: int, to: int) -> nn.Module:
            return nn.Identity() if static else nn.Linear(size, to, bias=bias, **made)

        inner = self.heads * self.head_width
        self.query_norm, self.pattern_norm = norm(self.width), norm(self.pattern_width)
        self.value_norm = None if value_width is None else norm(self.value_width)
        self.to_query = project(self.width, inner)
        self.to_key = project(self.pattern_width, inner)
        self.to_value = None if tied else project(self.value_width, inner)
        self.to_output = project(inner, self.width)
        self.memory = (
            nn.Parameter(torch.randn(memories, self.pattern_width, **made)) if memories else None
        )
        self.pooled_queries = (
            nn.Parameter(torch.randn(pooling, self.width, **made)) if pooling else None
        )

    @property
    def beta(self) -> Tensor:
        """Inverse temperatures, shape (heads,)."""
        return self.log_beta.exp()

    def forward(
        self,
        queries: Tensor | None = None,
        *,
        need_weights: bool = False,
        average_attn_weights: bool = True,
        return_states: bool = False,
        **given: Any,
    ) -> Any:
        """Retrieved values (B, S, width); with them, if asked for, weights and `LayerRetrieval`.

        queries: (B, S, width), or None with `pooling`. By name: patterns: (B, N, pattern_width),
        or None with `memories`; values: (B, N, value_width), if not the patterns. One sample may
        come without batch axis, (S, width); with `batch_first=False` lengths come first.
        Masks, that all hold together (`hopfield.layer_inputs`): pattern_mask (B, N) and
        attention_mask, broadcastable to (B, heads, S, N), are True where a query may look;
        key_padding_mask (B, N) and attn_mask, (S, N) or (B · heads, S, N), True where it may not,
        as in `torch.nn.MultiheadAttention`; floating-point ones are added to the scores. causal:
        query t sees patterns up to position t only. Learned memories are never masked. A query
        that may look at nothing has no update: it raises ValueError.

        need_weights: also the weights of the read, (B, S, N + memories), their mean over heads,
        or (B, heads, S, N + memories) without `average_attn_weights`; made explicitly.
        return_states: also the states and whether they are at rest. Inside `torch.compile` and
        `torch.vmap`, and only there, values are not checked.
        """
        part = self._prepare(queries, **given)
        dropout = self.dropout if self.training else 0.0
        scaled = self._scaled(part)
        found = self._hops(part, scaled, dropout=dropout, tolerance=self.tolerance)
        state, weights = found[0], None
        if need_weights:
            weights = self._weights(part, scaled, state)
            content = functional.dropout(weights, dropout) @ part.values
        else:
            content = self._hop(part, scaled, state, part.values, dropout=dropout)
        output = self.to_output(content.transpose(1, 2).flatten(-2))
        output = output if self.batch_first or not part.batched else output.transpose(0, 1)
        results: list[Any] = [output if part.batched else output.squeeze(0)]
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            results.append(weights if part.batched else weights.squeeze(0))
        if return_states:
            results.append(self._retrieval(part, scaled, found, self.tolerance))
        return results[0] if len(results) == 1 else tuple(results)

    def retrieve(
        self, queries: Tensor | None = None, *, tolerance: float | None = None, **given: Any
    ) -> LayerRetrieval:
        """The states only, without dropout. Arguments as in `forward`.

        tolerance: what counts as at rest, and where a layer with a tolerance stops, in place of
        the layer's own (default; 1e-3 for a layer of fixed steps).
        """
        if tolerance is None:
            tolerance = self.tolerance
        else:
            tolerance = check_real("tolerance", tolerance, low=0.0)
        part = self._prepare(queries, **given)
        scaled = self._scaled(part)
        stop = None if self.tolerance is None else tolerance
        found = self._hops(part, scaled, dropout=0.0, tolerance=stop)
        return self._retrieval(part, scaled, found, tolerance)

    def attention_weights(self, queries: Tensor | None = None, **given: Any) -> Tensor:
        """Weights of the read, shape (B, heads, S, N + memories), memories last.

        Arguments as in `forward`; dropout is not applied. Made explicitly: S·N entries a head.
        """
        part = self._prepare(queries, **given)
        scaled = self._scaled(part)
        found = self._hops(part, scaled, dropout=0.0, tolerance=self.tolerance)
        return self._weights(part, scaled, found[0])

    def energy(
        self, queries: Tensor | None = None, *, states: Tensor | None = None, **given: Any
    ) -> Tensor:
        """E(ξ) = ½ ξ·ξ − β⁻¹ Λ(β k·ξ), (B, heads, S), Λ the log-sum-exp unless another is chosen.

        states: (B, heads, S, head_width) as in `LayerRetrieval`; default: the projected queries.
        Other arguments as in `forward`; floating-point masks are added inside of Λ. No hop raises
        it; the read does not belong to it, unless values and keys are tied.
        """
        part = self._prepare(queries, **given)
        state = part.start if states is None else check_tensor("states", states)
        if state.shape != part.start.shape:
            raise ValueError(
                f"states must have shape {tuple(part.start.shape)}, got {tuple(state.shape)}"
            )
        scores, bias = state @ self._scaled(part).mT, self._bias(part)
        depth = self.lagrangian.value(scores if bias is None else scores + bias)
        return 0.5 * state.square().sum(-1) - depth / self.beta.view(-1, 1)

    @classmethod
    def from_attention(cls, module: nn.MultiheadAttention, **options: Any) -> HopfieldLayer:
        """A layer with the weights of `module`, and its output for the same masks at one step.

        `options` go to the layer: steps, tolerance, beta, learn_beta, lagrangian, memories. The
        weights are copied. Raises ValueError for `add_bias_kv` or `add_zero_attn`, which append
        patterns that this layer does not have.

        >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> layer, x = HopfieldLayer.from_attention(attention), torch.ones(1, 3, 8)
        >>> torch.allclose(layer(x, patterns=x), attention(x, x, x)[0], atol=1e-6)
        True
        """
        state, found = attention_state(module)
        layer = cls(**{**found, **options})
        if layer.static or layer.tied:
            raise ValueError("options must not tie or drop projections: there are weights for them")
        layer.load_state_dict(state, strict=False)
        return layer.train(module.training)

    def extra_repr(self) -> str:
        """What `print` shows."""
        stop = f"steps={self.steps}" if self.tolerance is None else f"tolerance={self.tolerance}"
        return f"width={self.width}, heads={self.heads}, {stop}, lagrangian={self.lagrangian}"

    def _prepare(
        self,
        queries: Tensor | None,
        *,
        patterns: Tensor | None = None,
        values: Tensor | None = None,
        **masks: Any,
    ) -> _Parts:
        pooled = self.pooled_queries
        if (queries is None) != (pooled is not None):
            raise ValueError("queries must be given exactly where the layer has no pooling")
        if patterns is None and self.memory is None:
            raise ValueError("patterns must be given where the layer has no memories")
        if values is not None and (patterns is None or self.tied):
            raise ValueError("values must be None with tied=True or without patterns")
        if values is None and self.value_norm is not None:
            raise ValueError("values must be given where they have a width of their own")
        ready, size, batched = arrange(
            {"queries": queries, "patterns": patterns, "values": values},
            widths=(self.width, self.pattern_width, self.value_width),
            model=self.log_beta,
            batch_first=self.batch_first,
        )
        stored = ready.get("patterns")
        count = 0 if stored is None else stored.shape[1]
        states = ready["queries"] if pooled is None else pooled.expand(size, -1, -1)
        content = ready.get("values", stored)
        if self.memory is not None:
            memory = self.memory.expand(size, -1, -1)
            stored = memory if stored is None else torch.cat([stored, memory], dim=1)
            content = memory if content is None else torch.cat([content, memory], dim=1)
        assert stored is not None
        mask = combine_masks(
            size,
            heads=self.heads,
            length=states.shape[1],
            given=count,
            memories=0 if self.memory is None else len(self.memory),
            model=self.log_beta,
            **masks,
        )
        normed = self.pattern_norm(stored)
        keys = self._split(self.to_key(normed))
        if self.to_value is None:
            held = keys
        else:
            if "values" in ready:
                normed = (self.value_norm or self.pattern_norm)(content)
            held = self._split(self.to_value(normed))
        start = self._split(self.to_query(self.query_norm(states)))
        return _Parts(start, keys, held, mask, batched)

    def _weights(self, part: _Parts, scaled: Tensor, state: Tensor) -> Tensor:
        bias = self._bias(part)
        return explicit_weights(state, scaled=scaled, bias=bias, lagrangian=self.lagrangian)

    def _split(self, features: Tensor) -> Tensor:
        return features.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _scaled(self, part: _Parts) -> Tensor:
        return part.keys * self.beta.view(-1, 1, 1)

    def _bias(self, part: _Parts) -> Tensor | None:
        return None if part.mask is None else as_bias(part.mask, dtype=part.start.dtype)

    def _hop(
        self, part: _Parts, scaled: Tensor, state: Tensor, content: Tensor, *, dropout: float
    ) -> Tensor:
        bias = part.mask
        if bias is not None and (self.lagrangian is not LOG_SUM_EXP or bias.dtype != torch.bool):
            bias = self._bias(part)  # the fused kernel takes booleans as they are
        return hop(
            state,
            scaled=scaled,
            content=content,
            bias=bias,
            lagrangian=self.lagrangian,
            dropout=dropout,
        )

    def _hops(
        self, part: _Parts, scaled: Tensor, *, dropout: float, tolerance: float | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """States after all hops; for hops until rest also how far the last went, and how many."""
        state = part.start
        if tolerance is None:
            for _ in range(self.steps - 1):
                state = self._hop(part, scaled, state, part.keys, dropout=dropout)
            return state, None, None
        # A small tolerance means nothing in half precision.
        wide = torch.promote_types(state.dtype, torch.float32)
        bias = self._bias(part)
        with torch.autocast(state.device.type, enabled=False):
            found, moved, hops = rest(
                state.to(wide),
                keys=part.keys.to(wide),
                beta=self.beta.view(-1, 1, 1).to(wide),
                bias=None if bias is None else bias.to(wide),
                lagrangian=self.lagrangian,
                tolerance=tolerance,
                max_steps=self.max_steps,
            )
        return found.to(state.dtype), moved, hops

    def _retrieval(
        self,
        part: _Parts,
        scaled: Tensor,
        found: tuple[Tensor, Tensor | None, Tensor | None],
        tolerance: float | None,
    ) -> LayerRetrieval:
        state, moved, hops = found
        if moved is None or hops is None:
            with torch.no_grad():
                landed = self._hop(part, scaled, state, part.keys, dropout=0.0)
            moved = torch.linalg.vector_norm(landed - state.detach(), dim=-1)
            hops = torch.full_like(moved, self.steps - 1, dtype=torch.int64)
        return judge(state, start=part.start, moved=moved, hops=hops, tolerance=tolerance)
