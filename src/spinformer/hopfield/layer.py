"""Attention as a trainable Hopfield layer: projections, norms and retrieval steps in every head.

Queries are states, and patterns are what is stored. In each head the state takes retrieval steps
among the keys, ξ ← Σ_i p_i k_i, and at last reads the values, Σ_i p_i v_i, with p = softmax(β
k·ξ). One read without a retrieval step before it is multi-head attention [bal2020energy, Sec. 3;
ramsauer2020hopfield, Sec. 2, whose Hopfield, HopfieldPooling and HopfieldLayer are options of one
class here].

Masks are those of `torch.nn.MultiheadAttention`: True leaves a pattern out, and numbers are added
to the scores. Elsewhere in this package, as in torch's scaled_dot_product_attention, True lets a
query attend.
"""

import copy
import math
import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from spinformer.core.attention import nan_factor
from spinformer.core.checks import (
    check_instance,
    check_integer,
    check_mask,
    check_real,
    check_tensor,
)
from spinformer.core.operators import is_traced
from spinformer.core.records import record
from spinformer.core.solve import Solution, status_of
from spinformer.hopfield.attention import (
    additive_mask,
    masked_attention_weights,
    unchecked_retrieval_step,
)
from spinformer.hopfield.fixed_points import fixed_point, fixed_point_tolerance
from spinformer.hopfield.inputs import check_alpha

# How short a step must be to count as converged where no tolerance is given.
_TOLERANCE = 1e-3
# Calls between a warning and the line that called the layer: `_warn`, `forward` and two of torch's.
_OUTSIDE = 5


