"""What every spin module learns: maps to queries and keys, β and g of its heads, channel maps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from spinformer.core.checks import check_flag, check_integer, check_real


class CoupledHeads(nn.Module):
    """The parameters of `dim` channels that are shared out to `heads` systems, and their options.

    `query` and `key` (dim, dim), `log_beta` (heads,) started at ln `beta`, `log_strength` (heads,)
    at `log_strength`; `map_in` and `map_out` (dim, dim), started at the identity, or None without
    `channel_maps`. `gamma` multiplies the scores, `normalize` says whether tokens are scaled.

    >>> given = {"beta": 2.0, "log_strength": 0.0, "gamma": 1.0, "normalize": True}
    >>> module = CoupledHeads(4, heads=2, channel_maps=False, device=None, dtype=None, **given)
    >>> [name for name, _ in module.named_parameters()]
    ['query', 'key', 'log_beta', 'log_strength']
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        beta: float,
        log_strength: float,
        gamma: float,
        normalize: bool,
        channel_maps: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, got {dtype}")
        self.dim = check_integer("dim", dim, low=1)
        self.heads = check_integer("heads", heads, low=1, high=dim)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads = {heads}, got {dim}")
        beta = check_real("beta", beta, low=0.0, open_low=True)
        self.gamma = check_real("gamma", gamma, low=0.0)
        self.normalize = check_flag("normalize", normalize)
        maps = check_flag("channel_maps", channel_maps)
        made: Any = {"device": device, "dtype": dtype}
        self.query = nn.Parameter(torch.randn(dim, dim, **made) / dim**0.5)
        self.key = nn.Parameter(torch.randn(dim, dim, **made) / dim**0.5)
        self.log_beta = nn.Parameter(torch.full((heads,), math.log(beta), **made))
        self.log_strength = nn.Parameter(torch.full((heads,), log_strength, **made))
        self.map_in = nn.Parameter(torch.eye(dim, **made)) if maps else None
        self.map_out = nn.Parameter(torch.eye(dim, **made)) if maps else None
