"""What the continuous memory keeps and what is promised of it: the experiments of chapter 12.

Faces are rows of (100, 625) as in `images.faces`; memories are compared at equal β⟨‖x‖²⟩/d, so
that a change of scale is no change of temperature.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.functional import normalize

from compendium.c12_continuous_memory import bounds
from compendium.common.images import FACE_SHAPE
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.hopfield.continuous import attention_weights, retrieve
from spinformer.hopfield.fixed_points import effective_entries, jacobian_eigenvalue

CENTRINGS = ("none", "mean face", "each image")
HALVES = ("lower", "upper", "right", "random")


def visible_half(half: str, *, hidden: float = 0.5, seed: Seed = 0) -> torch.Tensor:
    """Which of the 625 pixels of a face are seen when the named part, a share `hidden`, is not."""
    places = np.arange(FACE_SHAPE[0] * FACE_SHAPE[1])
    first = {
        "lower": places[::-1],
        "upper": places,
        "right": np.argsort(-(places % FACE_SHAPE[1]), kind="stable"),
        "random": numpy_generator(seed).permutation(places),
    }[half]
    seen = torch.ones(places.size, dtype=torch.bool)
    seen[torch.as_tensor(first[: round(hidden * places.size)].copy())] = False
    return seen


def prepare_faces(
    faces: torch.Tensor,
    *,
    seen: torch.Tensor,
    centring: str = "none",
    equal_norm: bool = False,
    scaled_query: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A memory of the faces (N, d) and queries that know only the pixels `seen` (d,).

    centring: nothing is subtracted, or the mean face, or from each image its own mean (as
        LayerNorm does; the query can only subtract that of its visible pixels).
    equal_norm: every stored face is brought to norm √d. The query's visible part is divided by
        the norm of the whole face then, which nobody knows who sees only a part of it, unless
    scaled_query: the visible part is brought to the mean norm of the memory.
    Hidden pixels of a query are 0.
    """
    memory, queries = faces, faces * seen
    if centring == "mean face":
        memory, queries = faces - faces.mean(0), (faces - faces.mean(0)) * seen
    elif centring == "each image":
        memory = faces - faces.mean(1, keepdim=True)
        queries = (faces - faces[:, seen].mean(1, keepdim=True)) * seen
    if equal_norm:
        scale = faces.shape[1] ** 0.5 / memory.norm(dim=1, keepdim=True)
        memory, queries = scale * memory, scale * queries
    if scaled_query:
        queries = normalize(queries, dim=1) * memory.norm(dim=1).mean()
    return memory, queries


def faces_recalled(
    memory: torch.Tensor, *, queries: torch.Tensor, coldness: float, within: float = 0.05
) -> int:
    """How many queries (N, d) end within a share `within` of the norm of their own pattern.

    `coldness` is β⟨‖x‖²⟩/d.
    """
    mean_square = float(memory.square().sum(-1).mean())
    ends = retrieve(
        memory,
        queries=queries,
        beta=coldness * memory.shape[1] / mean_square,
        tolerance=1e-6 * mean_square**0.5,
        max_steps=1000,
    ).states
    return int(((ends - memory).norm(dim=-1) < within * memory.norm(dim=-1)).sum())


@record
class BoundCases:
    """Measured quantities and their bounds, one entry a case (a pattern of some memory).

    error, error_bound: ‖f(ξ) − x_i‖ after one step and its bound. slope, slope_bound,
    sharp_bound: largest eigenvalue of the update's Jacobian, the published bound and a tighter one.
    distance, radius: of the patterns that meet the separation condition, how far the fixed point
    lies that retrieval reaches from them, and how far it may.
    """

    error: np.ndarray
    error_bound: np.ndarray
    slope: np.ndarray
    slope_bound: np.ndarray
    sharp_bound: np.ndarray
    distance: np.ndarray
    radius: np.ndarray


