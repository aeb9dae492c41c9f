"""What attention costs and what its cheaper relatives miss: the measurements of chapter 10."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

from bookmaker.tables import Rows, stored
from compendium.c10_attention.relatives import (
    kernel_attention,
    low_rank_attention,
    recurrent_attention,
    sparse_attention,
)
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.hopfield.attention import attention


def multi_head_attention(queries: Tensor, *, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Attention in each of `heads` equal chunks of the vector space, side by side, (..., S, d_v).

    "Chunking up the dimension of the vector space" [bal2020energy, Sec. 2].

    >>> queries = torch.zeros(1, 4)
    >>> multi_head_attention(queries, keys=torch.eye(4), values=torch.eye(4), heads=2)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    chunks = (tensor.chunk(heads, dim=-1) for tensor in (queries, keys, values))
    return torch.cat(
        [attention(q, keys=k, values=v) for q, k, v in zip(*chunks, strict=True)], dim=-1
    )


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
    """‖result − exact‖ in units of what plain averaging misses, ‖exact − mean‖."""
    return float((result - exact).norm() / (exact - mean).norm())


# Settings from cheap to dear: landmarks, keys to each side, tokens averaged into one, features.
SETTINGS = {
    "low rank": (4, 8, 16, 32, 64),
    "sparse": (2, 4, 8, 16, 32, 64),
    "recurrent": (16, 8, 4, 2),
    "kernel": (16, 64, 128, 256),
}


def family_call(
    tokens: torch.Tensor, *, family: str, setting: int, beta: float, seed: TorchSeed = 0
) -> Callable[[], torch.Tensor]:
    """Self-attention of `tokens` (N, d) by a family of `SETTINGS`, ready to be called.

    N must be a multiple of the landmarks, for the recurrent family of its block, 16.
    """
    itself: dict[str, Any] = {"keys": tokens, "values": tokens, "beta": beta}
    if family == "low rank":
        return partial(low_rank_attention, tokens, landmarks=setting, **itself)
    if family == "sparse":
        return partial(sparse_attention, tokens, window=setting, **itself)
    if family == "recurrent":
        return partial(recurrent_attention, tokens, block=16, compression=setting, **itself)
    return partial(kernel_attention, tokens, features=setting, seed=seed, **itself)


def family_operations(tokens: torch.Tensor, *, family: str) -> list[float]:
    """Matrix-product operations of a family over those of what it replaces, for its settings.

    That is dense attention, and for the recurrent family dense causal attention: half of it.
    """
    dense = count_cost(attention, tokens, keys=tokens, values=tokens).flops
    dense = dense // 2 if family == "recurrent" else dense
    return [
        count_cost(family_call(tokens, family=family, setting=setting, beta=1.0)).flops / dense
        for setting in SETTINGS[family]
    ]


def _exact_and_mean(
    tokens: torch.Tensor, *, family: str, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a family replaces and plain averages, both causal for the recurrent one."""
    if family != "recurrent":
        return attention(tokens, keys=tokens, values=tokens, beta=beta), tokens.mean(0)
    length = len(tokens)
    causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
    exact = attention(tokens, keys=tokens, values=tokens, beta=beta, mask=causal)
    places = torch.arange(1, length + 1, device=tokens.device)
    return exact, tokens.cumsum(0) / places[:, None]


def family_errors(
    tokens: torch.Tensor, *, family: str, beta: float, draws: int = 3, seed: int = 0
) -> list[float]:
    """`relative_error` of a family for all its settings; recurrent against causal attention.

    Of random features the root mean square over `draws`.
    """
    exact, mean = _exact_and_mean(tokens, family=family, beta=beta)
    found = []
    for setting in SETTINGS[family]:
        call = family_call(
            tokens, family=family, setting=setting, beta=beta, seed=torch_generator(seed)
        )
        errors = [
            relative_error(call(), exact=exact, mean=mean)
            for _ in range(draws if family == "kernel" else 1)
        ]
        found.append(math.sqrt(sum(error**2 for error in errors) / len(errors)))
    return found


# What a family may use: as many landmarks, neighbours to each side, slots or features at every
# length, or one for so many tokens.
FIXED = {"low rank": 16, "sparse": 16, "recurrent": 64, "kernel": 64}
TOKENS_EACH = {"low rank": 16, "sparse": 16, "recurrent": 16, "kernel": 4}


def budget(family: str, *, length: int, fixed: bool) -> int:
    """Landmarks, neighbours, slots or features of a family for a sequence of `length` tokens."""
    return FIXED[family] if fixed else length // TOKENS_EACH[family]


def budget_call(
    tokens: torch.Tensor, *, family: str, budget: int, beta: float, seed: int = 0
) -> Callable[[], torch.Tensor]:
    """As `family_call`, by a budget; recurrence in blocks of 32 with means of 16, `budget` kept."""
    if family == "recurrent":
        itself: dict[str, Any] = {"keys": tokens, "values": tokens, "beta": beta}
        return partial(
            recurrent_attention, tokens, block=32, compression=16, slots=budget, **itself
        )
    return family_call(tokens, family=family, setting=budget, beta=beta, seed=seed)


def budget_exponent(family: str, *, length: int, fixed: bool) -> float:
    """Exponent of the operations between `length` / 2 and `length` tokens of width 32."""
    flops = []
    for size in (length // 2, length):
        tokens = torch.randn(size, 32, generator=torch_generator(0), dtype=torch.float64)
        share = budget(family, length=size, fixed=fixed)
        flops.append(count_cost(budget_call(tokens, family=family, budget=share, beta=0.2)).flops)
    return math.log2(flops[1] / flops[0])


@stored(
    Path(__file__).with_name("exponents.csv"),
    units=[{"family": family, "kind": kind} for family in FIXED for kind in ("fixed", "share")],
    seconds=2.0,
)
def EXPONENTS(family: str, kind: str) -> Rows:
    """Exponent of the operations at a fixed budget and at a share of the tokens."""
    # Recurrence bends late; the others cost more memory at a fixed share.
    length = 8192 if kind == "fixed" or family == "recurrent" else 2048
    return [{"exponent": budget_exponent(family, length=length, fixed=kind == "fixed")}]


def budget_errors(
    tokens: torch.Tensor, *, family: str, beta: float, seed: int = 0
) -> tuple[float, float]:
    """`relative_error` of a family at a fixed budget and at a share of the tokens.

    Recurrence is held against causal attention.
    """
    length = len(tokens)
    exact, mean = _exact_and_mean(tokens, family=family, beta=beta)

    def error(fixed: bool) -> float:
        most = budget(family, length=length, fixed=fixed)
        result = budget_call(tokens, family=family, budget=most, beta=beta, seed=seed)()
        return relative_error(result, exact=exact, mean=mean)

    return error(True), error(False)
