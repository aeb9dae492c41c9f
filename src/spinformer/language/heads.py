"""Overlap energies of attention heads, and how a layer's own output changes them.

A head with the scores s_j = β q·k_j of the keys that it may attend to has the overlap energy

    U = −β⁻¹ [log Σ_j p⁰_j exp(s_j) − Σ_j p⁰_j s_j] = −β⁻¹ KL(p⁰ ‖ attention) ≤ 0,

where p⁰ is the attention that its mask alone would give, uniform over the keys that are visible.
It is zero where the query cannot distinguish the keys, and invariant under a change of basis (q →
Aᵀq, k → A⁻¹k) and of the origin of the keys. Without a mask it is the part of the energy of
[bal2020energy, Eq. (7)] that has this invariance.

Head h adds Δx_h = W_O^h Σ_j a_j v_j to the state of every token. We ask how this changes U_h when
the keys are held fixed: by all of Δx_h, by the part *common* to all tokens of a sequence (its mean
over them), and by the rest, which is *specific* to a token. U is concave in the query, so that a
step in a random direction changes it as well. The null distribution therefore rotates the output
of the heads at random and writes it by the output matrix of another head, drawn at random.

Letters: B sequences, S queries, N keys, H heads of width d, G groups of heads that share keys and
values (grouped-query attention; G = H if none do), model width D.
"""

import math
import warnings
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
from spinformer.core.operators import is_traced
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import student_interval

# What rounding in half of the layers of a model may do to what hooks have seen.
_SAME = 1e-3
# Scores below this are summed by what they differ from 0.
_SMALL = 0.05
# The logarithm of a share that is none.
_FORBIDDEN = -100.0


class HeadRow(dict[str, float]):
    """Row of the table of a `HeadReport`, a dictionary by column.

    It prints as one line of rounded numbers.

    Examples
    --------
    >>> print(HeadRow(head=3, energy=-1.23456, whole=0.5, whole_error=0.012, whole_z=2.04))
    head 3: energy -1.235, whole +0.5 ± 0.012 (z +2.0)
    """

    def __str__(self) -> str:
        parts = []
        for name, value in self.items():
            if name == "head" or name.endswith(("_error", "_z")):
                continue
            part = f"{name} {value:+.4g}"
            if not np.isnan(self.get(f"{name}_error", np.nan)):
                part += f" ± {self[f'{name}_error']:.2g}"
            if not np.isnan(self.get(f"{name}_z", np.nan)):
                part += f" (z {self[f'{name}_z']:+.1f})"
            parts.append(part)
        return f"head {self['head']}: {', '.join(parts)}"


