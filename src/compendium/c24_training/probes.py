"""What happens inside a stack: order, correlations, response, and how far each can be trusted.

Some probes need spins and are NaN for layers without; the others are the same for every layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compendium.common.classifiers import TokenClassifier
from spinformer.core.checks import check_tensor
from spinformer.core.records import record
from spinformer.spins.module import SpinTransformerModule

SHUFFLE = 17


@record
class LayerProbe:
    """One layer on a set of samples; averages over samples, tokens and heads.

    Of spins: `polarization` |<u_i>|, 0 free to 1 frozen. `correlation` <u_i . u_j> over pairs of
    different spins, `connected` the same less <u_i> . <u_j>. `collective`: the largest eigenvalue
    of the covariance C - m mT over its mean diagonal, 1 for spins that fluctuate alone, N for one
    mode of all. `response`: the response's share of the output, response . m / m . m. `converged`,
    `physical`, `trusted`: shares of the systems, `distance` and `correction` medians, all as in
    `spins.modules.validity`.

    Of any layer: `similarity`, cosine of different tokens in the output; `residual`, the distance
    of the tokens from their mean, relative to their size [dong2021attention]; `separation`, the
    share of the variance of the mean output token that lies between the labels. `undriven` is the
    correlation of the spins, or the similarity of tokens without spins, when every input token of
    this layer is taken from another sample.
    """

    polarization: float
    correlation: float
    connected: float
    collective: float
    response: float
    converged: float
    physical: float
    trusted: float
    distance: float
    correction: float
    similarity: float
    residual: float
    separation: float
    undriven: float


@torch.no_grad()
def probe_layers(model: TokenClassifier, tokens: Tensor, *, labels: Tensor) -> list[LayerProbe]:
    """The collective behaviour of every layer for these samples, first layer first.

    >>> model = TokenClassifier("no response", tokens=4, features=1, dim=8, heads=2)
    >>> probes = probe_layers(model, torch.randn(5, 4, 1), labels=torch.arange(5))
    >>> [probe.response for probe in probes]
    [0.0, 0.0]
    """
    check_tensor("tokens", tokens, ndim=3)
    if tuple(labels.shape) != tokens.shape[:1]:
        raise ValueError(f"labels must have shape ({len(tokens)},), got {tuple(labels.shape)}")
    state, probes = model.embed(tokens), []
    for layer in model.layers:
        mixed = _shuffled(state)
        spins = dict.fromkeys(
            (
                *("polarization", "correlation", "connected", "collective", "response"),
                *("converged", "physical", "trusted", "distance", "correction"),
            ),
            float("nan"),
        )
        if isinstance(layer, SpinTransformerModule):
            undriven = off_diagonal(layer(mixed, return_parts=True)[1].correlation)
            spins, state = _probe_spins(layer, state)
        else:
            undriven = _similarity(layer(mixed))
            state = layer(state)
        mean = state.mean(-2, keepdim=True)
        apart = (state - mean).norm(dim=(-2, -1)) / state.norm(dim=(-2, -1))
        probes.append(
            LayerProbe(
                **spins,
                similarity=_similarity(state),
                residual=float(apart.mean()),
                separation=between_classes(mean.squeeze(-2), labels=labels),
                undriven=undriven,
            )
        )
    return probes


def _probe_spins(layer: SpinTransformerModule, inputs: Tensor) -> tuple[dict[str, float], Tensor]:
    output, parts = layer(inputs, return_parts=True)
    mean = parts.solution.value
    covariance = parts.correlation - mean @ mean.mT
    single = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    whole = parts.magnetization
    share = (parts.response * whole).sum((-2, -1)) / whole.square().sum((-2, -1))
    return {
        "polarization": float(mean.norm(dim=-1).mean()),
        "correlation": off_diagonal(parts.correlation),
        "connected": off_diagonal(covariance),
        "collective": float((torch.linalg.eigvalsh(covariance)[..., -1] / single).mean()),
        "response": float(share.mean()),
        **layer.validity().summary(),
    }, output


def off_diagonal(matrix: Tensor) -> float:
    """Mean over pairs of different tokens of (..., N, N).

    >>> off_diagonal(torch.tensor([[9.0, 1.0], [3.0, 9.0]]))
    2.0
    """
    sites = matrix.shape[-1]
    total = matrix.sum((-1, -2)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return float((total / (sites * (sites - 1))).mean())


def between_classes(points: Tensor, *, labels: Tensor) -> float:
    """Share of the variance of `points` (samples, channels) that lies between the labels.

    >>> between_classes(torch.tensor([[0.0], [0.0], [1.0]]), labels=torch.tensor([0, 0, 1]))
    1.0
    """
    centred = points - points.mean(0)
    between = torch.zeros((), dtype=points.dtype)
    for label in labels.unique():
        members = centred[labels == label]
        between = between + len(members) * members.mean(0).square().sum()
    return float(between / centred.square().sum())


def _similarity(state: Tensor) -> float:
    unit = nn.functional.normalize(state, dim=-1)
    return off_diagonal(unit @ unit.mT)


def _shuffled(state: Tensor) -> Tensor:
    """Every token from another sample, at its own place."""
    generator = torch.Generator().manual_seed(SHUFFLE)
    samples, sites = state.shape[:2]
    order = torch.rand(samples, sites, generator=generator).argsort(0)
    return state[order, torch.arange(sites)]