class HopfieldLayer(nn.Module):
    r"""Multi-head continuous Hopfield layer, a differentiable replacement of attention.

    In each head the states of the queries take retrieval steps among the keys and at last read the
    values. With one step, a read without a retrieval step before it, the layer is multi-head
    attention. With learned patterns it is a lookup, and with learned queries it pools a sequence.

    Parameters
    ----------
    width : int
        Number of features of queries, patterns and output, at least 1.
    heads : int, default 1
        Number of heads, which divides the width.
    steps : int or None, default None
        Without a tolerance, number of steps including the read, that is n − 1 retrieval steps and
        a read (default 1). With a tolerance, largest number of retrieval steps (default 100).
    tolerance : float or None, default None
        If given, states are iterated until none moves farther than this, or than rounding does,
        and then read the values. The derivative is then implicit.
    beta : float, sequence of float or None, default None
        Inverse temperature, the reciprocal of the softmax temperature, one for all heads or one
        for each head, positive. None is 1/√(width/heads). Its logarithm is the parameter
        `log_beta`, which learns after `layer.log_beta.requires_grad_()`.
    alpha : float, default 1.0
        Index of the separation by α-entmax: 1 is softmax, 2 sparsemax (see `hopfield.separation`).
        Only softmax runs in the framework's fused kernel.
    memories : int, default 0
        Number of learned patterns, which are stored beside those given to `forward`, or alone.
    pooling : int, default 0
        Number of learned queries. If there are any, `forward` takes no queries and the output has
        this length.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a value is not allowed or `heads` does not divide `width`.

    Warns
    -----
    RuntimeWarning
        If states did not reach the tolerance within `steps`, so that output and gradient are
        inexact. It is given once, and never with `warned = True`, nor under a compiler or a
        transform.

    Notes
    -----
    In each head the state ξ moves among the keys and then reads the values,

    .. math::

        \xi \leftarrow \sum_i p_i\, k_i, \qquad \text{output} = \sum_i p_i\, v_i, \qquad p =
        \operatorname{softmax}(\beta\, k \cdot \xi),

    or α-entmax in the place of softmax.

    The maps are attributes and may be replaced, by an identity, for example: `query_norm`,
    `pattern_norm` (LayerNorm), `to_query`, `to_key`, `to_value`, `to_output` (Linear). `to_value =
    None` ties the values to the keys, so that the read is one more retrieval step. Further
    attributes are `dropout` (0.0), the probability with which an attention weight is dropped in
    training, with a tolerance at the read only, and `batch_first` (True), which is False for
    (length, batch, width). Dtype and device are torch's defaults, or those of `layer.to`.

    The fixed point of a state never depends on its neighbours. With a tolerance the query has no
    gradient through the fixed point that it reached, because it only selects the basin of
    attraction. Second derivatives are right through a fixed point. Through a fixed number of steps
    the fused kernel refuses them, whereas torch's math kernel has them (and `vmap`). With a
    tolerance `torch.compile(fullgraph=True)`, `torch.export` and `vmap` of `torch.func.grad` fail,
    because the number of steps depends on values, whereas `torch.compile` alone and `vmap` work.

    A weight or an input that is not finite gives NaN, never a plausible number.

    References
    ----------
    [bal2020energy, Sec. 3]

    [ramsauer2020hopfield, Sec. 2], whose Hopfield, HopfieldPooling and HopfieldLayer are options
    of one class here.

    [santos2024sparse], for other indices than 1.

    Examples
    --------
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
        steps: int | None = None,
        tolerance: float | None = None,
        beta: float | Sequence[float] | None = None,
        alpha: float = 1.0,
        memories: int = 0,
        pooling: int = 0,
    ) -> None:
        super().__init__()
        self.width = check_integer("width", width, low=1)
        self.heads = check_integer("heads", heads, low=1)
        if width % heads:
            raise ValueError(f"heads must divide width {width}, got {heads}")
        if tolerance is not None:
            tolerance = check_real("tolerance", tolerance, low=0.0)
        if steps is None:
            steps = 1 if tolerance is None else 100
        self.tolerance = tolerance
        self.steps = check_integer("steps", steps, low=1)
        self.alpha = check_alpha(alpha)
        self.dropout = 0.0
        self.batch_first = True
        self.warned = False
        self._start = _log_betas(beta, heads=heads, head_width=width // heads)
        self.log_beta = nn.Parameter(torch.tensor(self._start), requires_grad=False)
        self.query_norm: nn.Module = nn.LayerNorm(width)
        self.pattern_norm: nn.Module = nn.LayerNorm(width)
        self.to_query: nn.Module = nn.Linear(width, width)
        self.to_key: nn.Module = nn.Linear(width, width)
        self.to_value: nn.Module | None = nn.Linear(width, width)
        self.to_output: nn.Module = nn.Linear(width, width)
        self.memory = _learned_rows("memories", memories, width)
        self.pooled_queries = _learned_rows("pooling", pooling, width)

    def reset_parameters(self) -> None:
        """Redraw every map, learned pattern and learned query, and reset norms and β."""
        for part in self.children():
            # An identity, for example, has no parameters to redraw.
            reset: Any = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()
        with torch.no_grad():
            for drawn in (self.memory, self.pooled_queries):
                if drawn is not None:
                    drawn.normal_()
            self.log_beta.copy_(self.log_beta.new_tensor(self._start))

    @property
    def beta(self) -> Tensor:
        """Inverse temperatures, shape (heads,)."""
        return self.log_beta.exp()

    def forward(
        self,
        queries: Tensor | None = None,
        *,
        patterns: Tensor | None = None,
        values: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        return_states: bool = False,
    ) -> Any:
        """Multi-head retrieval of values for a batch of queries.

        One sample may come without its batch axis, (S, width).

        Parameters
        ----------
        queries : Tensor, shape (B, S, width), or None, default None
            Queries, or None with `pooling`.
        patterns : Tensor, shape (B, N, width), or None, default None
            Stored patterns, or None with `memories`.
        values : Tensor, shape (B, N, ...), or None, default None
            Input of the values, if it is not the patterns.
        key_padding_mask : Tensor, shape (B, N), or None, default None
            True for a pattern that no query may attend to. Floating-point numbers are added to the
            scores.
        attn_mask : Tensor, shape (S, N) or (B · heads, S, N), or None, default None
            True where a query may not attend to a pattern. Floating-point numbers are added to the
            scores.
        need_weights : bool, default False
            Whether to return the attention weights of the read as well.
        return_states : bool, default False
            Whether to return the states that read the values as well.

        Returns
        -------
        output : Tensor, shape (B, S, width)
            Retrieved values. It is returned alone if nothing else is asked for, and otherwise as
            the first entry of a tuple.
        weights : Tensor, shape (B, heads, S, N + memories)
            With `need_weights`, the attention weights of the read.
        states : Solution
            With `return_states`, the states that read the values, (B, heads, S, head width), as
            its value.

        Raises
        ------
        TypeError
            If an argument is not a tensor of the layer's dtype, or a mask is of another type.
        ValueError
            If a shape does not fit, or queries or patterns are given or missing against the
            layer's options.

        Notes
        -----
        Learned patterns are never masked. A query that may attend to nothing retrieves 0 in a
        head, eager and compiled, and its weights are 0. Its output is what `to_output` makes of
        that.

        The residual of the `Solution`, (B, heads, S), is the length of the last step of each state
        with a tolerance, and of one more step for a fixed number of steps. Its status is CONVERGED
        where the residual is within the tolerance (1e-3 for a fixed number of steps), and DIVERGED
        where a state, key or value is not finite or a score may overflow. In the latter case the
        state and what it reads are NaN. Inside `torch.compile` and the transforms of `torch.func`,
        values are not checked.
        """
        heads = self._prepare(queries, patterns, values, key_padding_mask, attn_mask)
        state = heads.queries
        keys = heads.keys
        mask = heads.mask
        beta = self.beta.view(-1, 1, 1)
        scaled = keys * beta
        dropout = 0.0
        if self.training and self.dropout:
            dropout = check_real("dropout", self.dropout, low=0.0, high=1.0)
        # The kernel would hide what is not finite. States stay among the keys, so that their start
        # decides it for all steps.
        contents = (keys,) if heads.values is keys else (keys, heads.values)
        factor = nan_factor(state, keys=scaled, contents=contents, mask=mask, again=True)

        def step(state: Tensor, content: Tensor, dropout: float) -> Tensor:
            return unchecked_retrieval_step(
                state,
                scaled=scaled,
                content=content,
                bias=mask,
                dropout=dropout,
                alpha=self.alpha,
            )

        if self.tolerance is None:
            for _ in range(self.steps - 1):
                state = step(state, keys, dropout)
        else:
            # A small tolerance means nothing in half precision.
            wide = torch.promote_types(state.dtype, torch.float32)
            with torch.autocast(state.device.type, enabled=False):
                settled, moved, taken = fixed_point(
                    state.to(wide),
                    keys=keys.to(wide),
                    beta=beta.to(wide),
                    bias=None if mask is None else additive_mask(mask, wide),
                    alpha=self.alpha,
                    tolerance=self.tolerance,
                    max_steps=self.steps,
                )
                converged = moved <= fixed_point_tolerance(keys.to(wide), self.tolerance)
            state = settled.to(state.dtype)
            self._warn(converged, moved)
        if factor is not None:
            state = state * factor
        if need_weights:
            weights = masked_attention_weights(state, scaled=scaled, bias=mask, alpha=self.alpha)
            content = functional.dropout(weights, dropout) @ heads.values
        else:
            content = step(state, heads.values, dropout)
            if factor is not None:
                content = content * factor
        output = self.to_output(content.transpose(1, 2).flatten(-2))
        if not heads.batched:
            output = output.squeeze(0)
        elif not self.batch_first:
            output = output.transpose(0, 1)
        results: list[Any] = [output]
        if need_weights:
            results.append(weights if heads.batched else weights.squeeze(0))
        if return_states:
            if self.tolerance is None:
                with torch.no_grad():
                    following = step(state, keys, 0.0)
                moved = torch.linalg.vector_norm(following - state.detach(), dim=-1)
                taken = torch.full_like(moved, self.steps - 1, dtype=torch.int64)
                converged = moved <= _TOLERANCE
            status = status_of(converged, finite=torch.isfinite(state.detach()).all(-1))
            results.append(Solution(value=state, residual=moved, steps=taken, status=status))
        return results[0] if len(results) == 1 else tuple(results)

    @classmethod
    def from_attention(
        cls,
        module: nn.MultiheadAttention,
        *,
        steps: int | None = None,
        tolerance: float | None = None,
        beta: float | Sequence[float] | None = None,
        alpha: float = 1.0,
    ) -> Self:
        """Hopfield layer with the weights of a multi-head attention module of torch.

        The weights are copied and there are no norms. With one step the layer gives the output of
        `module` for the same masks.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            Module whose weights, dropout and `batch_first` are taken over.
        steps : int or None, default None
            Number of steps, as in `HopfieldLayer`.
        tolerance : float or None, default None
            Tolerance of the fixed point, as in `HopfieldLayer`.
        beta : float, sequence of float or None, default None
            Inverse temperature, as in `HopfieldLayer`.
        alpha : float, default 1.0
            Index of the separation, as in `HopfieldLayer`.

        Returns
        -------
        HopfieldLayer
            The layer, in the training mode of `module`.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        ValueError
            If `module` has `add_bias_kv` or `add_zero_attn`, which append patterns that this layer
            does not have, or a value is not allowed.

        Examples
        --------
        >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> layer, x = HopfieldLayer.from_attention(attention), torch.ones(1, 3, 8)
        >>> torch.allclose(layer(x, patterns=x), attention(x, x, x)[0], atol=1e-6)
        True
        """
        module = check_instance("module", module, nn.MultiheadAttention)
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("module must have neither add_bias_kv nor add_zero_attn")
        layer = cls(
            module.embed_dim,
            heads=module.num_heads,
            steps=steps,
            tolerance=tolerance,
            beta=beta,
            alpha=alpha,
        ).to(module.out_proj.weight)
        layer.log_beta.data = layer.log_beta.new_tensor(layer._start)
        layer.query_norm = nn.Identity()
        layer.pattern_norm = nn.Identity()
        query_bias = key_bias = value_bias = None
        if module.in_proj_bias is not None:
            query_bias, key_bias, value_bias = module.in_proj_bias.chunk(3)
        if module.in_proj_weight is None:
            query = module.q_proj_weight
            key = module.k_proj_weight
            value = module.v_proj_weight
        else:
            query, key, value = module.in_proj_weight.chunk(3)
        output = module.out_proj
        layer.to_query = _linear(query, query_bias)
        layer.to_key = _linear(key, key_bias)
        layer.to_value = _linear(value, value_bias)
        layer.to_output = _linear(output.weight, output.bias)
        layer.dropout = module.dropout
        layer.batch_first = module.batch_first
        return layer.train(module.training)

    def _prepare(
        self,
        queries: Tensor | None,
        patterns: Tensor | None,
        values: Tensor | None,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> "_Heads":
        """Check the input, and take it through the norms and maps into heads."""
        inputs = {"queries": queries, "patterns": patterns, "values": values}
        self._check_presence(**inputs)
        features = {
            name: _features(name, value, self.log_beta)
            for name, value in inputs.items()
            if value is not None
        }
        batched = _check_batch_axes(features)
        for name, value in features.items():
            if not batched:
                features[name] = value[None]
            elif not self.batch_first:
                features[name] = value.transpose(0, 1)
        size = _check_sizes(features)
        self._check_widths(features)
        pooled = self.pooled_queries
        states = features["queries"] if pooled is None else pooled.expand(size, -1, -1)
        learned = [] if self.memory is None else [self.memory.expand(size, -1, -1)]
        stored = [features["patterns"]] if "patterns" in features else []
        count = stored[0].shape[1] if stored else 0
        normed = _normed(self.pattern_norm, torch.cat([*stored, *learned], dim=1))
        keys = self._split("to_key", self.to_key(normed))
        if self.to_value is None:
            content = keys
        else:
            source = normed
            if "values" in features:
                content = features["values"]
                if content.shape[1] != count:
                    raise ValueError(
                        f"values must be as many as the patterns, {count}, got {content.shape[1]}"
                    )
                source = _normed(self.pattern_norm, torch.cat([content, *learned], dim=1))
            content = self._split("to_value", self.to_value(source))
        start = self._split("to_query", self.to_query(_normed(self.query_norm, states)))
        _check_maps(start, keys, content)
        shape = (size, self.heads, states.shape[1], count)
        memories = learned[0].shape[1] if learned else 0
        mask = _mask(key_padding_mask, attn_mask, shape, memories, start.dtype)
        return _Heads(queries=start, keys=keys, values=content, mask=mask, batched=batched)

    def _check_presence(
        self, *, queries: Tensor | None, patterns: Tensor | None, values: Tensor | None
    ) -> None:
        """Refuse what is given or missing against the options of the layer."""
        if tuple(self.log_beta.shape) != (self.heads,):
            raise ValueError(
                f"log_beta must have shape {(self.heads,)}, got {tuple(self.log_beta.shape)}"
            )
        if (queries is None) == (self.pooled_queries is None):
            raise ValueError("queries must be given exactly where the layer has no pooling")
        if patterns is None and self.memory is None:
            raise ValueError("patterns must be given where the layer has no memories")
        if values is not None and (patterns is None or self.to_value is None):
            raise ValueError("values must be None where they are tied to keys or without patterns")

    def _check_widths(self, features: dict[str, Tensor]) -> None:
        """Refuse an input that is not as wide as the norm or the map that reads it."""
        expected = {
            "queries": self.width,
            "patterns": _width_taken(self.pattern_norm, self.to_key),
            "values": _width_taken(self.pattern_norm, self.to_value),
        }
        for name, value in features.items():
            width = expected[name]
            if width not in (None, value.shape[-1]):
                raise ValueError(f"{name} must have width {width}, got {value.shape[-1]}")

    def _split(self, name: str, features: Tensor) -> Tensor:
        if features.shape[-1] % self.heads:
            raise ValueError(
                f"{name} must give a multiple of the {self.heads} heads, got {features.shape[-1]}"
            )
        return features.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _warn(self, converged: Tensor, moved: Tensor) -> None:
        """Say once that states had not reached a fixed point when the steps were used up."""
        if is_traced() or self.warned or bool(converged.all()):
            return
        self.warned = True
        left = moved[~converged].detach()
        warnings.warn(
            f"{len(left)} of {converged.numel()} states reached no fixed point in {self.steps} "
            f"steps: the last one moved them by up to {float(left.max()):.3g}, tolerance "
            f"{self.tolerance:.3g}. Output and gradient are inexact; raise steps or tolerance, or "
            "read return_states (this is said once)",
            RuntimeWarning,
            stacklevel=_OUTSIDE,
        )


@record
class _Heads:
    """Input of the heads: queries (B, heads, S, head width), keys and values (B, heads, N, …)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    # One that broadcasts to (B, heads, S, N), True where a query may attend, or numbers to add.
    mask: Tensor | None
    # Whether the input had a batch axis.
    batched: bool


