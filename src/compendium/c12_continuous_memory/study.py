"""What the continuous memory keeps and what is promised of it: the experiments of chapter 12.

Memories are compared at equal β⟨‖x‖²⟩/d, so that a change of scale is no change of temperature.

Table of settings of A19: which faces come back, by what is hidden and how they are prepared. value:
the share of the hundred faces that are recalled at β⟨‖x‖²⟩/d = 1, less 0.995, so that above zero
all of them are. These hundred faces are the statement's own and no sample: the interval is the
count itself.
"""

import math
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from bookmaker.tables import Rows, stored
from compendium.common import images
from compendium.common.rows import grid
from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.continuous import attention_weights, jacobian, retrieve
from spinformer.hopfield.fixed_points import effective_entries

CENTRINGS = ("none", "mean face", "each image")
HALVES = ("lower", "upper", "right", "random")


def visible_half(half: str, *, hidden: float = 0.5, seed: Seed = 0) -> torch.Tensor:
    """Which of the 625 pixels of a face are seen when the named part, a share `hidden`, is not."""
    places = np.arange(images.FACE_SHAPE[0] * images.FACE_SHAPE[1])
    first = {
        "lower": places[::-1],
        "upper": places,
        "right": np.argsort(-(places % images.FACE_SHAPE[1]), kind="stable"),
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
    """A memory of the faces (N, d) and queries that know only the pixels `seen` (d,), 0 elsewhere.

    Subtracted is nothing, the mean face, or the mean of each image (of a query that of what is
    seen). With `equal_norm` every face is brought to norm √d, a query by the norm of its whole
    face; with `scaled_query` what is seen is brought to the mean norm of the memory.
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


def faces_recalled(memory: torch.Tensor, *, queries: torch.Tensor, coldness: float) -> int:
    """How many queries (N, d) end nearer to their own pattern than 5 % of its norm.

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
    return int(((ends - memory).norm(dim=-1) < 0.05 * memory.norm(dim=-1)).sum())


def guarantees(patterns: torch.Tensor, *, beta: float, radius: float) -> dict[str, Any]:
    """What is promised of a memory (N, d) within `radius` of each pattern x_i, M the largest norm.

    error: ‖f(ξ) − x_i‖ ≤ 2M(N − 1)e^{−β(Δ_i − 2M·radius)}, Δ_i the separation of the pattern.
    slope: ‖∂f/∂ξ‖₂ ≤ 2βNM²(N − 1)e^{…}. stored: a pattern with at least this separation has a fixed
    point within `ball` of it [ramsauer2020hopfield, Theorems 3 to 5]. sharp: the slope again, our
    own: ∂f/∂ξ = β Cov_p(x), and a covariance is at most the second moment about x_i,
    Σ_j p_j‖x_j − x_i‖² ≤ 4M²(N − 1)e^{…}.
    """
    count, norm = len(patterns), float(patterns.norm(dim=-1).max())
    overlaps = patterns @ patterns.mT
    own = overlaps.diagonal().clone()
    separation = own - overlaps.fill_diagonal_(-math.inf).amax(-1)
    leak = (count - 1) * torch.exp(-beta * (separation - 2.0 * norm * radius))
    return {
        "separation": separation,
        "stored": (2.0 / count + math.log(2.0 * (count - 1) * count * beta * norm**2)) / beta,
        "ball": 1.0 / (beta * count * norm),
        "error": 2.0 * norm * leak,
        "slope": 2.0 * beta * count * norm**2 * leak,
        "sharp": 4.0 * beta * norm**2 * leak,
    }


def bound_cases(memories: int, *, seed: Seed = 0) -> dict[str, np.ndarray]:
    """Random memories, temperatures and starting distances, each bound beside what it bounds.

    One entry a pattern of some memory. error: ‖f(ξ) − x_i‖ after one step, summed over competitors,
    which loses no digits where it is far below the rounding of x_i; slope: largest eigenvalue of
    the update's Jacobian. distance, radius: of the patterns that are promised a fixed point, how
    far retrieval ends from them, and how far it may.
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
        bound = guarantees(patterns, beta=beta, radius=radius)
        safe = patterns[bound["separation"] >= bound["stored"]]
        found = retrieve(patterns, queries=safe, beta=beta, tolerance=1e-13)
        distance = (found.states - safe).norm(dim=-1)
        cases.append(
            {
                "error": torch.einsum("ij,ijd->id", weights, steps).norm(dim=-1),
                "error_bound": bound["error"],
                "slope": torch.linalg.eigvalsh(jacobian(patterns, states=states, beta=beta))[:, -1],
                "slope_bound": bound["slope"],
                "sharp_bound": bound["sharp"],
                "distance": distance,
                "radius": torch.full_like(distance, bound["ball"]),
            }
        )
    return {name: torch.cat([case[name] for case in cases]).numpy() for name in cases[0]}


def grouped_patterns(
    draws: int, *, clusters: int, members: int, dim: int, seed: Seed = 0
) -> torch.Tensor:
    """Memories of centred patterns in groups, (draws, clusters · members, d).

    Group centres are standard normal; members scatter about theirs with standard deviation ½.
    """
    rng = numpy_generator(seed)
    centres = rng.standard_normal((draws, clusters, 1, dim))
    members_of = centres + 0.5 * rng.standard_normal((draws, clusters, members, dim))
    patterns = members_of.reshape(draws, -1, dim)
    return torch.as_tensor(patterns - patterns.mean(1, keepdims=True))


def shares_of_kinds(patterns: torch.Tensor, *, factors: np.ndarray) -> np.ndarray:
    """Where patterns end: shares (temperatures, 3, draws) of single, metastable, average states.

    `patterns` (draws, N, d), each memory at `factors` (temperatures,) times the β at which its
    own mean becomes unstable. Every stored pattern is a start.
    """
    factors = np.asarray(factors, dtype=float)
    top = torch.linalg.eigvalsh(jacobian(patterns, states=torch.zeros_like(patterns[:, :1])))
    # β in front of every score is the same as a memory whose vectors are √β times as long.
    unit = top[..., -1:].rsqrt()
    result = np.empty((factors.size, 3, len(patterns)))
    for row, factor in zip(result, factors, strict=True):
        memory = math.sqrt(factor) * unit * patterns
        ends = retrieve(memory, queries=memory, beta=1.0, tolerance=1e-7, max_steps=2000)
        entries = effective_entries(ends.attention).numpy()
        single, average = entries == 1, entries > patterns.shape[1] / 2
        row[:] = [kind.mean(-1) for kind in (single, ~single & ~average, average)]
    return result


@stored(
    "settings_A19",
    grid(
        half=HALVES,
        hidden=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        centring=("none", "mean face"),
        norm=("own", "equal"),
    ),
    seconds=0.5,
    within={"value": 0.011, "low": 0.011, "high": 0.011},
)
def SETTINGS(half: str, hidden: float, centring: str, norm: str) -> Rows:
    """One place and share of what is hidden, one way to prepare the memory."""
    faces = torch.as_tensor(images.faces())
    memory, queries = prepare_faces(
        faces,
        seen=visible_half(half, hidden=hidden),
        centring=centring,
        equal_norm=norm == "equal",
        scaled_query=True,
    )
    count = faces_recalled(memory, queries=queries, coldness=1.0)
    lead = count / len(faces) - 0.995
    return [{"value": lead, "low": lead, "high": lead, "runs": len(faces)}]
