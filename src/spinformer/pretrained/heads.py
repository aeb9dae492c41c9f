"""How many keys a head attends to, and where it ends up if it is run to its fixed points.

Attention maps are arrays (..., queries, keys) whose rows sum to one. Inverse temperatures
stand inside: logits are beta q·k with beta = 1/sqrt(d), as in softmax(QKᵀ/√d)V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm

from spinformer.checks import check_array, check_integer, check_real, check_tensor
from spinformer.pretrained.minilm import LanguageModel, LayerTrace, project

CLASS_NAMES = ("I", "II", "III", "IV")
# Upper and lower edges of the classes as fractions of the number of keys.
CLASS_EDGES = (1 / 2, 1 / 8, 1 / 32)


def attention_logits(trace: LayerTrace, beta: float) -> torch.Tensor:
    """Logits beta q·k of every head, (B, H, N, N): the softmax over the last axis attends."""
    return check_real("beta", beta, low=0.0, open_low=True) * trace.queries @ trace.keys.mT


def entries_for_mass(attention: torch.Tensor, mass: float = 0.9) -> torch.Tensor:
    """Fewest entries of each row of `attention` (..., N) that sum to at least `mass`: (...)

    The size of the metastable state in Ramsauer et al. 2020 (section 2, analysis of BERT
    models), there with mass = 0.90.
    """
    check_tensor("attention", attention, low=0.0)
    mass = check_real("mass", mass, low=0.0, high=1.0, open_low=True)
    cumulated = attention.sort(dim=-1, descending=True).values.cumsum(-1)
    # The last sum is 1 up to rounding: at mass = 1 no more than all entries are needed.
    return ((cumulated < mass).sum(-1) + 1).clamp(max=attention.shape[-1])


def head_medians(per_query: torch.Tensor) -> np.ndarray:
    """Median over sequences and queries of a quantity (B, H, N): one number a head, (H,)."""
    if per_query.ndim != 3:
        raise ValueError(f"per_query must have 3 axes, got shape {tuple(per_query.shape)}")
    return np.median(per_query.detach().double().numpy(), axis=(0, 2))


def operating_class(median_entries: np.ndarray, keys: int) -> np.ndarray:
    """Class 1, 2, 3 or 4 (I … IV) of heads that need `median_entries` of `keys` entries.

    I: k > N/2, II: N/8 < k ≤ N/2, III: N/32 < k ≤ N/8, IV: k ≤ N/32
    (Ramsauer et al. 2020).
    """
    keys = check_integer("keys", keys, low=1)
    median_entries = check_array("median_entries", median_entries, low=1.0, high=keys)
    return 1 + sum((median_entries <= edge * keys).astype(int) for edge in CLASS_EDGES)


def logit_spread(logits: torch.Tensor) -> torch.Tensor:
    """Standard deviation over the keys of logits (..., N), beta included: (...)."""
    return check_tensor("logits", logits).std(dim=-1, correction=0)


def gaussian_fraction(spread: np.ndarray | float, mass: float = 0.9) -> np.ndarray:
    """Fraction k/N of entries that carry `mass` if logits are Gaussian: Phi(z_mass - spread).

    For logits N(0, s²) and N → ∞ the weights are e^z: tilting a Gaussian by e^z shifts its
    mean to s², so the entries above c = s² - z_mass s carry the mass and they are a
    fraction Phi(-c/s) of all. z_0.9 = 1.2816. `spread` ≥ 0, of any shape.
    """
    mass = check_real("mass", mass, low=0.0, high=1.0, open_low=True)
    return norm.cdf(norm.ppf(mass) - check_array("spread", spread, low=0.0))


@dataclass(frozen=True)
class FixedPoints:
    """End points of an iterated head, one for each starting query.

    `states` (..., S, d), `attention` (..., S, N) at the end points, `steps` (..., S) taken,
    `converged` (..., S) whether the last step was shorter than the tolerance.
    """

    states: torch.Tensor
    attention: torch.Tensor
    steps: torch.Tensor
    converged: torch.Tensor


@torch.no_grad()
def iterate_head(
    queries: torch.Tensor,
    keys: torch.Tensor,
    beta: float,
    *,
    values: torch.Tensor | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 2000,
) -> FixedPoints:
    """Run xi ← values' softmax(beta keys·xi) from every query until it rests.

    queries (..., S, d), keys and values (..., N, d) with equal leading axes. Without
    `values` this is the continuous Hopfield network that stores the keys (document 001,
    update with gamma = 1), whose energy falls at every step; with other values there is no
    such guarantee and `converged` says whether it rested. A state rests when its step is
    shorter than `tolerance` times the root mean square norm of the values.
    """
    check_tensor("queries", queries)
    check_tensor("keys", keys)
    values = keys if values is None else check_tensor("values", values)
    if queries.shape[-1] != keys.shape[-1] or queries.shape[:-2] != keys.shape[:-2]:
        raise ValueError(
            f"queries and keys must agree in width and leading axes, got shapes "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}"
        )
    if values.shape != keys.shape:
        raise ValueError(f"values must have shape {tuple(keys.shape)}, got {tuple(values.shape)}")
    beta = check_real("beta", beta, low=0.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)

    lead, starts, width = queries.shape[:-2], queries.shape[-2], queries.shape[-1]
    flat = [tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (queries, keys, values)]
    states = flat[0].clone()
    attention = torch.empty(*states.shape[:2], keys.shape[-2], dtype=states.dtype)
    steps = torch.zeros(states.shape[:2], dtype=torch.int64)
    converged = torch.zeros(states.shape[:2], dtype=torch.bool)
    for batch, (stored, returned) in enumerate(zip(flat[1], flat[2], strict=True)):
        shortest = tolerance * float(returned.pow(2).sum(-1).mean().sqrt())
        moving = torch.arange(starts)
        for _ in range(max_steps):
            old = states[batch, moving]
            new = torch.softmax(beta * old @ stored.mT, dim=-1) @ returned
            states[batch, moving] = new
            steps[batch, moving] += 1
            rested = (new - old).norm(dim=-1) <= shortest
            converged[batch, moving[rested]] = True
            moving = moving[~rested]
            if not len(moving):
                break
        attention[batch] = torch.softmax(beta * states[batch] @ stored.mT, dim=-1)
    return FixedPoints(
        states.reshape(*lead, starts, width),
        attention.reshape(*lead, starts, -1),
        steps.reshape(*lead, starts),
        converged.reshape(*lead, starts),
    )


def distinct_states(states: torch.Tensor, tolerance: float = 1e-3) -> torch.Tensor:
    """Number each of the states (S, d) by the distinct point it lies at: labels (S,) from 0.

    Two states are the same point if they differ by less than `tolerance` times the root
    mean square norm of all (or are both within it of zero).
    """
    check_tensor("states", states, ndim=2)
    radius = check_real("tolerance", tolerance, low=0.0, open_low=True) * float(
        states.pow(2).sum(-1).mean().sqrt()
    )
    labels = torch.full((len(states),), -1)
    count = 0
    while bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        near = (states - states[first]).norm(dim=-1) <= radius
        labels[near & (labels < 0)] = count
        count += 1
    return labels


def fixed_point_kind(attention: torch.Tensor) -> np.ndarray:
    """Kind of each fixed point from its attention (..., N), an array of strings.

    "single": one key carries 0.9 of the weight; "global": more than N/2 keys are needed
    for it; "metastable": anything between (the three kinds of Ramsauer et al. 2020).
    """
    entries = entries_for_mass(attention).numpy()
    return np.where(
        entries == 1, "single", np.where(entries > attention.shape[-1] / 2, "global", "metastable")
    )


def stability_parameter(keys: torch.Tensor, beta: float) -> torch.Tensor:
    """beta times the largest eigenvalue of the keys' covariance; keys (..., N, d): (...).

    For centred keys the mean (equal attention to all) is a stable fixed point of the
    Hopfield iteration if and only if this is below 1.
    """
    check_tensor("keys", keys)
    centred = keys - keys.mean(-2, keepdim=True)
    covariance = centred.mT @ centred / keys.shape[-2]
    return check_real("beta", beta, low=0.0) * torch.linalg.eigvalsh(covariance)[..., -1]


def balanced_gauge(
    model: LanguageModel, layer: int, trace: LayerTrace
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (B, H, N, d) in the gauge in which both maps have equal Gram matrices.

    Attention depends on W_Q W_Kᵀ alone: q → Aᵀq, k → A⁻¹k changes no logit, but it changes
    what "the Hopfield network that stores the keys" is. Here W_Q W_Kᵀ = U S Vᵀ is split
    into U√S and V√S, and the keys are centred (their mean adds the same number to all
    logits of a query). Biases are left out of the decomposition.
    """
    sizes = model.architecture
    name = f"encoder.layer.{layer}.attention.self"
    rotations = []
    for head in range(sizes.heads):
        rows = slice(head * sizes.head_width, (head + 1) * sizes.head_width)
        query_map, key_map = (
            model.weights[f"{name}.{which}.weight"][rows].mT for which in ("query", "key")
        )
        triangle_q = torch.linalg.qr(query_map).R
        triangle_k = torch.linalg.qr(key_map).R
        left, sizes_s, _ = torch.linalg.svd(triangle_q @ triangle_k.mT)
        rotations.append(torch.linalg.solve(triangle_q, left * sizes_s.sqrt()))
    gauge = torch.stack(rotations)
    keys = trace.keys @ torch.linalg.inv(gauge).mT
    return trace.queries @ gauge, keys - keys.mean(-2, keepdim=True)


def readback_values(model: LanguageModel, layer: int, trace: LayerTrace) -> torch.Tensor:
    """Each head's values as its own query map reads them, (B, H, N, d).

    Value v of head h is written to the residual stream as W_O v and read again by the same
    head as W_Q W_O v + b_Q. With these values `iterate_head` closes the loop that a head
    makes through the model's own matrices: the attention step with V ≠ K, without the
    residual and the normalisation.
    """
    sizes = model.architecture
    output = model.weights[f"encoder.layer.{layer}.attention.output.dense.weight"]
    written = torch.stack(
        [
            trace.values[:, head] @ output[:, head * sizes.head_width :][:, : sizes.head_width].mT
            for head in range(sizes.heads)
        ],
        dim=1,
    )
    read = [
        project(model, layer, "query", written[:, head])[:, head] for head in range(sizes.heads)
    ]
    return torch.stack(read, dim=1)