@record
class HeadReport:
    """Change of the overlap energy of each attention head of a layer by its own output.

    All numbers are means over tokens. B is the number of sequences and H the number of heads. The
    null distribution rotates the output of the heads at random.

    Attributes
    ----------
    energy : ndarray, shape (B, H)
        Overlap energy U_h before the step.
    whole : ndarray, shape (B, H)
        Change of U_h by the whole output of the head.
    common : ndarray, shape (B, H)
        Change of U_h by the part of the output that is common to all tokens.
    specific : ndarray, shape (B, H)
        Change of U_h by the rest, which is specific to a token.
    fell : ndarray, shape (B, H)
        Fraction of the tokens whose U_h the whole output lowers.
    cosine : ndarray, shape (B, H)
        Cosine between the output and the descent direction −∇U_h over the tokens of a sequence.
    centered_cosine : ndarray, shape (B, H)
        The same, with both centred over tokens.
    null_whole : ndarray, shape (draws, H)
        `whole` of rotated outputs, averaged over sequences.
    null_specific : ndarray, shape (draws, H)
        `specific` of rotated outputs, averaged over sequences.
    null_centered_cosine : ndarray, shape (draws, H)
        `centered_cosine` of rotated outputs, averaged over sequences.
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
        """Z-scores of a quantity relative to its null distribution.

        Parameters
        ----------
        name : {"whole", "specific", "centered_cosine"}
            The quantity.

        Returns
        -------
        ndarray, shape (H,)
            Distance of each head from the mean of its null, in standard deviations of the null.
            NaN with fewer than two draws, or where all draws and the head are equal.
        """
        null = getattr(self, f"null_{name}")
        if len(null) < 2:
            return np.full(self.energy.shape[1], np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: np.ndarray = (getattr(self, name).mean(0) - null.mean(0)) / null.std(0, ddof=1)
        return found

    def half(self, name: str) -> np.ndarray:
        """Half width of Student's 95 % confidence interval of a mean over sequences.

        Parameters
        ----------
        name : str
            The quantity, an attribute of shape (B, H).

        Returns
        -------
        ndarray, shape (H,)
            The half width for each head. NaN for a single sequence.
        """
        values = getattr(self, name)
        if len(values) < 2:
            return np.full(values.shape[1], np.nan)
        return np.array([0.5 * np.subtract(*student_interval(column)[::-1]) for column in values.T])

    def table(self) -> list[HeadRow]:
        """Table of the report, one row for each head.

        Returns
        -------
        list of HeadRow
            Means over sequences. A column with `_error` holds their `half`, and one with `_z`
            their `z`. The numbers are not rounded.
        """
        columns = {"head": np.arange(self.energy.shape[1])}
        for name in ("energy", "whole", "common", "specific", "fell", "cosine", "centered_cosine"):
            columns[name] = getattr(self, name).mean(0)
            if name in ("whole", "common", "specific"):
                columns[f"{name}_error"] = self.half(name)
            if name in ("whole", "specific", "centered_cosine"):
                columns[f"{name}_z"] = self.z(name)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [HeadRow(zip(columns, row, strict=True)) for row in rows]

    def __str__(self) -> str:
        return "\n".join(map(str, self.table()))


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
    padding: Tensor | None = None,
    beta: float | None = None,
    draws: int = 20,
    seed: Seed = 0,
) -> HeadReport:
    """Energies, changes and alignments of all attention heads of a layer, with null distributions.

    B is the number of sequences, S of queries, N of keys, H of heads of width d, G of groups of
    heads that share keys and values (grouped-query attention; G = H if there is no sharing), and D
    the model width.

    Parameters
    ----------
    queries : Tensor, shape (B, H, S, d)
        Queries as they meet the keys, with position rotations applied, in float32 or float64.
    keys : Tensor, shape (B, G, N, d)
        Keys. Head h reads group h // (H/G).
    values : Tensor, shape (B, G, N, d_v)
        Values.
    states : Tensor, shape (B, S, D)
        States to which the outputs of the heads are added.
    read : callable
        Map from such states to queries, with everything in between (normalization, query matrix,
        bias, rotation). It must return `queries` at `states`.
    output : Tensor, shape (D, H·d_v)
        Weight of the output projection.
    outputs : Tensor, shape (B, S, D), or None, default None
        Output of the attention. If it is given, a mask, β or order of heads that does not explain
        it is refused.
    mask : Tensor, broadcastable to (B, H, S, N), or None, default None
        True where a query may attend, or numbers added to the scores, as in
        `scaled_dot_product_attention`.
    padding : Tensor of bool, shape (B, N), or None, default None
        True where a token is padding, for queries and keys of the same tokens. No query attends to
        such a key, and such a query is not counted.
    beta : float or None, default None
        Inverse temperature, positive. None is 1/√d.
    draws : int, default 20
        Number of draws of the null distribution.
    seed : int or numpy.random.Generator, default 0
        Source of the random rotations.

    Returns
    -------
    HeadReport
        Energies, changes, alignments and their nulls.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the dtypes differ.
    ValueError
        If a shape does not fit, `read` gives other queries, no gradient or what is not finite,
        `outputs` is not explained, or a number overflows.

    Warns
    -----
    RuntimeWarning
        If the mask alone hides padding, so that the queries of the padding are counted.

    Notes
    -----
    A query that attends to fewer than two keys (the first of a causal model, or a row without any)
    has no overlap energy and is left out. The time is that of H(3 + 2·draws) calls of `read`. For
    the energy see `overlap_energy`.

    Examples
    --------
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
    check_function("read", read)
    shape = (size, heads, length, count)
    prior = _log_prior(mask, shape, like=queries)
    there = torch.ones(size, length, dtype=torch.bool, device=queries.device)
    if padding is not None:
        there = ~_check_padding(padding, shape).to(queries.device)
        prior = _log_prior(_without(mask, there, like=queries), shape, like=queries)
        # Whatever stands in the padding takes no part: a token of the sequence stands in for it.
        first = there.int().argmax(1)
        rows = torch.arange(size, device=queries.device)
        states = torch.where(there[..., None], states, states[rows, first][:, None])
        own = there[:, None, :, None]
        queries = torch.where(own, queries, queries[rows, :, first][:, :, None])
        keys, values = keys.where(own, 0.0), values.where(own, 0.0)
    found = check_tensor(
        "read", read(states.clone()), like=("queries", queries), shape=queries.shape
    )
    off = (found - queries).movedim(1, 2)[there]
    if off.numel() and float(off.abs().max()) > _SAME * float(queries.abs().max()):
        raise ValueError("read must return the queries at the states, and returns others")

    tokens = torch.full_like(queries[..., 0], count > 1, dtype=torch.bool)
    if prior is not None:
        tokens = (prior > -math.inf).sum(-1) > 1
    tokens = tokens & there[:, None]
    if not bool(tokens.any(-1).all()):
        raise ValueError("mask and padding must leave two keys to a query of every head")
    if prior is not None and padding is None and length == count:
        _warn_of_padding(prior, tokens)
    weights = tokens.to(queries) / tokens.sum(-1, keepdim=True)
    scores = beta * queries @ keys.mT
    returned = torch.softmax(scores if prior is None else scores + prior, dim=-1) @ values
    writes = output.unflatten(-1, (heads, -1)).movedim(1, 0)
    steps = torch.einsum("hDv,bhsv->hbsD", writes, returned)
    if outputs is not None:
        check_tensor("outputs", outputs, like=("queries", queries), shape=states.shape)
        seen = tokens.all(1)
        if not bool(seen.any()):
            raise ValueError("outputs must be None where no query sees two keys in every head")
        left = (outputs - steps.sum(0))[seen]
        if float((left - left.mean(0)).abs().max()) > _SAME * float(outputs[seen].abs().max()):
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
        if not depths.requires_grad:
            raise ValueError("read must keep the gradient: no detach and no torch.no_grad inside")
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
    for name, column in told.items():
        if not bool(column.isfinite().all()):
            raise ValueError(
                f"{name} of the report is not finite: read must give finite queries at the states "
                f"plus what a head adds, and numbers must be within the range of {queries.dtype}"
            )
    return HeadReport(**{name: column.double().cpu().numpy() for name, column in told.items()})


