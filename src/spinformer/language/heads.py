"""What the heads of any attention layer do to their own energies, from what hooks on it have seen.

A head that meets the scores s_j = β q·k_j of the keys it may look at has the overlap energy

    U = −β⁻¹ [log Σ_j p⁰_j exp(s_j) − Σ_j p⁰_j s_j] = −β⁻¹ KL(p⁰ ‖ attention) ≤ 0,

p⁰ the attention that its mask alone would give: uniform over what may be seen. It is zero where the
query cannot tell the keys apart, and the same however queries and keys are written (q → Aᵀq,
k → A⁻¹k) and wherever the keys have their origin. Without a mask it is the part of the energy
of [bal2020energy, Eq. (7)] of which this is true.

Head h adds Δx_h = W_O^h Σ_j a_j v_j to the state of every token. Asked is what that does to U_h,
with its keys held fixed: by all of Δx_h, by the part *common* to all tokens of a sequence (its mean
over them), and by the rest, *specific* to a token. U is concave in the query, so a step in no
particular direction moves it, too: the null turns what heads return by a random rotation and writes
it by the output matrix of another head, drawn at random.

Letters: B sequences, S queries, N keys, H heads of width d, G groups of heads that share keys and
values (G = H: none do), model width D.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.checks import (
    check_broadcast,
    check_function,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import mean_interval

# What rounding in half of the layers of a model may do to what hooks have seen.
_SAME = 1e-3
# The logarithm of a share that is none.
_FORBIDDEN = -100.0


@record
class HeadReport:
    """What each head of a layer does to its own overlap energy U_h; means over tokens.

    (B, H), one number a sequence: `energy`, U before the step; `change` by the `whole` step of the
    head, by its `common` and by its `specific` part alone; `fell`, the share of tokens whose U the
    whole step lowers; `cosine` of step and descent −∇U_h over the tokens of a sequence, and
    `centered_cosine` of both without their means over tokens. (draws, H), of turned heads:
    `null_whole`, `null_specific`, `null_centered_cosine`, means over sequences.
    """

    energy: np.ndarray
    whole: np.ndarray
    common: np.ndarray
    specific: np.ndarray
    fell: np.ndarray
    cosine: np.ndarray
    centered_cosine: np.ndarray
    null_whole: np.ndarray
    null_specific: np.ndarray
    null_centered_cosine: np.ndarray

    def z(self, name: str) -> np.ndarray:
        """(H,): how far "whole", "specific" or "centered_cosine" is from its null, in its spreads.

        NaN with fewer than two draws.
        """
        null = getattr(self, f"null_{name}")
        if len(null) < 2:
            return np.full(self.energy.shape[1], np.nan)
        found: np.ndarray = (getattr(self, name).mean(0) - null.mean(0)) / null.std(0, ddof=1)
        return found

    def half(self, name: str) -> np.ndarray:
        """(H,): half of Student's 95 % interval of a mean over sequences; NaN for a single one."""
        values = getattr(self, name)
        if len(values) < 2:
            return np.full(values.shape[1], np.nan)
        return np.array([0.5 * np.subtract(*mean_interval(column)[::-1]) for column in values.T])

    def table(self) -> list[dict[str, float]]:
        """One row a head: means over sequences, `_error` their `half`, `_z` their distance `z`."""
        columns = {"head": np.arange(self.energy.shape[1])}
        for name in ("energy", "whole", "common", "specific", "fell", "cosine", "centered_cosine"):
            columns[name] = getattr(self, name).mean(0)
            if name in ("whole", "common", "specific"):
                columns[f"{name}_error"] = self.half(name)
            if name in ("whole", "specific", "centered_cosine"):
                columns[f"{name}_z"] = self.z(name)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]


