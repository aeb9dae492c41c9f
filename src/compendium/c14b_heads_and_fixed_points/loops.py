"""The ways to close the loop from a head's output to its next query.

* "keys": the query is replaced by the attention average of the keys, as in the continuous
  Hopfield network of [bal2020energy, Eq. (12)] (V = K). Its energy falls at every step.
* "balanced": the same after rewriting W_Q W_Kᵀ = U S Vᵀ as (U√S)(V√S)ᵀ and centering the keys:
  no attention weight of the model changes, but the stored patterns do.
* "readback": the head's own values (V ≠ K), written to the residual stream by W_O and read
  again by the same head's W_Q.
* "turned": a control of "readback" that keeps keys, attention and the lengths of what is read, and
  breaks only its direction: one random rotation of the head's values.
* "sub-layer": what the model does in full: x ← LayerNorm(x + attention(x)), all heads at once.

A *gain* g in front of the values of a loop makes it q ← g Σ_j a_j w_j. With w = k this is the
loop "keys" at the inverse temperature gβ, with q in units of g, so that its energy falls at every
gain; other loops may lose their rest as g grows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from compendium.common.models import head_maps, read_of_written
from spinformer.core.random import Seed
from spinformer.language.encoder import LanguageModel, LayerTrace, project
from spinformer.language.heads import random_rotations

VALUES = ("keys", "readback", "turned")


def attend(
    keys: torch.Tensor, *, values: torch.Tensor, beta: float
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The step of a head's loop: queries (S, d) to attention averages of `values` (N, d)."""
    return lambda queries: torch.softmax(beta * queries @ keys.mT, dim=-1) @ values


def loop_values(
    model: LanguageModel, trace: LayerTrace, loop: str, *, seed: Seed = 0
) -> torch.Tensor:
    """What a loop of VALUES returns for each key: values w_j (B, H, N, d), at gain 1.

    `seed` draws the rotations of "turned", one a head.
    """
    if loop == "keys":
        return trace.keys
    values = readback_values(model, trace)
    if loop == "readback":
        return values
    return values @ random_rotations(values, seed=seed)


@torch.no_grad()
def loop_jacobians(
    trace: LayerTrace, *, values: torch.Tensor, at: torch.Tensor, gain: float = 1.0
) -> torch.Tensor:
    """Derivatives of every head's loop at a query, of the first sequence: (H, d, d).

    For values w_j (B, H, N, d) of `loop_values` and queries `at` (H, d) the derivative of
    g Σ_j a_j w_j is gβ Σ_j a_j w_j (k_j − Σ_i a_i k_i)ᵀ. With w = k it is gβ times a covariance:
    symmetric, eigenvalues ≥ 0.
    """
    keys = trace.keys[0]
    weights = torch.softmax(trace.beta * at.unsqueeze(-2) @ keys.mT, dim=-1)
    return gain * trace.beta * (weights.mT * values[0]).mT @ (keys - weights @ keys)


def leading_eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """The eigenvalue of largest modulus of matrices (..., d, d), complex (...)."""
    found = np.linalg.eigvals(matrices)
    place = np.abs(found).argmax(-1)[..., None]
    return np.asarray(np.take_along_axis(found, place, -1)[..., 0], dtype=complex)


def sublayer_step(model: LanguageModel, trace: LayerTrace, states: torch.Tensor) -> torch.Tensor:
    """LayerNorm(x + attention(x)) of states (S, D) among the first sequence's keys and values."""
    prefix = f"encoder.layer.{trace.layer}.attention.output"
    queries = project(model, trace.layer, "query", states=states)
    logits = trace.beta * queries @ trace.keys[0].mT
    heads = (torch.softmax(logits, dim=-1) @ trace.values[0]).transpose(0, 1).flatten(1)
    (matrix, bias), (gain, shift) = (
        [model.weights[f"{prefix}.{name}.{part}"] for part in ("weight", "bias")]
        for name in ("dense", "LayerNorm")
    )
    whole, eps = states + functional.linear(heads, matrix, bias), model.architecture.layer_norm_eps
    return functional.layer_norm(whole, gain.shape, gain, shift, eps)


def balanced_gauge(model: LanguageModel, trace: LayerTrace) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (B, H, N, d) in the gauge in which both maps have equal Gram matrices.

    Attention depends on W_Q W_Kᵀ alone: q → Aᵀq, k → A⁻¹k changes no logit, but it changes what
    "the Hopfield network that stores the keys" is. Here W_Q W_Kᵀ = U S Vᵀ is split into U√S and
    V√S, and the keys are centered (their mean adds the same number to all logits of a query).
    Biases are left out of the decomposition.
    """
    heads, name = model.architecture.heads, f"encoder.layer.{trace.layer}.attention.self"
    triangle_q, triangle_k = (
        torch.linalg.qr(model.weights[f"{name}.{which}.weight"].unflatten(0, (heads, -1)).mT).R
        for which in ("query", "key")
    )
    left, singular, _ = torch.linalg.svd(triangle_q @ triangle_k.mT)
    gauge = torch.linalg.solve(triangle_q, left * singular.sqrt().unsqueeze(-2))
    keys = trace.keys @ torch.linalg.inv(gauge).mT
    return trace.queries @ gauge, keys - keys.mean(-2, keepdim=True)


def readback_values(model: LanguageModel, trace: LayerTrace) -> torch.Tensor:
    """Each head's values as its own query map reads them, (B, H, N, d).

    Value v of head h is written to the residual stream as W_O v and read again by the same head as
    W_Q W_O v + b_Q: the loop a head makes through the model's own matrices, without the other
    heads, the residual and the normalization.
    """
    bias = model.weights[f"encoder.layer.{trace.layer}.attention.self.query.bias"]
    read = trace.values @ read_of_written(*head_maps(model, trace.layer))
    return read + bias.unflatten(0, (len(trace.queries[0]), 1, -1))