def overlap_energy(
    queries: Tensor, *, keys: Tensor, beta: float, mask: Tensor | None = None
) -> Tensor:
    r"""Overlap energy of attention queries, the energy up to the origin of the keys.

    It is differentiable in queries and keys.

    Parameters
    ----------
    queries : Tensor, shape (..., S, d)
        Queries, one a row.
    keys : Tensor, shape (..., N, d)
        Keys, one a row.
    beta : float
        Inverse temperature, positive.
    mask : Tensor, broadcastable to (..., S, N), or None, default None
        True where a query may attend, or numbers added to the scores.

    Returns
    -------
    Tensor, shape (..., S)
        The energy of each query, which is never positive. It is 0 for a query that attends to no
        key.

    Raises
    ------
    TypeError
        If an argument is of the wrong type, or the dtypes differ.
    ValueError
        If a shape does not fit, a value is not allowed, or the energy overflows.

    Notes
    -----
    With the scores s_j = β q·k_j and the attention p⁰ that the mask alone would give,

    .. math::

        U = -\beta^{-1} \left[\log \sum_j p^0_j\, e^{s_j} - \sum_j p^0_j\, s_j\right] =
        -\beta^{-1}\, \mathrm{KL}(p^0 \,\Vert\, \text{attention}).

    Without a mask it is −β⁻¹ [log Σ_j exp(β (k_j − k̄)·q) − log N], with the mean key k̄.

    References
    ----------
    [bal2020energy, Eq. (7)], of which it is the part that does not depend on the origin of the
    keys.

    Examples
    --------
    >>> keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> [f"{float(-u):.4f}" for u in overlap_energy(torch.eye(2), keys=keys, beta=1.0)]
    ['0.4338', '0.0000']
    """
    width = check_tensor("queries", queries, shape=(..., None, None)).shape[-1]
    check_tensor("keys", keys, like=("queries", queries), shape=(..., "N", width))
    beta = check_real("beta", beta, low=0.0, open_low=True)
    batch = check_broadcast(queries=queries.shape[:-2], keys=keys.shape[:-2])
    shape = (*batch, queries.shape[-2], keys.shape[-2])
    found = _overlap(queries, keys, beta, _log_prior(mask, shape, like=queries))
    if not is_traced() and not bool(found.detach().isfinite().all()):
        raise ValueError(
            f"overflow in the energy: queries, keys or beta are too large for {found.dtype}, or "
            "beta is too small"
        )
    return found


