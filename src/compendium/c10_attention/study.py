"""Cheaper relatives of self-attention: what each costs and misses.

All act on tokens (…, N, d), which are their own queries, keys and values, at an inverse temperature
β. Four are linear in N at a fixed setting, the recurrent one only with a fixed number of slots;
`streaming_attention` is exact and saves memory alone.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.hopfield.attention import attention


def multi_head_attention(queries: Tensor, *, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Attention in each of `heads` equal chunks of the vector space, side by side, (..., S, d_v).

    "Chunking up the dimension of the vector space" [bal2020energy, Sec. 2].
    """
    chunks = (tensor.chunk(heads, dim=-1) for tensor in (queries, keys, values))
    each = (attention(q, keys=k, values=v) for q, k, v in zip(*chunks, strict=True))
    return torch.cat(list(each), dim=-1)


def low_rank_attention(tokens: Tensor, landmarks: int, *, beta: float = 1.0) -> Tensor:
    """Nyström form from the means of `landmarks` runs of consecutive tokens, which divide N.

    softmax(βXX̃ᵀ) pinv(softmax(βX̃X̃ᵀ)) softmax(βX̃Xᵀ) X, exact for a landmark each
    [xiong2021nystromformer, with the exact pseudo-inverse].
    """
    few = tokens.unflatten(-2, (landmarks, -1)).mean(-2)
    left = torch.softmax(beta * tokens @ few.mT, dim=-1)
    core = torch.softmax(beta * few @ few.mT, dim=-1)
    right = torch.softmax(beta * few @ tokens.mT, dim=-1)
    return left @ (torch.linalg.pinv(core) @ (right @ tokens))


def sparse_attention(tokens: Tensor, window: int, *, beta: float = 1.0) -> Tensor:
    """Each token looks at those at most `window` places away [beltagy2020longformer, local part].

    They are gathered: the full matrix is never made.
    """
    length = tokens.shape[-2]
    reach = min(window, length - 1)
    near = torch.arange(length)[:, None] + torch.arange(-reach, reach + 1)
    outside = (near < 0) | (near >= length)
    seen = tokens[..., near.clamp(0, length - 1), :]
    scores = beta * torch.einsum("...sd,...swd->...sw", tokens, seen)
    weights = torch.softmax(scores.masked_fill(outside, -math.inf), dim=-1)
    return torch.einsum("...sw,...swd->...sd", weights, seen)


def recurrent_attention(
    tokens: Tensor,
    compression: int,
    *,
    block: int = 16,
    slots: int | None = None,
    beta: float = 1.0,
) -> Tensor:
    """Causal attention one block at a time, with a compressed memory of the blocks before.

    Of its block a token sees what came, of the past the means of runs of `compression` tokens, each
    with the weight of as many: exact for 1, else the past costs 1/compression, still N². With
    `slots` only the latest means are kept, and the cost is linear. N is a multiple of `block`, and
    that of `compression` [rae2020compressive, mean pooling].
    """
    allowed = torch.ones(block, block, dtype=torch.bool).tril()
    past = tokens[..., :0, :]
    outputs = []
    for now in tokens.split(block, dim=-2):
        present = (beta * now @ now.mT).masked_fill(~allowed, -math.inf)
        scores = torch.cat([beta * now @ past.mT + math.log(compression), present], dim=-1)
        outputs.append(torch.softmax(scores, dim=-1) @ torch.cat([past, now], dim=-2))
        pooled = now.unflatten(-2, (-1, compression)).mean(-2)
        past = torch.cat([past, pooled], dim=-2)[..., 0 if slots is None else -slots :, :]
    return torch.cat(outputs, dim=-2)


def kernel_attention(
    tokens: Tensor, features: int, *, beta: float = 1.0, seed: TorchSeed = 0
) -> Tensor:
    """exp(β qᵀk) by an average of `features` positive random products φ_w(q) φ_w(k).

    φ_w(x) = exp(√β wᵀx − β‖x‖²/2), w ~ N(0, 1), is unbiased in numerator and denominator
    [choromanski2021rethinking, without orthogonalization].
    """
    shape = (features, tokens.shape[-1])
    draws = torch.randn(shape, dtype=tokens.dtype, generator=torch_generator(seed))
    norms = 0.5 * beta * tokens.square().sum(-1, keepdim=True)
    # Twice, as for queries and keys that differ: what that costs is counted.
    log_q = math.sqrt(beta) * tokens @ draws.mT - norms
    log_k = math.sqrt(beta) * tokens @ draws.mT - norms
    # Constants per query and over all keys cancel in the ratio and keep exp in range.
    queries = torch.exp(log_q - log_q.amax(-1, keepdim=True))
    keys = torch.exp(log_k - log_k.amax((-2, -1), keepdim=True))
    return queries @ (keys.mT @ tokens) / (queries @ keys.sum(-2).unsqueeze(-1))


