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

from collections.abc import Sequence

import numpy as np
import torch

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_real,
    check_tensor,
)
from spinformer.core.random import Seed
from spinformer.core.records import record
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
    `after[stage]` (B, H, N) for the stages, keys held fixed throughout:
    "hopfield": the query replaced by softmax(β q·k) k, the step with V = K
    [bal2020energy, Eq. (12)];
    "attention": by what the head's query map reads from the layer's attention output alone;
    "residual": from inputs + attention output; "layer norm": from its LayerNorm; "feed
    forward": from the layer's outputs. kind: one of KINDS. Raises ValueError for another, or a
    trace of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> before, after = stage_energies(model, trace, "hopfield")
    >>> bool((after["hopfield"] <= before).all())
    True
    """
    check_choice("kind", kind, KINDS)
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
    connection. Raises ValueError for scale ≤ 0 or a trace of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> rescaled_share(model, trace, scale=1.0).shape
    (1,)
    """
    scale = check_real("scale", scale, low=0.0, open_low=True)
    moved = project(model, trace.layer, "query", states=trace.residual)
    before, after = (
        hopfield_energy(trace.keys / scale, states=scale * queries, beta=trace.beta)
        for queries in (trace.queries, moved)
    )
    return (after < before).double().mean((1, 2)).numpy()


def energy_gradient(
    model: LanguageModel, trace: LayerTrace, *, states: torch.Tensor
) -> torch.Tensor:
    """∇_x Σ_h U_h at hidden states (B, N, D), keys of `trace` fixed: (B, N, D).

    −∇U = Σ_h W_Qᵀ Σ_j a_j (k_j − k̄): attention whose values are the centered keys and whose
    output matrix is the transposed query map. Raises ValueError for a trace of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> tuple(energy_gradient(model, trace, states=trace.inputs).shape)
    (1, 4, 8)
    """
    layer = trace.layer
    centered = trace.keys - trace.keys.mean(-2, keepdim=True)
    queries = project(model, layer, "query", states=states)
    pulled = torch.softmax(trace.beta * queries @ centered.mT, dim=-1) @ centered
    name = f"encoder.layer.{layer}.attention.self.query.weight"
    return -pulled.transpose(-2, -3).flatten(-2) @ model.weights[name]


def layer_overlap_energy(
    model: LanguageModel, trace: LayerTrace, *, states: torch.Tensor
) -> torch.Tensor:
    """Σ_h U_h at hidden states (B, N, D), keys of `trace` fixed: (B, N).

    Raises ValueError for a trace of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> bool((layer_overlap_energy(model, trace, states=trace.inputs) < 0).all())
    True
    """
    queries = project(model, trace.layer, "query", states=states)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta).sum(1)


@torch.no_grad()
def query_energy(trace: LayerTrace, *, turned: Seed | None = None) -> np.ndarray:
    """Mean overlap energy of a layer's queries among its own keys, one number a head: (H,).

    With `turned` (a seed) the queries of every head are first turned by a random rotation of its
    own: the same keys and the same lengths of queries, but what the queries ask for is lost.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> trace = run_model(example_model(), torch.tensor([[2, 5, 6, 3]]))[0]
    >>> query_energy(trace).shape, bool((query_energy(trace, turned=0) < 0).all())
    ((2,), True)
    """
    queries = trace.queries
    if turned is not None:
        queries = queries @ random_rotations(queries, seed=turned)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta).mean((0, 2)).numpy()


def alignment(update: torch.Tensor, *, gradient: torch.Tensor) -> torch.Tensor:
    """Cosine between an update and the descent direction −gradient over the last axis.

    `update` and `gradient` have one shape (..., D), the result (...); it is 0 where one of them
    is zero. Raises ValueError if the shapes differ.

    >>> alignment(torch.tensor([3.0, 0.0]), gradient=torch.tensor([-1.0, 0.0]))
    tensor(1.)
    """
    check_tensor("update", update)
    return torch.nn.functional.cosine_similarity(
        update, -check_tensor("gradient", gradient, shape=update.shape), dim=-1, eps=1e-30
    )