@torch.no_grad()
def head_report(
    queries: Tensor,
    *,
    keys: Tensor,
    values: Tensor,
    states: Tensor,
    read: Callable[[Tensor], Tensor],
    output: Tensor,
    outputs: Tensor | None = None,
    mask: Tensor | None = None,
    beta: float | None = None,
    draws: int = 20,
    seed: Seed = 0,
) -> HeadReport:
    """Energies, steps and alignments of all heads of one layer, with their nulls.

    queries (B, H, S, d), keys (B, G, N, d), values (B, G, N, d_v): as they meet, rotations of
    positions applied; head h reads group h // (H/G). states (B, S, D): what the heads' outputs are
    added to. read: the map from such states to queries, everything between: normalization, query
    matrix, bias, rotation; it must return `queries` at `states`. output (D, H·d_v): the weight of
    the output map. outputs (B, S, D): what the attention returned; if given, a mask, β or order
    of heads that does not explain it is refused.
    mask: broadcastable to (B, H, S, N), True where a query may look, or numbers added to the
    scores, as in `scaled_dot_product_attention`. beta: 1/√d unless given. A query that sees fewer
    than two keys (the first of a causal model; a row without any) has no U and is left out.
    draws: of the null. The time is that of H(3 + 2·draws) calls of `read`.

    >>> layer, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 6, 8)
    >>> q, k, v = functional.linear(x, layer.in_proj_weight).unflatten(-1, (3, 2, 4)).unbind(-3)
    >>> read = lambda x: (x @ layer.in_proj_weight[:8].T).unflatten(-1, (2, 4)).transpose(1, 2)
    >>> found = head_report(
    ...     read(x), keys=k.transpose(1, 2), values=v.transpose(1, 2), states=x, read=read,
    ...     output=layer.out_proj.weight, outputs=layer(x, x, x)[0], draws=3,
    ... )
    >>> len(found.table()), found.whole.shape
    (2, (3, 2))
    """
    given = {"queries": queries, "keys": keys, "values": values, "states": states, "output": output}
    for name, value in given.items():
        check_tensor(name, value, ndim={"states": 3, "output": 2}.get(name, 4))
        if value.dtype not in (torch.float32, torch.float64) or value.dtype != queries.dtype:
            raise TypeError(f"{name} must be float32 or float64 like queries, got {value.dtype}")
    size, heads, length, width = queries.shape
    count, inner = values.shape[2], heads * values.shape[3]
    if heads % keys.shape[1] or (values.shape[1], count) != tuple(keys.shape[1:3]):
        raise ValueError(
            f"keys and values must have the same groups, of which there are {heads} or a part, "
            f"and tokens, got {tuple(keys.shape)} and {tuple(values.shape)}"
        )
    check_tensor("keys", keys, shape=(size, None, count, width))
    check_tensor("states", states, shape=(size, length, None))
    check_tensor("output", output, shape=(states.shape[-1], inner))
    draws = check_integer("draws", draws, low=0)
    beta = width**-0.5 if beta is None else check_real("beta", beta, low=0.0, open_low=True)
    keys, values = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (keys, values))
    found = check_tensor("read", check_function("read", read)(states), shape=queries.shape)
    if float((found - queries).abs().max()) > _SAME * float(queries.abs().max()):
        raise ValueError("read must return the queries at the states, and returns others")

    prior = _log_prior(mask, (size, heads, length, count), like=queries)
    tokens = torch.full_like(queries[..., 0], count > 1, dtype=torch.bool)
    if prior is not None:
        tokens = (prior > -math.inf).sum(-1) > 1
    if not bool(tokens.any(-1).all()):
        raise ValueError("mask must leave two keys to at least one query of every head")
    weights = tokens.to(queries) / tokens.sum(-1, keepdim=True)
    scores = beta * queries @ keys.mT
    returned = torch.softmax(scores if prior is None else scores + prior, dim=-1) @ values
    writes = output.unflatten(-1, (heads, -1)).movedim(1, 0)
    steps = torch.einsum("hDv,bhsv->hbsD", writes, returned)
    if outputs is not None:
        left = check_tensor("outputs", outputs, shape=states.shape) - steps.sum(0)
        left = left[tokens.all(1)]
        if float((left - left.mean(0)).abs().max()) > _SAME * float(outputs.abs().max()):
            raise ValueError(
                "outputs must be what the heads write and a bias; these queries, keys, values, "
                "mask and beta, in this order of heads, give another"
            )

    before = _overlap(queries, keys, beta, prior)

    def change(steps: Tensor) -> Tensor:
        """Of each U_h by its own step, of (H, B, S, D), of the states: (B, H, S)."""
        asked = [read(states + step)[:, head] for head, step in enumerate(steps)]
        return _overlap(torch.stack(asked, 1), keys, beta, prior) - before

    def mean(values: Tensor) -> Tensor:
        """Of what tokens (B, H, S) have: (B, H)."""
        return (values * weights).sum(-1)

    def common(steps: Tensor) -> Tensor:
        """The mean over the tokens of a sequence: (H, B, 1, D)."""
        return torch.einsum("bhs,hbsD->hbD", weights, steps).unsqueeze(2)

    def cosine(one: Tensor, other: Tensor) -> Tensor:
        one, other = ((x * tokens.movedim(1, 0)[..., None]).flatten(2) for x in (one, other))
        return functional.cosine_similarity(one, other, dim=-1, eps=1e-30).T

    with torch.enable_grad():
        point = states.detach().clone().requires_grad_()
        depths = (_overlap(read(point), keys, beta, prior) * tokens).sum((0, 2))
        slopes = [torch.autograd.grad(x, point, retain_graph=True)[0] for x in depths]
    down = -torch.stack(slopes)
    bare = down - common(down)

    same, moved = common(steps), change(steps)
    told = {"energy": mean(before), "whole": mean(moved), "fell": mean((moved < 0).to(moved))}
    told |= {"common": mean(change(same)), "specific": mean(change(steps - same))}
    told |= {"cosine": cosine(steps, down), "centered_cosine": cosine(steps - same, bare)}
    null = before.new_empty(3, draws, heads)
    generator = numpy_generator(seed)
    for draw in range(draws):
        turns = random_rotations(returned, seed=generator)
        order = torch.from_numpy(generator.permutation(heads))
        turned = torch.einsum("hDv,bhsv->hbsD", writes[order] @ turns, returned)
        specific = turned - common(turned)
        drawn = (mean(change(turned)), mean(change(specific)), cosine(specific, bare))
        null[:, draw] = torch.stack([values.mean(0) for values in drawn])
    names = ("null_whole", "null_specific", "null_centered_cosine")
    told |= dict(zip(names, null, strict=True))
    return HeadReport(**{name: column.double().cpu().numpy() for name, column in told.items()})