class AttentionModule(nn.Module):
    """Hopfield layer with the call signature of `torch.nn.MultiheadAttention`.

    `encoder_layer.self_attn = AttentionModule(layer)` puts the layer into torch's transformers.

    Parameters
    ----------
    layer : HopfieldLayer
        The layer that is called.

    Raises
    ------
    TypeError
        If `layer` is not a HopfieldLayer.

    Notes
    -----
    The layers of torch's transformers start as copies of one. `nn.TransformerEncoder(...,
    enable_nested_tensor=False)` avoids a warning. A query that may attend to nothing reads 0 in
    that head, as with torch's kernel. Its weights are 0, where torch returns NaN. `from_attention`
    keeps `batch_first`, which is False by default in torch's layers and True in a `HopfieldLayer`.
    With the wrong value, and no mask, a batch is read as a sequence and no error is raised.

    Examples
    --------
    >>> module, x = AttentionModule(HopfieldLayer(8, heads=2, steps=3)), torch.ones(1, 4, 8)
    >>> output, weights = module(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([1, 4, 8]), torch.Size([1, 4, 4]))
    """

    # What torch's encoders ask before they take a path of their own, past the module.
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(self, layer: HopfieldLayer) -> None:
        super().__init__()
        self.layer = check_instance("layer", layer, HopfieldLayer)
        self.train(layer.training)

    @classmethod
    def from_attention(
        cls,
        module: nn.MultiheadAttention,
        *,
        steps: int | None = None,
        tolerance: float | None = None,
        beta: float | Sequence[float] | None = None,
        alpha: float = 1.0,
    ) -> Self:
        """Replacement of a multi-head attention module of torch, with its weights.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            Module whose weights, dropout and `batch_first` are taken over.
        steps : int or None, default None
            Number of steps, as in `HopfieldLayer`.
        tolerance : float or None, default None
            Tolerance of the fixed point, as in `HopfieldLayer`.
        beta : float, sequence of float or None, default None
            Inverse temperature, as in `HopfieldLayer`.
        alpha : float, default 1.0
            Index of the separation, as in `HopfieldLayer`.

        Returns
        -------
        AttentionModule
            The replacement, to be called as `module` is.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        ValueError
            If a value is not allowed, or for a module that `HopfieldLayer.from_attention` refuses.

        Examples
        --------
        >>> block = nn.TransformerEncoderLayer(8, 2, 16)
        >>> block.self_attn = AttentionModule.from_attention(block.self_attn, steps=3)
        >>> block.self_attn.batch_first
        False
        """
        layer = HopfieldLayer.from_attention(
            module, steps=steps, tolerance=tolerance, beta=beta, alpha=alpha
        )
        return cls(layer)

    @property
    def batch_first(self) -> bool:
        """Whether the batch is the first axis."""
        return self.layer.batch_first

    def reset_parameters(self) -> None:
        """Redraw the parameters of the layer (see `HopfieldLayer.reset_parameters`)."""
        self.layer.reset_parameters()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention output and weights, with the arguments of `torch.nn.MultiheadAttention`.

        Parameters
        ----------
        query : Tensor, shape (B, S, width)
            Queries.
        key : Tensor, shape (B, N, width)
            Stored patterns.
        value : Tensor, shape (B, N, ...)
            Input of the values.
        key_padding_mask : Tensor, shape (B, N), or None, default None
            True for a pattern that no query may attend to. Floating-point numbers are added to the
            scores.
        need_weights : bool, default True
            Whether to return the attention weights.
        attn_mask : Tensor, shape (S, N) or (B · heads, S, N), or None, default None
            True where a query may not attend to a key. Floating-point numbers are added to the
            scores.
        average_attn_weights : bool, default True
            Whether to average the weights over the heads.
        is_causal : bool, default False
            Hint that `attn_mask` is causal. The mask must be given all the same.

        Returns
        -------
        output : Tensor, shape (B, S, width)
            Retrieved values.
        weights : Tensor, shape (B, S, N) or (B, heads, S, N), or None
            Attention weights of the read.

        Raises
        ------
        TypeError
            If an argument is not a tensor of the layer's dtype.
        ValueError
            If a shape does not fit, or `is_causal` is given without a mask.
        """
        if is_causal and attn_mask is None:
            raise ValueError("attn_mask must be given with is_causal, as torch asks for")
        result = self.layer(
            query,
            patterns=key,
            values=None if value is key else value,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            need_weights=need_weights,
        )
        if not need_weights:
            return result, None
        output, weights = result
        return output, weights.mean(-3) if average_attn_weights else weights


def replace_attention(
    model: nn.Module,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    beta: float | Sequence[float] | None = None,
    alpha: float = 1.0,
) -> nn.Module:
    """Copy of a torch model with a Hopfield layer in the place of every attention module.

    Every `torch.nn.MultiheadAttention`, however deep, becomes an `AttentionModule` with its
    weights, its dropout, its `batch_first`, its training mode and its frozen parameters, and the
    same convention of masks. With one step and softmax the copy computes what the model does.

    Parameters
    ----------
    model : torch.nn.Module
        Model, or an attention module itself. It stays as it is.
    steps : int or None, default None
        Number of steps, as in `HopfieldLayer`.
    tolerance : float or None, default None
        Tolerance of the fixed point, as in `HopfieldLayer`.
    beta : float, sequence of float or None, default None
        Inverse temperature, as in `HopfieldLayer`.
    alpha : float, default 1.0
        Index of the separation, as in `HopfieldLayer`: 1.5 is 1.5-entmax, 2 sparsemax.

    Returns
    -------
    torch.nn.Module
        The copy. A module that the model uses in two places is one module there, too.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or an attention module is of a class derived from
        torch's, whose own computation would be lost.
    ValueError
        If the model has no attention module of torch, or one with `add_bias_kv` or
        `add_zero_attn`, with hooks, with a parametrization such as weight normalization, or with
        weights that another module shares. The message names it.

    Notes
    -----
    A model whose blocks compute attention themselves, as those of `transformers` do, has no module
    to be replaced. An optimizer that was made for the model knows nothing of the copy. In
    evaluation torch's encoders take a fused path of their own, which the copy does not.

    Examples
    --------
    >>> model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> sparse = replace_attention(model, alpha=2.0)
    >>> type(sparse.self_attn).__name__, sparse(torch.ones(1, 3, 8)).shape
    ('AttentionModule', torch.Size([1, 3, 8]))
    """
    check_instance("model", model, nn.Module)
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    replacements: dict[int, Any] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            _check_replaceable(name or "model", module, owners)
            replacements[id(module)] = AttentionModule.from_attention(
                module, steps=steps, tolerance=tolerance, beta=beta, alpha=alpha
            )
    if not replacements:
        raise ValueError(
            f"model must contain a torch.nn.MultiheadAttention, {type(model).__name__} has none"
        )
    # A deep copy asks this table first, so that every reference to a module leads to its
    # replacement.
    return copy.deepcopy(model, replacements)


def _check_replaceable(
    name: str, module: nn.MultiheadAttention, owners: dict[int, list[str]]
) -> None:
    """Refuse an attention module of which a replacement would lose something.

    `owners` has the names of the modules to which each parameter of the model belongs, by its id.
    """
    # A parametrization changes the class of a module, too.
    if any(parametrize.is_parametrized(part) for part in module.modules()):
        raise ValueError(f"{name} must have no parametrization, which its replacement would lose")
    if type(module) is not nn.MultiheadAttention:
        kind = type(module).__qualname__
        raise TypeError(f"{name} must be a torch.nn.MultiheadAttention itself, got its {kind}")
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(f"{name} must have neither add_bias_kv nor add_zero_attn")
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise ValueError(f"{name} must have no hooks, which its replacement would lose")
    for parameter in module.parameters():
        if len(owners[id(parameter)]) > 1:
            shared = " and ".join(owners[id(parameter)])
            raise ValueError(f"{name} must have weights of its own, got one shared by {shared}")


# -- what a layer is given --------------------------------------------------------------------


def _log_betas(beta: float | Sequence[float] | None, *, heads: int, head_width: int) -> list[float]:
    if beta is None:
        beta = 1.0 / math.sqrt(head_width)
    betas = list(beta) if isinstance(beta, list | tuple) else [beta] * heads
    if len(betas) != heads:
        raise ValueError(f"beta must be one number or one per head ({heads}), got {len(betas)}")
    return [math.log(check_real("beta", value, low=0.0, open_low=True)) for value in betas]


def _learned_rows(name: str, count: int, width: int) -> nn.Parameter | None:
    """Learned patterns or queries, None where there are none."""
    count = check_integer(name, count, low=0)
    return nn.Parameter(torch.randn(count, width)) if count else None


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Linear map with copies of a weight and a bias, which learn if those do."""
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, bias=bias is not None).to(weight)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    linear.weight.requires_grad_(weight.requires_grad)
    if bias is not None:
        linear.bias.requires_grad_(bias.requires_grad)
    return linear