def streaming_attention(tokens: Tensor, block: int, *, beta: float = 1.0) -> Tensor:
    """Exact attention with the keys read once, `block` at a time: memory N·block, not N².

    Maximum, normalizer and sum run along, rescaled when the maximum grows [rabe2021selfattention].
    """
    top = torch.full_like(tokens[..., :1], -math.inf)
    norm = torch.zeros_like(top)
    total = torch.zeros_like(tokens)
    for keys in tokens.split(block, dim=-2):
        scores = beta * tokens @ keys.mT
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink = torch.exp(top - higher)
        weights = torch.exp(scores - higher)
        norm = norm * shrink + weights.sum(-1, keepdim=True)
        total = total * shrink + weights @ keys
        top = higher
    return total / norm


FAMILIES: dict[str, Callable[..., Tensor]] = {
    "low rank": low_rank_attention,
    "sparse": sparse_attention,
    "recurrent": recurrent_attention,
    "kernel": kernel_attention,
}
# Settings from cheap to dear: landmarks, keys to each side, tokens averaged into one, features.
SETTINGS = {
    "low rank": (4, 8, 16, 32, 64),
    "sparse": (2, 4, 8, 16, 32, 64),
    "recurrent": (16, 8, 4, 2),
    "kernel": (16, 64, 128, 256),
}
# Landmarks, neighbours to each side, slots of means of 16, or features: as many at every length, or
# one for so many tokens.
FIXED = {"low rank": 16, "sparse": 16, "recurrent": 64, "kernel": 64}
TOKENS_EACH = {"low rank": 16, "sparse": 16, "recurrent": 16, "kernel": 4}


class _LargestTensor(TorchDispatchMode):
    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, Tensor):
                # Broadcast views hold no entries of their own.
                stored = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.entries = max(self.entries, min(leaf.numel(), stored))
        return result


def count_cost(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[int, int]:
    """Operations of the matrix products of one call, and entries of the largest tensor it makes.

    Counted where torch dispatches its operators: the figures do not depend on the machine.
    """
    with FlopCounterMode(display=False) as flops, _LargestTensor() as memory:
        function(*args, **kwargs)
    return int(flops.get_total_flops()), memory.entries


def family_operations(tokens: Tensor, *, family: str) -> list[float]:
    """Operations of a family at its settings over those of dense attention, if recurrent causal."""
    dense = count_cost(attention, tokens, keys=tokens, values=tokens)[0]
    dense = dense // 2 if family == "recurrent" else dense
    return [count_cost(FAMILIES[family], tokens, one)[0] / dense for one in SETTINGS[family]]


def missed(result: Tensor, *, tokens: Tensor, family: str, beta: float) -> float:
    """Distance from the exact result in units of what plain averaging misses of it.

    Both are causal for the recurrent family.
    """
    mask = None
    mean = tokens.mean(0)
    if family == "recurrent":
        mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        mean = tokens.cumsum(0) / mask.sum(1, keepdim=True)
    exact = attention(tokens, keys=tokens, values=tokens, beta=beta, mask=mask)
    return float((result - exact).norm() / (exact - mean).norm())


def family_errors(
    tokens: Tensor, *, family: str, beta: float, draws: int = 3, seed: int = 0
) -> list[float]:
    """What a family misses at its settings; of random features the root mean square over draws."""
    root_mean_squares = []
    for setting in SETTINGS[family]:
        approximate = partial(FAMILIES[family], tokens, setting, beta=beta)
        repeats = 1
        if family == "kernel":
            # One stream for all draws of a setting, which moves on from draw to draw.
            approximate = partial(approximate, seed=torch_generator(seed))
            repeats = draws
        errors = [
            missed(approximate(), tokens=tokens, family=family, beta=beta) for _ in range(repeats)
        ]
        root_mean_squares.append(math.hypot(*errors) / math.sqrt(repeats))
    return root_mean_squares


def budgeted(tokens: Tensor, *, family: str, fixed: bool, beta: float, seed: int = 0) -> Tensor:
    """The tokens' attention by a family at a fixed budget, or at a fraction of the tokens."""
    most = FIXED[family] if fixed else len(tokens) // TOKENS_EACH[family]
    if family == "recurrent":
        return recurrent_attention(tokens, 16, block=32, slots=most, beta=beta)
    if family == "kernel":
        return kernel_attention(tokens, most, beta=beta, seed=seed)
    return FAMILIES[family](tokens, most, beta=beta)


@stored("exponents", parameter_product(family=FIXED, kind=("fixed", "share")), seconds=2.0)
def exponents_table(family: str, kind: str) -> Rows:
    """Exponent of the operations at a fixed budget or at a fraction of the tokens, of width 32."""
    fixed = kind == "fixed"
    # Recurrence bends late; the others cost more memory at a fixed fraction.
    length = 8192 if fixed or family == "recurrent" else 2048
    tokens = torch.zeros(length, 32, dtype=torch.float64)

    def operations(size: int) -> int:
        return count_cost(budgeted, tokens[:size], family=family, fixed=fixed, beta=0.2)[0]

    return [{"exponent": math.log2(operations(length) / operations(length // 2))}]
