"""A layer's heads as spin systems, and what their parts are in the layer's residual stream.

A head has queries q, keys k and values v (N, d), attention weights P = softmax(q kᵀ/√d) and an
output matrix W_O. Its spins have the scaled fields h = v/√(mean v²) and the ordered couplings
J = g P [bal2021transformers, Sec. 8]. Everything that adds up values is mapped by W_O to the
residual stream, where the layer's own attention output Σ_heads W_O P v lives. The response
Σ C_mn ∂J_mn/∂x_i is a vector there by itself: with the G of [bal2021transformers, Eq.
(sigmaweird)] for softmax couplings it is Σ_heads (G k W_Q + Gᵀ q W_K)/√d, W_Q and W_K (d, D) the
head's rows of the query and key matrix. Sequences (B, N, D), heads (B, H, N, d), float64.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from spinformer.core.checks import check_real
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.language.encoder import LanguageModel, LayerTrace, check_trace
from spinformer.spins.large_d import vector_spins
from spinformer.spins.module import response_attention


@record
class LayerParts:
    """What the spins of a layer's heads are made of; M is the number of terms, D the model width.

    `terms`: by name, (B, H, N, D), what each head's part writes into the residual stream: "own" the
    value, "uniform" the mean value, "symmetrized" Σ_{j≠i} ½(P + Pᵀ)_ij v_j, "directed" Σ_{j≠i} P_ij
    v_j, "other head" and "shuffled" as "symmetrized" with the weights of another head and of
    permuted tokens; "residual", "mixing" and "onsager" of the saddle point. `responses`: by
    name, (B, N, D): "response", and with the G of another head's weights and of permuted tokens.
    `gain` (B, H, N): 1/(2τ), `onsager` (B, H, N): the Onsager share of τ.
    """

    terms: dict[str, Tensor]
    responses: dict[str, Tensor]
    gain: Tensor
    onsager: Tensor


def layer_parts(
    model: LanguageModel, trace: LayerTrace, *, strength: float = 0.5, seed: TorchSeed = 0
) -> LayerParts:
    """The parts of every head of a layer; `strength` is g, `seed` draws the permutations.

    Another head is the next one in a random cyclic order, so that no head meets itself.

    >>> from spinformer.language import example_model, run_model
    >>> trace = run_model(example_model(), torch.tensor([[2, 5, 6, 3]]))[0]
    >>> layer_parts(example_model(), trace).terms["symmetrized"].shape
    torch.Size([1, 2, 4, 8])
    """
    check_trace(model, trace)
    strength = check_real("strength", strength, low=0.0, open_low=True)
    values, width = trace.values, trace.values.shape[-1]
    heads = values.shape[1]
    weights, other, moved = _weights(trace, seed=seed)

    size = values.square().sum(dim=-1).mean(dim=-1).sqrt()[..., None, None]
    fields = values / size
    solved = vector_spins(strength * weights, fields=fields * width**0.5, beta=1.0, tolerance=1e-8)
    symmetric = strength * (weights + weights.mT) / 2
    tau = solved.saddle.t - symmetric.diagonal(dim1=-2, dim2=-1)
    gain = 1 / (2 * tau)
    spins = solved.magnetization / width**0.5
    residual = gain.unsqueeze(-1) * fields
    onsager = 1 - 1 / (2 * (1 - spins.square().sum(dim=-1)) * tau)
    mixed = {
        "residual": size * residual,
        "mixing": size * (spins - residual),
        "onsager": size * onsager.unsqueeze(-1) * spins,
    }

    name = f"encoder.layer.{trace.layer}.attention"
    query, key = (
        model.weights[f"{name}.self.{which}.weight"].unflatten(0, (heads, width))
        for which in ("query", "key")
    )

    def response(attention: Tensor, correlation: Tensor) -> Tensor:
        g = response_attention(strength * attention, correlation=correlation, strength=strength)
        pulls = g @ trace.keys @ query + g.mT @ trace.queries @ key
        return trace.beta * pulls.sum(dim=1)

    correlation = solved.correlations
    whole = response(weights, correlation)
    return LayerParts(
        terms={**mixing_terms(model, trace, seed=seed), **_written(model, trace, mixed)},
        responses={
            "response": whole,
            "other head": response(weights[:, other], correlation),
            "shuffled": whole[:, moved],
        },
        gain=gain,
        onsager=onsager,
    )


def mixing_terms(
    model: LanguageModel, trace: LayerTrace, *, seed: TorchSeed = 0
) -> dict[str, Tensor]:
    """The terms of `LayerParts` that need no spins to be solved, and two more: "balanced", which is
    "symmetrized" with each row of weights divided by its sum, and "balanced other", the same with
    the weights of another head.

    >>> from spinformer.language import example_model, run_model
    >>> trace = run_model(example_model(), torch.tensor([[2, 5, 6, 3]]))[0]
    >>> sorted(mixing_terms(example_model(), trace))[:4]
    ['balanced', 'balanced other', 'directed', 'other head']
    """
    check_trace(model, trace)
    values = trace.values
    weights, other, moved = _weights(trace, seed=seed)
    between = _without_diagonal((weights + weights.mT) / 2)
    balanced = between / between.sum(dim=-1, keepdim=True)
    mixed = {
        "own": values,
        "uniform": values.mean(dim=-2, keepdim=True).expand_as(values),
        "symmetrized": between @ values,
        "balanced": balanced @ values,
        "balanced other": balanced[:, other] @ values,
        "directed": _without_diagonal(weights) @ values,
        "other head": between[:, other] @ values,
        "shuffled": between[..., moved, :][..., moved] @ values,
    }
    return _written(model, trace, mixed)


def _weights(trace: LayerTrace, *, seed: TorchSeed) -> tuple[Tensor, Tensor, Tensor]:
    """Attention weights (B, H, N, N), another head for each head, and a permutation of tokens."""
    generator = torch_generator(seed)
    weights = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, dim=-1)
    order = torch.randperm(weights.shape[1], generator=generator)
    other = torch.empty_like(order)
    other[order] = order.roll(1)
    return weights, other, torch.randperm(weights.shape[-1], generator=generator)


def _written(
    model: LanguageModel, trace: LayerTrace, mixed: dict[str, Tensor]
) -> dict[str, Tensor]:
    """What heads' parts (B, H, N, d) write into the residual stream, (B, H, N, D)."""
    name = f"encoder.layer.{trace.layer}.attention.output.dense.weight"
    output = model.weights[name].unflatten(1, (trace.values.shape[1], -1))
    return {k: torch.einsum("bhnd,ohd->bhno", part, output) for k, part in mixed.items()}


def _without_diagonal(weights: Tensor) -> Tensor:
    return weights - torch.diag_embed(weights.diagonal(dim1=-2, dim2=-1))


def feed_forward_output(model: LanguageModel, trace: LayerTrace) -> Tensor:
    """What the layer's feed-forward network adds to its input, (B, N, D), its last bias included.

    >>> from spinformer.language import example_model, layer_norm, run_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> whole = trace.normalized + feed_forward_output(model, trace)
    >>> bool(torch.allclose(layer_norm(model, "encoder.layer.0.output", whole), trace.outputs))
    True
    """
    check_trace(model, trace)
    prefix = f"encoder.layer.{trace.layer}"
    states = trace.normalized
    for name in ("intermediate.dense", "output.dense"):
        matrix, bias = (model.weights[f"{prefix}.{name}.{part}"] for part in ("weight", "bias"))
        states = functional.linear(states, matrix, bias)
        if name == "intermediate.dense":
            states = functional.gelu(states)
    return states
