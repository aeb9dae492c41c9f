"""The energies that attention steps are said to minimize, and whether they do.

Two energies of a head with keys k_j, evaluated at a query q:

* the Hopfield energy ½q·q − β⁻¹ lse_j(β k_j·q), [bal2020energy, Eq. (7)] with β, in the head's
  own space (`spinformer.hopfield.continuous.energy` with the keys as patterns);
* the overlap energy U = −β⁻¹ [lse_j(β (k_j − k̄)·q) − log N], the part of it that can be read
  off the attention weights: it does not change if queries and keys are re-expressed
  (q → Aᵀq, k → A⁻¹k) or if the keys are shifted, and it is 0 for equal attention, else < 0.

As a function of the hidden state x (with q = W_Q x + b_Q) U is concave, a sum of −lse of
linear functions; so a step Δx lowers it for certain whenever Δx·(−∇U) > 0.

Shapes are those of `spinformer.language`: B sequences of N tokens, H heads of width d, model
width D, L layers from 0; KINDS names the two energies.
"""

from __future__ import annotations

import numpy as np
import torch

from spinformer.core.random import Seed
from spinformer.hopfield.continuous import energy as hopfield_energy
from spinformer.language.encoder import LanguageModel, LayerTrace, project
from spinformer.language.heads import overlap_energy, random_rotations

KINDS = ("hopfield", "overlap")
STAGES = ("hopfield", "attention", "residual", "layer norm", "feed forward")


def stage_energies(
    model: LanguageModel, trace: LayerTrace, kind: str
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Energy of every head and token before the layer, and after each stage of it.

    Returns (before, after): `before` (B, H, N) at the queries of the layer's inputs, and
    `after[stage]` (B, H, N) for the stages, keys held fixed throughout: "hopfield": the query
    replaced by softmax(β q·k) k, the step with V = K [bal2020energy, Eq. (12)]; "attention": by
    what the head's query map reads from the layer's attention output alone; "residual": from inputs
    + attention output; "layer norm": from its LayerNorm; "feed forward": from the layer's outputs.
    kind: one of KINDS.
    """
    layer = trace.layer
    attention = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, dim=-1)
    states = {
        "attention": trace.attended,
        "residual": trace.residual,
        "layer norm": trace.normalized,
        "feed forward": trace.outputs,
    }
    queries = {"hopfield": attention @ trace.keys} | {
        stage: project(model, layer, "query", states=state) for stage, state in states.items()
    }
    before = _energy(trace, trace.queries, kind)
    return before, {stage: _energy(trace, queries[stage], kind) for stage in STAGES}


@torch.no_grad()
def rescaled_share(model: LanguageModel, trace: LayerTrace, *, scale: float) -> np.ndarray:
    """Share of (head, token) whose Hopfield energy is lower after the attention step: (B,).

    The queries are written `scale` times as long and the keys `scale` times as short, which changes
    no attention weight and nothing that the model computes: what comes out is what of the share
    belongs to the way of writing. `scale` 1 is the model as stored. The step includes the residual
    connection.
    """
    moved = project(model, trace.layer, "query", states=trace.residual)
    before, after = (
        hopfield_energy(trace.keys / scale, states=scale * queries, beta=trace.beta)
        for queries in (trace.queries, moved)
    )
    return (after < before).double().mean((1, 2)).numpy()


@torch.no_grad()
def query_energy(trace: LayerTrace, *, turned: Seed | None = None) -> np.ndarray:
    """Mean overlap energy of a layer's queries among its own keys, one number a head: (H,).

    With `turned` (a seed) the queries of every head are first turned by a random rotation of its
    own: the same keys and the same lengths of queries, but what the queries ask for is lost.
    """
    queries = trace.queries
    if turned is not None:
        queries = queries @ random_rotations(queries, seed=turned)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta).mean((0, 2)).numpy()


def _energy(trace: LayerTrace, queries: torch.Tensor, kind: str) -> torch.Tensor:
    """The energy `kind` of queries (B, H, N, d) among the keys of `trace`: (B, H, N)."""
    if kind == "hopfield":
        return hopfield_energy(trace.keys, states=queries, beta=trace.beta)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta)