def _overlap(queries: Tensor, keys: Tensor, beta: float, prior: Tensor | None) -> Tensor:
    if prior is None:
        center = keys.mean(-2, keepdim=True)
    else:
        # Keys that nobody may see take no part, however large they are.
        seen = (prior > -math.inf).any(-2).unsqueeze(-1)
        keys = torch.where(seen, keys, 0.0)
        center = keys.sum(-2, keepdim=True) / seen.sum(-2, keepdim=True)
    scores = beta * queries @ (keys - center).mT
    if prior is None:
        # What rounding leaves of the mean shifts all scores alike.
        scores = scores - scores.mean(-1, keepdim=True)
        found = torch.logsumexp(scores, dim=-1) - math.log(keys.shape[-2])
        chances = torch.full_like(scores, 1.0 / keys.shape[-2])
    else:
        chances = prior.exp()
        scores = scores - (chances * scores).sum(-1, keepdim=True)
        found = torch.logsumexp(scores + prior, dim=-1)
    # Among small scores both logarithms are nearly log N, and what is left of them is rounding.
    small = (scores.detach().abs() * (chances > 0)).amax(-1) < _SMALL
    if is_traced() or bool(small.any()):
        series = torch.log1p((chances * torch.expm1(scores.clamp(-1.0, 1.0))).sum(-1))
        found = torch.where(small, series, found)
    return -found / beta


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
    if not is_traced() and mask.numel() and not bool(mask.detach().amax() < math.inf):
        raise ValueError(f"mask must have entries below infinity in {like.dtype}")
    blind = (mask == -math.inf).all(-1)
    first = torch.eye(1, shape[-1], dtype=mask.dtype, device=mask.device).log()
    mask = torch.where(blind[..., None], first, mask)
    prior = torch.log_softmax(mask, dim=-1)
    # Some code forbids by a large number.
    return prior.masked_fill(prior < _FORBIDDEN, -math.inf)


def _check_padding(padding: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        raise TypeError(f"padding must be a boolean torch tensor, got {padding!r:.60}")
    if shape[2] != shape[3]:
        raise ValueError(
            f"padding must be None where queries ({shape[2]}) and keys ({shape[3]}) are not of the "
            "same tokens: mask both"
        )
    if tuple(padding.shape) != (shape[0], shape[3]):
        raise ValueError(
            f"padding must have shape {(shape[0], shape[3])}, got {tuple(padding.shape)}"
        )
    return padding


def _without(mask: Tensor | None, there: Tensor, *, like: Tensor) -> Tensor:
    """`mask` that hides the keys of tokens that are not `there` (B, N), too."""
    there = there[:, None, None]
    if mask is None:
        return there
    if mask.dtype == torch.bool:
        return mask & there
    return mask.to(like).masked_fill(~there, -math.inf)


def _warn_of_padding(prior: Tensor, tokens: Tensor) -> None:
    """Say that keys are hidden from all queries whose own queries are counted."""
    hidden = (prior == -math.inf).all(-2)
    if bool((hidden & tokens).any()):
        warnings.warn(
            "mask hides keys from all queries, but not the queries of the same tokens: if these "
            "are padding, give padding=, or what stands there is counted",
            RuntimeWarning,
            stacklevel=3,
        )


def random_rotations(like: Tensor, *, seed: Seed) -> Tensor:
    """Random orthogonal matrices, uniform in the Haar measure, one for each head.

    Parameters
    ----------
    like : Tensor, shape (B, H, N, d)
        Tensor that gives number of heads, width, dtype and device.
    seed : int or numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    Tensor, shape (H, d, d)
        The orthogonal matrices.

    Raises
    ------
    TypeError
        If `like` is not a floating-point tensor, or the seed is of the wrong type.
    ValueError
        If `like` has not four axes.

    Notes
    -----
    Each matrix is the Q of a QR decomposition of a Gaussian matrix. The signs of the diagonal of R
    are taken out, because otherwise the mean of Q would not be zero.

    Examples
    --------
    >>> turns = random_rotations(torch.zeros(1, 2, 3, 4), seed=0)
    >>> torch.allclose(turns @ turns.mT, torch.eye(4).expand(2, 4, 4), atol=1e-5)
    True
    """
    check_tensor("like", like, ndim=4)
    shape = (like.shape[1], like.shape[3], like.shape[3])
    found = torch.linalg.qr(torch.from_numpy(numpy_generator(seed).standard_normal(shape)))
    signs = found.R.diagonal(dim1=-2, dim2=-1).sign()
    return (found.Q * signs.unsqueeze(-2)).to(like)