def overlap_energy(
    queries: Tensor, *, keys: Tensor, beta: float, mask: Tensor | None = None
) -> Tensor:
    """U of queries (..., S, d) among keys (..., N, d), shape (..., S), differentiable in both.

    Without a mask U = −β⁻¹ [lse(β (k − k̄)·q) − log N], k̄ the mean key. mask: broadcastable to
    (..., S, N), as in `head_report`; a query that sees no key has U = 0.

    >>> keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> [f"{float(-u):.4f}" for u in overlap_energy(torch.eye(2), keys=keys, beta=1.0)]
    ['0.4338', '0.0000']
    """
    width = check_tensor("queries", queries, shape=(..., None, None)).shape[-1]
    check_tensor("keys", keys, like=("queries", queries), shape=(..., "N", width))
    beta = check_real("beta", beta, low=0.0, open_low=True)
    batch = check_broadcast(queries=queries.shape[:-2], keys=keys.shape[:-2])
    shape = (*batch, queries.shape[-2], keys.shape[-2])
    return _overlap(queries, keys, beta, _log_prior(mask, shape, like=queries))


def _overlap(queries: Tensor, keys: Tensor, beta: float, prior: Tensor | None) -> Tensor:
    scores = beta * queries @ (keys - keys.mean(-2, keepdim=True)).mT
    if prior is None:
        return -(torch.logsumexp(scores, dim=-1) - math.log(keys.shape[-2])) / beta
    lse = torch.logsumexp(scores + prior, dim=-1)
    return -(lse - (prior.exp() * scores).sum(-1)) / beta


def _log_prior(mask: Tensor | None, shape: tuple[int, ...], *, like: Tensor) -> Tensor | None:
    """log p⁰ of what the mask allows, of that shape; who sees no key is given one, and U is 0."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        raise TypeError(f"mask must be a boolean or floating-point torch tensor, got {mask!r:.60}")
    try:
        mask = mask.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"mask must have a shape that broadcasts to {shape}, got {tuple(mask.shape)}"
        ) from None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -math.inf)
    mask = mask.to(like)
    blind = (mask == -math.inf).all(-1)
    first = torch.eye(1, shape[-1], dtype=mask.dtype, device=mask.device).log()
    mask = torch.where(blind[..., None], first, mask)
    prior = torch.log_softmax(mask, dim=-1)
    # Some code forbids by a large number.
    return prior.masked_fill(prior < _FORBIDDEN, -math.inf)


def random_rotations(like: Tensor, *, seed: Seed) -> Tensor:
    """One orthogonal matrix a head, uniform (Haar), for what has shape (B, H, N, d): (H, d, d).

    The Q of a QR decomposition, the signs of R's diagonal taken out: else its mean is not zero.

    >>> turns = random_rotations(torch.zeros(1, 2, 3, 4), seed=0)
    >>> torch.allclose(turns @ turns.mT, torch.eye(4).expand(2, 4, 4), atol=1e-5)
    True
    """
    if like.ndim != 4:
        raise ValueError(f"like must have 4 axes (B, H, N, d), got {tuple(like.shape)}")
    shape = (like.shape[1], like.shape[3], like.shape[3])
    found = torch.linalg.qr(torch.from_numpy(numpy_generator(seed).standard_normal(shape)))
    signs = found.R.diagonal(dim1=-2, dim2=-1).sign()
    return (found.Q * signs.unsqueeze(-2)).to(like)