def _normed(norm: nn.Module, features: Tensor) -> Tensor:
    """norm(features), NaN where squares overflow: there a LayerNorm gives its bias."""
    result = norm(features)
    if not isinstance(norm, nn.LayerNorm):
        return result
    wide = torch.promote_types(features.dtype, torch.float32)
    data = features.detach()
    if not is_traced() and math.isfinite(torch.linalg.vector_norm(data, dtype=wide)):
        return result
    size = data.abs().amax(-1, keepdim=True).to(wide).square() * data.shape[-1]
    return result + (0.0 * size).to(result.dtype)


def _check_batch_axes(features: dict[str, Tensor]) -> bool:
    """Whether the input has a batch axis, which all of it must have, or none."""
    axes = {value.ndim for value in features.values()}
    if len(axes) > 1:
        raise ValueError(f"{' and '.join(features)} must all have a batch axis, or none")
    return axes != {2}


def _check_sizes(features: dict[str, Tensor]) -> int:
    """Batch size, which must be one for all input."""
    sizes = {len(value) for value in features.values()} or {1}
    if len(sizes) > 1:
        raise ValueError(f"{' and '.join(features)} must have one batch size, got {sizes}")
    return sizes.pop()


def _check_maps(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Refuse maps of a user's own that do not fit each other: a kernel would read beyond an end."""
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"to_query and to_key must give the same width, got {queries.shape[-1]} and "
            f"{keys.shape[-1]} a head"
        )
    if keys.shape[:-1] != values.shape[:-1]:
        raise ValueError(
            f"to_key and to_value must keep every pattern, got {keys.shape[2]} and "
            f"{values.shape[2]}"
        )
    types = {queries.dtype, keys.dtype, values.dtype}
    if len(types) > 1 or not queries.is_floating_point():
        raise TypeError(f"to_query, to_key and to_value must give one real dtype, got {types}")