def bound_cases(memories: int, *, seed: Seed = 0) -> BoundCases:
    """Random memories, temperatures and starting distances, each bound beside what it bounds.

    The error is summed as Σ_j p_j (x_j − x_i) over the competitors, which loses no digits where
    it is far below the rounding of x_i.
    """
    rng = numpy_generator(seed)
    cases: list[dict[str, torch.Tensor]] = []
    for _ in range(memories):
        size, width = int(rng.integers(2, 20)), int(rng.integers(2, 40))
        beta, radius = float(np.exp(rng.uniform(-2, 1.5))), float(rng.uniform(0, 0.6))
        patterns, aside = (torch.as_tensor(rng.standard_normal((size, width))) for _ in range(2))
        states = patterns + radius * normalize(aside, dim=-1)
        weights = attention_weights(patterns, states=states, beta=beta)
        steps = patterns.unsqueeze(0) - patterns.unsqueeze(1)  # [i, j] = x_j − x_i
        threshold = bounds.separation_threshold(patterns, beta=beta)
        safe = patterns[bounds.pattern_separation(patterns) >= threshold]
        found = retrieve(patterns, queries=safe, beta=beta, tolerance=1e-13)
        distance = (found.states - safe).norm(dim=-1)
        reach = bounds.storage_radius(patterns, beta=beta)
        cases.append(
            {
                "error": torch.einsum("ij,ijd->id", weights, steps).norm(dim=-1),
                "error_bound": bounds.one_step_bound(patterns, beta=beta, radius=radius),
                "slope": jacobian_eigenvalue(patterns, weights=weights, beta=beta),
                "slope_bound": bounds.jacobian_bound(patterns, beta=beta, radius=radius),
                "sharp_bound": bounds.jacobian_bound(
                    patterns, beta=beta, radius=radius, sharp=True
                ),
                "distance": distance,
                "radius": torch.full_like(distance, reach),
            }
        )
    return BoundCases(
        **{name: torch.cat([case[name] for case in cases]).numpy() for name in cases[0]}
    )


def grouped_patterns(
    draws: int, *, clusters: int, members: int, dim: int, spread: float = 0.5, seed: Seed = 0
) -> torch.Tensor:
    """Memories of centred patterns in groups, (draws, clusters · members, d).

    Group centres are standard normal; members scatter about theirs with standard deviation
    `spread`.
    """
    rng = numpy_generator(seed)
    centres = rng.standard_normal((draws, clusters, 1, dim))
    patterns = (centres + spread * rng.standard_normal((draws, clusters, members, dim))).reshape(
        draws, -1, dim
    )
    return torch.as_tensor(patterns - patterns.mean(1, keepdims=True))


def shares_of_kinds(patterns: torch.Tensor, *, factors: np.ndarray) -> np.ndarray:
    """Where patterns end: shares (temperatures, 3, draws) of single, metastable, average states.

    `patterns` (draws, N, d), each memory at `factors` (temperatures,) times the β at which its
    own mean becomes unstable. Every stored pattern is a start.
    """
    factors = np.asarray(factors, dtype=float)
    uniform = patterns.new_full((1, patterns.shape[1]), 1.0 / patterns.shape[1])
    top = [jacobian_eigenvalue(memory, weights=uniform, beta=1.0) for memory in patterns]
    # β in front of every score is the same as a memory whose vectors are √β times as long.
    unit = torch.stack(top).rsqrt().unsqueeze(-1)
    result = np.empty((factors.size, 3, len(patterns)))
    for row, factor in zip(result, factors, strict=True):
        memory = math.sqrt(factor) * unit * patterns
        ends = retrieve(memory, queries=memory, beta=1.0, tolerance=1e-7, max_steps=2000)
        entries = effective_entries(ends.attention).numpy()
        single, average = entries == 1, entries > patterns.shape[1] / 2
        row[:] = [kind.mean(-1) for kind in (single, ~single & ~average, average)]
    return result
