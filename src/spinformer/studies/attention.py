"""What attention costs and what its cheaper relatives miss: the measurements of chapter 10."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

from spinformer.core.checks import check_integer, check_tensor
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.hopfield.attention import attention
from spinformer.hopfield.attention_relatives import kernel_attention, recurrent_attention


@record
class Cost:
    """Work of one call. flops: floating-point operations of its matrix products.
    largest: entries of the largest tensor it made."""

    flops: int
    largest: int


def count_cost(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """Run `function(*args, **kwargs)` once and count its matrix-product flops and largest tensor.

    Counted where torch dispatches its operators, so the figures do not depend on the machine. A
    fused kernel counts as one operator: its workspace is not seen.

    >>> count_cost(torch.matmul, torch.ones(2, 3), torch.ones(3, 4))
    Cost(flops=48, largest=8)
    """
    with FlopCounterMode(display=False) as flops, _LargestTensor() as memory:
        function(*args, **kwargs)
    return Cost(flops=int(flops.get_total_flops()), largest=memory.entries)


class _LargestTensor(TorchDispatchMode):
    entries = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(made)[0]:
            if isinstance(leaf, torch.Tensor):
                # Broadcast views hold no entries of their own.
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.entries = max(self.entries, min(leaf.numel(), stored))
        return made


def relative_error(result: torch.Tensor, *, exact: torch.Tensor, mean: torch.Tensor) -> float:
    """‖result − exact‖ in units of what plain averaging misses, ‖exact − mean‖.

    >>> relative_error(torch.ones(2), exact=torch.zeros(2), mean=-torch.ones(2))
    1.0
    """
    return float((result - exact).norm() / (exact - mean).norm())


def kernel_error(
    tokens: torch.Tensor, *, features: int, beta: float, draws: int = 5, seed: TorchSeed = 0
) -> float:
    """Root mean square over `draws` of `relative_error` of random features in self-attention.

    >>> kernel_error(torch.eye(3), features=10_000, beta=0.1) < 0.5
    True
    """
    tokens = check_tensor("tokens", tokens, ndim=2)
    draws = check_integer("draws", draws, low=1)
    generator = torch_generator(seed)
    exact = attention(tokens, keys=tokens, values=tokens, beta=beta)
    squares = []
    for _ in range(draws):
        result = kernel_attention(
            tokens, keys=tokens, values=tokens, features=features, beta=beta, seed=generator
        )
        squares.append(relative_error(result, exact=exact, mean=tokens.mean(0)) ** 2)
    return math.sqrt(sum(squares) / draws)


def recurrent_error(
    tokens: torch.Tensor, *, compression: int, beta: float, block: int = 16
) -> float:
    """`relative_error` of a compressed past in causal self-attention; the mean is the running one.

    >>> recurrent_error(torch.eye(4), compression=1, beta=1.0, block=2) < 1e-6
    True
    """
    tokens = check_tensor("tokens", tokens, ndim=2)
    length = len(tokens)
    causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
    exact = attention(tokens, keys=tokens, values=tokens, beta=beta, mask=causal)
    places = torch.arange(1, length + 1, device=tokens.device)
    result = recurrent_attention(
        tokens, keys=tokens, values=tokens, block=block, compression=compression, beta=beta
    )
    return relative_error(result, exact=exact, mean=tokens.cumsum(0) / places[:, None])