def _width_taken(norm: nn.Module, linear: nn.Module | None) -> int | None:
    """How wide the input of a norm and a map must be, None where they do not say."""
    if isinstance(norm, nn.LayerNorm):
        return norm.normalized_shape[-1]
    return linear.in_features if isinstance(linear, nn.Linear) else None


def _features(name: str, value: Any, like: Tensor) -> Tensor:
    value = check_tensor(name, value)
    if value.dtype != like.dtype and not torch.is_autocast_enabled(value.device.type):
        raise TypeError(f"{name} must be {like.dtype} like the layer, got {value.dtype}")
    if value.ndim not in (2, 3) or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape (batch, length, width) or (length, width), "
            f"got {tuple(value.shape)}"
        )
    return value


def _mask(
    padding: Tensor | None,
    attn_mask: Tensor | None,
    shape: tuple[int, int, int, int],
    memories: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """One mask that broadcasts to (B, heads, S, N + memories), or None: True where a query may
    attend, or numbers to be added to the scores if one of the masks has them."""
    batch, heads, length, count = shape
    masks = []
    shapes: list[tuple[int, ...]]
    if padding is not None:
        shapes = [(batch, count)]
        if batch == 1:
            shapes.append((count,))
        allowed = _allowed("key_padding_mask", padding, shapes, dtype)
        masks.append(allowed.reshape(batch, 1, 1, count))
    if attn_mask is not None:
        shapes = [(length, count), (batch * heads, length, count)]
        allowed = _allowed("attn_mask", attn_mask, shapes, dtype)
        masks.append(allowed.reshape(shape) if allowed.ndim == 3 else allowed)
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        whole = reduce(torch.logical_and, masks)
    else:
        whole = reduce(torch.add, [additive_mask(mask, dtype) for mask in masks])
        _check_bias("key_padding_mask plus attn_mask", whole, dtype)
    if memories:
        # Learned patterns are never masked: True, or nothing added.
        return functional.pad(whole, (0, memories), value=whole.dtype == torch.bool)
    return whole


def _allowed(name: str, mask: Tensor, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Tensor:
    """A mask in torch's convention, inverted so that True lets a query attend; numbers as given."""
    mask = check_mask(name, mask, shapes)
    if mask.dtype == torch.bool:
        return ~mask
    _check_bias(name, mask, dtype)
    return mask


def _check_bias(name: str, mask: Tensor, dtype: torch.dtype) -> None:
    """Refuse NaN and what is infinite in `dtype`, but not −inf. A compiler sees no values: there
    `nan_factor` answers."""
    if is_traced() or not mask.numel():
        return
    if not bool(mask.detach().amax().to(dtype) < math.inf):
        raise ValueError(f"{name} must have entries below infinity in {dtype}, got NaN or larger")
