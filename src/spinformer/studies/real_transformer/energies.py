"""The energies that attention steps are said to minimise, and whether they do.

Two energies of a head with keys k_j, evaluated at a query q:

* the Hopfield energy of document 001, ½q·q − β⁻¹ lse_j(β k_j·q), in the head's own space
  (`spinformer.hopfield.continuous.energy` with the keys as patterns);
* the overlap energy U = −β⁻¹ [lse_j(β (k_j − k̄)·q) − log N], the part of it that can be read
  off the attention weights: it does not change if queries and keys are re-expressed
  (q → Aᵀq, k → A⁻¹k) or if the keys are shifted, and it is 0 for equal attention, else < 0.

As a function of the hidden state x (with q = W_Q x + b_Q) U is concave, a sum of −lse of
linear functions; so a step Δx lowers it for certain whenever Δx·(−∇U) > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.hopfield.continuous import energy as hopfield_energy
from spinformer.language.minilm import LanguageModel, LayerTrace, project

STAGES = ("hopfield", "attention", "residual", "layer norm", "feed forward")


def overlap_energy(queries: torch.Tensor, *, keys: torch.Tensor, beta: float) -> torch.Tensor:
    """U = −β⁻¹ [lse(β (k − k̄)·q) − log N] of queries (..., S, d), keys (..., N, d): (..., S)."""
    check_tensor("queries", queries)
    check_tensor("keys", keys)
    beta = check_real("beta", beta, low=0.0, open_low=True)
    centred = keys - keys.mean(-2, keepdim=True)
    lse = torch.logsumexp(beta * queries @ centred.mT, dim=-1)
    return -(lse - math.log(keys.shape[-2])) / beta


def stage_energies(
    model: LanguageModel, layer: int, trace: LayerTrace, kind: str
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Energy of every head and token before the layer, and after each stage of it.

    Returns (before, after): `before` (B, H, N) at the queries of the layer's inputs, and
    `after[stage]` (B, H, N) for the stages, keys held fixed throughout:
    "hopfield": the query replaced by softmax(β q·k) k, the step with V = K;
    "attention": by what the head's query map reads from the layer's attention output alone;
    "residual": from inputs + attention output; "layer norm": from its LayerNorm; "feed
    forward": from the layer's outputs. kind is "hopfield" or "overlap" (see the module).
    """
    check_choice("kind", kind, ("hopfield", "overlap"))
    layer = check_integer("layer", layer, low=0, high=model.architecture.layers - 1)
    beta = model.architecture.beta

    def energy(queries: torch.Tensor) -> torch.Tensor:
        if kind == "hopfield":
            return hopfield_energy(trace.keys, states=queries, beta=beta)
        return overlap_energy(queries, keys=trace.keys, beta=beta)

    attention = torch.softmax(beta * trace.queries @ trace.keys.mT, dim=-1)
    states = {
        "attention": trace.attended,
        "residual": trace.residual,
        "layer norm": trace.normalised,
        "feed forward": trace.outputs,
    }
    queries = {"hopfield": attention @ trace.keys} | {
        stage: project(model, layer, "query", states=state) for stage, state in states.items()
    }
    before = energy(trace.queries)
    return before, {stage: energy(queries[stage]) for stage in STAGES}


def energy_gradient(
    model: LanguageModel, layer: int, trace: LayerTrace, *, states: torch.Tensor
) -> torch.Tensor:
    """∇_x Σ_h U_h at hidden states (B, N, D), keys of `trace` fixed: (B, N, D).

    −∇U = Σ_h W_Qᵀ Σ_j a_j (k_j − k̄): attention whose values are the centred keys and whose
    output matrix is the transposed query map.
    """
    beta = model.architecture.beta
    centred = trace.keys - trace.keys.mean(-2, keepdim=True)
    queries = project(model, layer, "query", states=states)
    pulled = torch.softmax(beta * queries @ centred.mT, dim=-1) @ centred
    name = f"encoder.layer.{layer}.attention.self.query.weight"
    return -pulled.transpose(-2, -3).flatten(-2) @ model.weights[name]


