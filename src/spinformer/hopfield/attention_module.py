"""To and from `torch.nn.MultiheadAttention`: its weights for a Hopfield layer, and its call.

`HopfieldLayer.from_attention` takes the weights over; `AttentionModule` lends a layer the calling
conventions of torch, so that it can stand in torch's own transformer layers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from spinformer.core.checks import check_instance


def attention_state(module: nn.MultiheadAttention) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights by the names of a Hopfield layer, and the options with which it is built.

    Raises ValueError for `add_bias_kv` or `add_zero_attn`, which append patterns that a Hopfield
    layer does not have.

    >>> state, options = attention_state(nn.MultiheadAttention(4, 2))
    >>> tuple(state["to_key.weight"].shape), options["heads"], options["batch_first"]
    ((4, 4), 2, False)
    """
    module = check_instance("module", module, nn.MultiheadAttention)
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError("module must have neither add_bias_kv nor add_zero_attn")
    names = ("to_query", "to_key", "to_value")
    packed = module.in_proj_weight
    weights = (
        (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        if packed is None
        else packed.chunk(3)
    )
    state = {f"{name}.weight": rows for name, rows in zip(names, weights, strict=True)}
    state["to_output.weight"] = module.out_proj.weight
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.chunk(3)
        state |= {f"{name}.bias": entries for name, entries in zip(names, biases, strict=True)}
        state["to_output.bias"] = module.out_proj.bias
    options = {
        "width": module.embed_dim,
        "heads": module.num_heads,
        "pattern_width": module.kdim,
        "value_width": module.vdim if module.vdim != module.kdim else None,
        "normalize": False,
        "bias": module.in_proj_bias is not None,
        "dropout": module.dropout,
        "batch_first": module.batch_first,
        "device": module.out_proj.weight.device,
        "dtype": module.out_proj.weight.dtype,
    }
    return state, options


class AttentionModule(nn.Module):
    """A `HopfieldLayer` that is called as `torch.nn.MultiheadAttention` is, mask for mask.

    `encoder_layer.self_attn = AttentionModule(layer)` puts it into torch's transformers. Raises
    ValueError where a query may look at nothing, for which torch returns NaN.

    >>> from spinformer.hopfield.layer import HopfieldLayer
    >>> module, x = AttentionModule(HopfieldLayer(8, heads=2, steps=3)), torch.ones(1, 4, 8)
    >>> output, weights = module(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([1, 4, 8]), torch.Size([1, 4, 4]))
    """

    # What torch's encoder asks before it takes a path of its own, past the module: no packed bias.
    in_proj_bias = None

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        if not isinstance(getattr(layer, "batch_first", None), bool):
            raise TypeError(f"layer must be a HopfieldLayer, got {type(layer).__name__}")
        self.layer = layer
        self.batch_first = layer.batch_first
        self.train(layer.training)

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
        """Output and weights (or None), as torch has them; `is_causal` is a hint: give the mask."""
        given: dict[str, Any] = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
        if value is not key:
            given["values"] = value
        if is_causal and attn_mask is None:
            raise ValueError("attn_mask must be given with is_causal, as torch asks for")
        if not need_weights:
            return self.layer(query, patterns=key, **given), None
        found: tuple[Tensor, Tensor] = self.layer(
            query,
            patterns=key,
            need_weights=True,
            average_attn_weights=average_attn_weights,
            **given,
        )
        return found
