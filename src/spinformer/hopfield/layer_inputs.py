"""What `hopfield.layer` is given, checked and brought into one form: inputs and masks.

Masks come in two conventions, told apart by their names. `pattern_mask` and `attention_mask` are
True where a pattern exists or may be looked at, as in torch's `scaled_dot_product_attention`.
`key_padding_mask` and `attn_mask` are those of `torch.nn.MultiheadAttention`: True where a pattern
is left out. Floating-point masks, in either, are added to the scores. All that are given hold
together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.checks import check_flag, check_integer, check_real, check_tensor
from spinformer.hopfield.inputs import can_broadcast, check_mask


def head_size(
    width: int,
    *,
    heads: int,
    head_width: int | None,
    pattern_width: int | None,
    value_width: int | None,
    static: bool,
    tied: bool,
) -> int:
    """The width of a head, if the widths fit together; ValueError otherwise.

    >>> head_size(
    ...     8, heads=2, head_width=None, pattern_width=8, value_width=None, static=False, tied=False
    ... )
    4
    """
    if head_width is None and width % heads:
        raise ValueError(f"heads must divide width {width}, got {heads}")
    for name, given in (("pattern_width", pattern_width), ("value_width", value_width)):
        if given is not None:
            check_integer(name, given, low=1)
    size = check_integer("head_width", width // heads if head_width is None else head_width, low=1)
    if static:
        if (pattern_width or width) != width or size * heads != width:
            raise ValueError("static must be False where widths differ: there is no projection")
        if value_width is not None and value_width % heads:
            raise ValueError(f"heads must divide value_width {value_width}, got {heads}")
    if tied and value_width is not None:
        raise ValueError("tied must be False where values have a width of their own")
    return size


def inverse_temperatures(
    beta: float | Sequence[float] | None, *, heads: int, head_width: int
) -> list[float]:
    """One β per head; the default is 1/√head_width.

    >>> inverse_temperatures(None, heads=2, head_width=4)
    [0.5, 0.5]
    """
    if beta is None:
        return [1.0 / math.sqrt(head_width)] * heads
    if isinstance(beta, Sequence) and not isinstance(beta, str):
        if len(beta) != heads:
            raise ValueError(f"beta must be one number or one per head ({heads}), got {len(beta)}")
        return [check_real("beta", value, low=0.0, open_low=True) for value in beta]
    return [check_real("beta", beta, low=0.0, open_low=True)] * heads


def told(flag: Tensor) -> bool | None:
    """A boolean tensor's value, or None where none can be seen: while compiling, inside `vmap`.

    >>> told(torch.ones(2).all()), torch.vmap(lambda x: x * (told(x > 0) is None))(torch.ones(1))
    (True, tensor([1.]))
    """
    if torch.compiler.is_compiling():
        return None
    try:
        return bool(flag)
    except RuntimeError:  # vmap has no public way to ask
        return None


def check_features(name: str, value: Any, *, width: int, model: Tensor) -> Tensor:
    """Finite (batch, length, width), or (length, width) for one sample, of the model's type.

    >>> check_features("queries", torch.ones(1, 2), width=2, model=torch.ones(1)).shape
    torch.Size([1, 2])
    """
    # One sum in place of a scan: the scan, several times as slow, only where it is not finite.
    if not (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and told(value.detach().sum(dtype=torch.float32).isfinite()) is not False
    ):
        value = check_tensor(name, value)
    if value.dtype != model.dtype and not _autocast(value.device.type):
        raise TypeError(f"{name} must be {model.dtype} like the layer, got {value.dtype}")
    if value.ndim not in (2, 3) or value.shape[-1] != width or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape (batch, length, {width}) or (length, {width}), "
            f"got {tuple(value.shape)}"
        )
    return value


def arrange(
    inputs: dict[str, Tensor | None],
    *,
    widths: tuple[int, ...],
    model: Tensor,
    batch_first: bool,
) -> tuple[dict[str, Tensor], int, bool]:
    """The inputs that were given, (batch, length, width), the batch size, and whether it was given.

    One sample, (length, width), gets a batch axis; (length, batch, width) is turned if not
    `batch_first`. Values must be as many as patterns.

    >>> ready, size, batched = arrange({"queries": torch.ones(3, 2)}, widths=(2,),
    ...                                model=torch.ones(1), batch_first=True)
    >>> tuple(ready["queries"].shape), size, batched
    ((1, 3, 2), 1, False)
    """
    ready = {
        name: check_features(name, value, width=width, model=model)
        for (name, value), width in zip(inputs.items(), widths, strict=True)
        if value is not None
    }
    batched = next((x.ndim == 3 for x in ready.values()), True)
    size = None
    for name, value in ready.items():
        if (value.ndim == 3) != batched:
            raise ValueError(f"{name} must have a batch axis exactly where the other inputs do")
        if not batched:
            value = value.unsqueeze(0)
        elif not batch_first:
            value = value.transpose(0, 1)
        size = len(value) if size is None else size
        if len(value) != size:
            raise ValueError(
                f"{name} must have the batch size of the other inputs, {size}, got {len(value)}"
            )
        ready[name] = value
    if "values" in ready and ready["values"].shape[1] != ready["patterns"].shape[1]:
        raise ValueError(
            f"values must be as many as the patterns, {ready['patterns'].shape[1]}, "
            f"got {ready['values'].shape[1]}"
        )
    return ready, size or 1, batched


def combine_masks(
    batch: int,
    *,
    heads: int,
    length: int,
    given: int,
    memories: int,
    model: Tensor,
    pattern_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor | None:
    """One mask that broadcasts to (B, heads, S, N + memories), or None.

    Boolean, True where a query may look, or of the model's type, to be added to the scores, if
    one of the masks is. `given` is N; learned memories are never masked. Raises ValueError for
    a query that may look at nothing: it has no update.

    >>> combine_masks(1, heads=1, length=2, given=2, memories=0, model=torch.ones(1), causal=True)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    looks: list[Tensor] = []
    added: list[Tensor] = []

    def take(name: str, mask: Tensor | None, *, where: bool, padding: bool) -> None:
        if mask is None:
            return
        shape = (batch, given) if padding else (batch, heads, length, given)
        if isinstance(mask, Tensor) and padding and batch == 1 and mask.ndim == 1:
            mask = mask.unsqueeze(0)
        if name == "attn_mask" and isinstance(mask, Tensor) and mask.ndim == 3:
            if tuple(mask.shape) != (batch * heads, length, given):
                raise ValueError(
                    f"attn_mask must have shape ({length}, {given}) or "
                    f"({batch * heads}, {length}, {given}), got {tuple(mask.shape)}"
                )
            mask = mask.unflatten(0, (batch, heads))
        if isinstance(mask, Tensor) and mask.is_floating_point():
            fits = can_broadcast(mask.shape, torch.Size(shape)) and (
                torch.broadcast_shapes(mask.shape, shape) == torch.Size(shape)
            )
            if not fits or (padding and tuple(mask.shape) != shape):
                raise ValueError(f"{name} must fit the shape {shape}, got {tuple(mask.shape)}")
            if told((mask < math.inf).all()) is False:
                raise ValueError(f"{name} must have entries below infinity")
            added.append((mask[:, None, None, :] if padding else mask).to(model.dtype))
        else:
            check_mask(name, mask, shape=shape, exact=padding)
            mask = mask if where else ~mask
            looks.append(mask[:, None, None, :] if padding else mask)

    take("pattern_mask", pattern_mask, where=True, padding=True)
    take("key_padding_mask", key_padding_mask, where=False, padding=True)
    take("attention_mask", attention_mask, where=True, padding=False)
    take("attn_mask", attn_mask, where=False, padding=False)
    if check_flag("causal", causal):
        looks.append(torch.ones(length, given, dtype=torch.bool, device=model.device).tril())
    if not looks and not added:
        return None
    mask = looks[0] if looks else added.pop()
    for part in looks[1:]:
        mask = mask & part
    if added:
        mask = as_bias(mask, dtype=model.dtype)
        for part in added:
            mask = mask + part
    while mask.ndim < 4:
        mask = mask.unsqueeze(0)
    if memories:
        free = True if mask.dtype == torch.bool else 0.0
        mask = functional.pad(mask.expand(*mask.shape[:-1], given), (0, memories), value=free)
    else:
        open_ = mask if mask.dtype == torch.bool else mask > -math.inf
        if told(open_.any(-1).all()) is False:
            raise ValueError("the masks must leave at least one pattern to every query")
    return mask


def as_bias(mask: Tensor, *, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to be added to the scores: 0 where True, −inf where False.

    >>> as_bias(torch.tensor([True, False]), dtype=torch.float32)
    tensor([0., -inf])
    """
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def _autocast(device: str) -> bool:
    """Whether torch converts types by itself there."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # torch before 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