def layer_overlap_energy(
    model: LanguageModel, layer: int, trace: LayerTrace, *, states: torch.Tensor
) -> torch.Tensor:
    """Σ_h U_h at hidden states (B, N, D), keys of `trace` fixed: (B, N)."""
    queries = project(model, layer, "query", states=states)
    return overlap_energy(queries, keys=trace.keys, beta=model.architecture.beta).sum(1)


def alignment(update: torch.Tensor, *, gradient: torch.Tensor) -> torch.Tensor:
    """Cosine between an update and the descent direction −gradient over the last axis."""
    return torch.nn.functional.cosine_similarity(
        check_tensor("update", update), -check_tensor("gradient", gradient), dim=-1, eps=1e-30
    )


def energy_along(
    model: LanguageModel,
    layer: int,
    trace: LayerTrace,
    *,
    direction: torch.Tensor,
    scales: list[float],
) -> torch.Tensor:
    """Σ_h U_h(x + scale·direction) − Σ_h U_h(x) at the layer's inputs x: (scales, B, N)."""
    check_tensor("direction", direction, shape=trace.inputs.shape)
    start = layer_overlap_energy(model, layer, trace, states=trace.inputs)
    return torch.stack(
        [
            layer_overlap_energy(model, layer, trace, states=trace.inputs + scale * direction)
            - start
            for scale in scales
        ]
    )


@dataclass(frozen=True)
class StepAccount:
    """Attention updates Δx of tokens against the descent direction of Σ_h U_h, per layer.

    `cosine` (L,): mean cosine between Δx and −∇U. `aligned`, `opposed` (L,): number of
    tokens with Δx·(−∇U) > 0 and ≤ 0; `aligned_fell`, `opposed_fell` (L,): for how many of
    them Σ_h U_h was lower at x + Δx than at x.
    """

    cosine: np.ndarray
    aligned: np.ndarray
    aligned_fell: np.ndarray
    opposed: np.ndarray
    opposed_fell: np.ndarray


@torch.no_grad()
def account_steps(model: LanguageModel, traces: list[LayerTrace]) -> StepAccount:
    """Compare every layer's attention update with the gradient of its own overlap energy."""
    rows = []
    for layer, trace in enumerate(traces):
        cosine = alignment(
            trace.attended, gradient=energy_gradient(model, layer, trace, states=trace.inputs)
        ).flatten()
        fell = (
            energy_along(model, layer, trace, direction=trace.attended, scales=[1.0])[0].flatten()
            < 0
        )
        aligned = cosine > 0
        rows.append(
            (
                float(cosine.mean()),
                int(aligned.sum()),
                int((aligned & fell).sum()),
                int((~aligned).sum()),
                int((~aligned & fell).sum()),
            )
        )
    return StepAccount(*(np.array(column) for column in zip(*rows, strict=True)))


@torch.no_grad()
def depth_profile(model: LanguageModel, traces: list[LayerTrace], kind: str) -> torch.Tensor:
    """Energy of every layer's heads at the hidden states of every depth: (L, L + 1).

    Entry (l, m): mean over heads and tokens of the energy that the keys of layer l define,
    at the hidden states after m layers as layer l's query maps read them. A forward pass
    moves along a row; a layer's own step leads from entry (l, l) to (l, l + 1).
    """
    check_choice("kind", kind, ("hopfield", "overlap"))
    beta = model.architecture.beta
    depths = [trace.inputs for trace in traces] + [traces[-1].outputs]
    rows = []
    for layer, trace in enumerate(traces):
        queries = [project(model, layer, "query", states=states) for states in depths]
        if kind == "hopfield":
            row = [hopfield_energy(trace.keys, states=query, beta=beta).mean() for query in queries]
        else:
            row = [overlap_energy(query, keys=trace.keys, beta=beta).mean() for query in queries]
        rows.append(torch.stack(row))
    return torch.stack(rows)