def energy_along(
    model: LanguageModel,
    trace: LayerTrace,
    *,
    direction: torch.Tensor,
    scales: Sequence[float],
) -> torch.Tensor:
    """Σ_h U_h(x + scale·direction) − Σ_h U_h(x) at the layer's inputs x: (scales, B, N).

    `direction` has the shape (B, N, D) of the inputs. Raises ValueError for another, for a scale
    that is not finite, or for a trace of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> trace = run_model(model, torch.tensor([[2, 5, 6, 3]]))[0]
    >>> descent = -energy_gradient(model, trace, states=trace.inputs)
    >>> bool((energy_along(model, trace, direction=descent, scales=[0.5, 1.0]) < 0).all())
    True
    """
    start = layer_overlap_energy(model, trace, states=trace.inputs)
    check_tensor("direction", direction, shape=trace.inputs.shape)
    lengths = check_array("scales", scales, ndim=1).tolist()
    if not lengths:
        raise ValueError("scales must hold at least one number, got none")
    return torch.stack(
        [
            layer_overlap_energy(model, trace, states=trace.inputs + length * direction) - start
            for length in lengths
        ]
    )


@record
class StepAccount:
    """Attention updates Δx of tokens against the descent direction of Σ_h U_h, per layer.

    `cosine` (L,): mean cosine between Δx and −∇U. `aligned`, `opposed` (L,): number of
    tokens with Δx·(−∇U) > 0 and ≤ 0; `aligned_fell`, `opposed_fell` (L,): for how many of
    them Σ_h U_h was lower at x + Δx than at x.

    >>> one = np.ones(1)
    >>> StepAccount(cosine=one, aligned=one, aligned_fell=one, opposed=one, opposed_fell=one).cosine
    array([1.])
    """

    cosine: np.ndarray
    aligned: np.ndarray
    aligned_fell: np.ndarray
    opposed: np.ndarray
    opposed_fell: np.ndarray


@torch.no_grad()
def account_steps(model: LanguageModel, traces: Sequence[LayerTrace]) -> StepAccount:
    """Compare every layer's attention update with the gradient of its own overlap energy.

    Raises ValueError for traces of another model.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> account = account_steps(model, run_model(model, torch.tensor([[2, 5, 6, 3]])))
    >>> account.aligned + account.opposed, bool((account.aligned_fell == account.aligned).all())
    (array([4, 4]), True)
    """
    if not traces:
        raise ValueError("traces must hold at least one LayerTrace, got none")
    rows = []
    for trace in traces:
        cosine = alignment(
            trace.attended, gradient=energy_gradient(model, trace, states=trace.inputs)
        )
        fell = energy_along(model, trace, direction=trace.attended, scales=[1.0])[0] < 0
        aligned = cosine > 0
        rows.append(
            {
                "cosine": float(cosine.flatten().mean()),
                "aligned": int(aligned.sum()),
                "aligned_fell": int((aligned & fell).sum()),
                "opposed": int((~aligned).sum()),
                "opposed_fell": int((~aligned & fell).sum()),
            }
        )
    return StepAccount(**{name: np.array([row[name] for row in rows]) for name in rows[0]})


@torch.no_grad()
def depth_profile(model: LanguageModel, traces: Sequence[LayerTrace], kind: str) -> np.ndarray:
    """Energy of every layer's heads at the hidden states of every depth: (L, L + 1).

    Entry (l, m): mean over heads and tokens of the energy that the keys of layer l define,
    at the hidden states after m layers as layer l's query maps read them. A forward pass
    moves along a row; a layer's own step leads from entry (l, l) to (l, l + 1). kind: one of
    KINDS. Raises ValueError for another, or unless `traces` are those of all layers in order.

    >>> from spinformer.language.encoder import run_model

    >>> from spinformer.language.untrained import example_model
    >>> model = example_model()
    >>> traces = run_model(model, torch.tensor([[2, 5, 6, 3]]))
    >>> depth_profile(model, traces, "overlap").shape
    (2, 3)
    """
    check_choice("kind", kind, KINDS)
    layers = [trace.layer for trace in traces]
    if layers != list(range(model.architecture.layers)):
        raise ValueError(f"traces must be those of all layers in order, got layers {layers}")
    depths = [trace.inputs for trace in traces] + [traces[-1].outputs]
    rows = [
        [
            float(_energy(trace, project(model, trace.layer, "query", states=states), kind).mean())
            for states in depths
        ]
        for trace in traces
    ]
    return np.array(rows)


def _energy(trace: LayerTrace, queries: torch.Tensor, kind: str) -> torch.Tensor:
    """The energy `kind` of queries (B, H, N, d) among the keys of `trace`: (B, H, N)."""
    if kind == "hopfield":
        return hopfield_energy(trace.keys, states=queries, beta=trace.beta)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta)
