"""The common part of the spin modules: parameters, heads, fields, and softmax couplings.

A module shares its `dim` channels out to `heads` systems of N spins. `CoupledHeads` has the
parameters and the call of a layer of torch; `module` and `driven_module` solve the spins.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.checks import check_flag, check_integer, check_mask, check_real
from spinformer.core.operators import is_traced
from spinformer.core.records import record
from spinformer.spins.masks import (
    PairMasks,
    is_causal_mask,
    read_attention_mask,
    read_padding_mask,
)

_NOT_CAUSAL = (
    "must not be causal: in equilibrium, and for symmetric spins, the tokens i and j are "
    "coupled by B = J + J^T, so that every token feels the future, whatever the mask; a "
    "DrivenSpinModule can be causal"
)


@record
class HeadInputs:
    """What the spins of all heads depend on.

    Attributes
    ----------
    fields : Tensor, shape (batch, heads, N, D)
        External fields h = H/√D.
    queries : Tensor, shape (batch, heads, N, D)
        Queries, whose products with the keys are the scores.
    keys : Tensor, shape (batch, heads, N, D)
        Keys.
    beta : Tensor, shape (heads, 1, 1)
        Inverse temperatures β.
    masks : PairMasks
        Forbidden pairs, and what is added to the scores.
    """

    fields: Tensor
    queries: Tensor
    keys: Tensor
    beta: Tensor
    masks: PairMasks


def softmax_weights(inputs: HeadInputs, *, scale: float) -> Tensor:
    """Compute the attention weights of all heads, zero on the diagonal.

    Parameters
    ----------
    inputs : HeadInputs
        Queries, keys and masks.
    scale : float
        Factor of the scores, γ/√D.

    Returns
    -------
    Tensor, shape (batch, heads, N, N)
        Softmax of rows; zero on the diagonal, where a pair is forbidden, and in a row in which
        everything else is forbidden.
    """
    scores = (inputs.queries * scale) @ inputs.keys.mT
    if inputs.masks.bias is not None:
        scores = scores + inputs.masks.bias
    eye = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    forbidden = inputs.masks.forbidden
    never = eye if forbidden is None else forbidden | eye
    # Not minus infinity: a row without any allowed entry would be 0/0.
    weights = scores.masked_fill(never, torch.finfo(scores.dtype).min).softmax(dim=-1)
    if forbidden is None and len(eye) > 1:
        return weights
    return weights.masked_fill(never, 0.0)


def merge_heads(values: Tensor) -> Tensor:
    """Join the channels of all heads.

    Parameters
    ----------
    values : Tensor, shape (batch, heads, N, D)
        Values of each head.

    Returns
    -------
    Tensor, shape (batch, N, heads·D)
        The same values, token by token.
    """
    return values.transpose(-3, -2).flatten(-2)


class CoupledHeads(nn.Module):
    """Base of the spin modules: the parameters of `heads` systems that share `dim` channels.

    Parameters
    ----------
    dim : int
        Number of channels, a multiple of `heads`.
    heads : int
        Number of heads, each one a system of spins.
    beta : float
        Initial inverse temperature of every head, learned through its logarithm.
    log_strength : float
        Initial value of `log_strength` of every head.
    gamma : float
        Factor of the scores, in addition to 1/√D.
    channel_maps : bool
        Whether to learn linear maps in front of the fields and behind the magnetizations.
    device : device, optional
        Device of the parameters.
    dtype : dtype, optional
        Floating-point type of the parameters.

    Raises
    ------
    TypeError
        If `dtype` is not a floating-point type.
    ValueError
        If `dim` is not a multiple of `heads`, or another argument is out of its range.
    """

    batch_first = True
    normalize = True
    _causal = False

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        beta: float,
        log_strength: float,
        gamma: float,
        channel_maps: bool,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, got {dtype}")
        self.dim = check_integer("dim", dim, low=1)
        self.heads = check_integer("heads", heads, low=1, high=dim)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads = {heads}, got {dim}")
        self.gamma = check_real("gamma", gamma, low=0.0)
        check_flag("channel_maps", channel_maps)
        self._first_log_beta = math.log(check_real("beta", beta, low=0.0, open_low=True))
        self._first_log_strength = log_strength

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.query = parameter(dim, dim)
        self.key = parameter(dim, dim)
        self.log_beta = parameter(heads)
        self.log_strength = parameter(heads)
        self.map_in = parameter(dim, dim) if channel_maps else None
        self.map_out = parameter(dim, dim) if channel_maps else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw W_Q and W_K, and return all other parameters to their initial values."""
        with torch.no_grad():
            for weight in (self.query, self.key):
                weight.copy_(torch.randn_like(weight) / self.dim**0.5)
            self.log_beta.fill_(self._first_log_beta)
            self.log_strength.fill_(self._first_log_strength)
            for mapped in (self.map_in, self.map_out):
                if mapped is not None:
                    nn.init.eye_(mapped)

    @property
    def self_attn(self) -> nn.Module:
        """The module itself, which `nn.TransformerEncoder` asks for the order of the axes."""
        return self

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        return_parts: bool = False,
    ) -> Any:
        """Compute the magnetizations of all heads for a batch of token sequences.

        Input that is not finite, or that overflows, gives NaN.

        Parameters
        ----------
        src : Tensor, shape (batch, N, dim) or (N, dim)
            Tokens, in the dtype of the parameters.
        src_mask : Tensor, shape (N, N) or (batch·heads, N, N), optional
            Attention mask. A boolean mask is True where J_ij is forbidden; a floating-point mask is
            added to the scores, and minus infinity forbids. In equilibrium a pair is free only
            where both directions are forbidden.
        src_key_padding_mask : Tensor, shape (batch, N), optional
            True, or minus infinity and else 0, at padded tokens. They are no spins, and their
            output is zero.
        is_causal : bool, default False
            Whether tokens must not depend on later ones; only a `DrivenSpinModule` without
            `symmetric` can be causal.
        return_parts : bool, default False
            Whether to return the intermediate results, too.

        Returns
        -------
        output : Tensor, shape of `src`
            The magnetizations.
        parts : ModuleParts or DrivenParts
            Intermediate results, taken before `map_out` and always with a batch axis; only with
            `return_parts`.

        Raises
        ------
        TypeError
            If `src` has another dtype than the parameters.
        ValueError
            If a shape does not fit, a mask holds NaN or plus infinity, or `is_causal` is True or
            `src_mask` is causal where spins depend on later ones.
        """
        check_flag("return_parts", return_parts)
        if check_flag("is_causal", is_causal) and not self._causal:
            raise ValueError(f"is_causal {_NOT_CAUSAL}")
        tokens, masks = self._read(src, src_mask, src_key_padding_mask)
        answer, parts = self._answer(self.fields(tokens), masks, return_parts)
        out = answer.to(src.dtype)
        if self.map_out is not None:
            out = out @ self.map_out
        if src.ndim == 2:
            out = out[0]
        return (out, parts()) if return_parts else out

    def fields(self, inputs: Tensor) -> Tensor:
        """Compute the external fields H that tokens impose: mapped by `map_in`, then normalized.

        Tokens whose squares overflow become NaN, because they would look like free spins otherwise.

        Parameters
        ----------
        inputs : Tensor, shape (batch, N, dim)
            Tokens.

        Returns
        -------
        Tensor, shape (batch, N, dim)
            Fields H, in at least single precision.
        """
        if self.map_in is not None:
            inputs = inputs @ self.map_in
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        size = inputs.square().mean(dim=-1, keepdim=True)
        if not self.normalize:
            return inputs + 0 * size
        return inputs * ((size + torch.finfo(inputs.dtype).eps).rsqrt() + 0 * size)

    def _read(
        self, src: Tensor, mask: Tensor | None, padded: Tensor | None
    ) -> tuple[Tensor, PairMasks]:
        """`src` with a batch axis and zeros at padding, and the masks of pairs."""
        if not isinstance(src, Tensor) or not src.is_floating_point():
            raise TypeError("src must be a floating-point torch tensor")
        if src.ndim not in (2, 3) or src.shape[-1] != self.dim or not src.shape[-2]:
            raise ValueError(
                f"src must have shape (batch, N, {self.dim}) or (N, {self.dim}), N >= 1, "
                f"got {tuple(src.shape)}"
            )
        if src.dtype != self.query.dtype and not torch.is_autocast_enabled(src.device.type):
            raise TypeError(f"src must be {self.query.dtype} like the parameters, got {src.dtype}")
        tokens = src if src.ndim == 3 else src.unsqueeze(0)
        batch, sites = tokens.shape[:2]
        masks = PairMasks()
        if mask is not None:
            check_mask("src_mask", mask, [(sites, sites), (batch * self.heads, sites, sites)])
            dtype = torch.promote_types(src.dtype, torch.float32)
            masks = read_attention_mask(mask, batch=batch, heads=self.heads, dtype=dtype)
            refused = not self._causal and not is_traced()
            if refused and masks.forbidden is not None and is_causal_mask(masks.forbidden):
                raise ValueError(f"src_mask {_NOT_CAUSAL}")
        if padded is not None:
            padded = read_padding_mask(padded, batched=src.ndim == 3, batch=batch, sites=sites)
            forbidden = (padded[:, None, :] | padded[:, :, None])[:, None]
            if masks.forbidden is not None:
                forbidden = forbidden | masks.forbidden
            masks = PairMasks(forbidden=forbidden, bias=masks.bias)
            tokens = tokens.masked_fill(padded.unsqueeze(-1), 0.0)
        return tokens, masks

    def _head_inputs(self, fields: Tensor, masks: PairMasks) -> HeadInputs:
        """Fields, queries, keys and β of all heads, in the precision of the fields."""
        dtype = fields.dtype
        # Under autocast the products come back in half precision.
        queries = (fields @ self.query.to(dtype)).to(dtype)
        keys = (fields @ self.key.to(dtype)).to(dtype)
        return HeadInputs(
            fields=self._split(fields) / self._root,
            queries=self._split(queries),
            keys=self._split(keys),
            beta=self.log_beta.to(dtype)[:, None, None].exp(),
            masks=masks,
        )

    @property
    def _root(self) -> float:
        """√D, the length of a spin."""
        return (self.dim // self.heads) ** 0.5

    def _split(self, channels: Tensor) -> Tensor:
        return channels.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _answer(
        self, fields: Tensor, masks: PairMasks, return_parts: bool
    ) -> tuple[Tensor, Callable[[], Any]]:
        """Magnetizations (batch, N, dim) in these fields, and what makes the parts of them."""
        raise NotImplementedError
