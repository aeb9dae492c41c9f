"""What the continuous memory keeps and what is promised of it.

Memories are compared at equal β⟨‖x‖²⟩/d, so that a change of scale is no change of temperature.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from bookmaker.tables import Rows, stored
from compendium.common import images
from compendium.common.rows import mean_rows, parameter_product
from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.continuous import attention_weights, jacobian, retrieve
from spinformer.hopfield.fixed_points import effective_entries

CENTRINGS = ("none", "brightness", "mean face", "each image")
# Counts with these do not depend on which grey the file of images calls zero.
INVARIANT = ("brightness", "mean face")
HALVES = ("lower", "upper", "right", "random")


def visible_half(
    half: str,
    *,
    hidden: float = 0.5,
    shape: tuple[int, int] = images.FACE_SHAPE,
    seed: Seed = 0,
) -> torch.Tensor:
    """Which pixels of an image are seen when the named part, a fraction `hidden`, is not."""
    size = shape[0] * shape[1]
    places = np.arange(size)
    first = {
        "lower": places[::-1],
        "upper": places,
        "right": np.argsort(-(places % shape[1]), kind="stable"),
        "random": numpy_generator(seed).permutation(places),
    }[half]
    return torch.as_tensor(np.isin(places, first[: round(hidden * size)], invert=True))


def prepare_faces(
    faces: torch.Tensor,
    *,
    seen: torch.Tensor,
    centring: str = "none",
    equal_norm: bool = False,
    scaled_query: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A memory of the images (N, d) and queries that know only the pixels `seen` (d,), 0 elsewhere.

    Subtracted is nothing; the brightness, one number, the mean over all faces and pixels; the mean
    face; or the mean of each image (of a query that of what is seen). With `equal_norm` every face
    is brought to norm √d, a query by the norm of its whole face; with `scaled_query` what is seen
    is brought to the mean norm of the memory.
    """
    memory = faces
    if centring == "brightness":
        memory = faces - faces.mean()
    elif centring == "mean face":
        memory = faces - faces.mean(0)
    queries = memory * seen
    if centring == "each image":
        memory = faces - faces.mean(1, keepdim=True)
        queries = (faces - faces[:, seen].mean(1, keepdim=True)) * seen
    if equal_norm:
        scale = faces.shape[1] ** 0.5 / memory.norm(dim=1, keepdim=True)
        memory = scale * memory
        queries = scale * queries
    if scaled_query:
        queries = normalize(queries, dim=1) * memory.norm(dim=1).mean()
    return memory, queries


def is_recalled(memory: torch.Tensor, *, queries: torch.Tensor, coldness: float) -> torch.Tensor:
    """Which queries (N, d) end nearer to their own pattern than 5 % of its norm, booleans (N,).

    `coldness` is β⟨‖x‖²⟩/d.
    """
    mean_square = float(memory.square().sum(-1).mean())
    beta = coldness * memory.shape[1] / mean_square
    tolerance = 1e-6 * mean_square**0.5
    ends = retrieve(memory, queries=queries, beta=beta, tolerance=tolerance, max_steps=1000).states
    return (ends - memory).norm(dim=-1) < 0.05 * memory.norm(dim=-1)


def faces_recalled(memory: torch.Tensor, *, queries: torch.Tensor, coldness: float) -> int:
    """How many queries (N, d) return, see `is_recalled`."""
    return int(is_recalled(memory, queries=queries, coldness=coldness).sum())


def guarantees(patterns: torch.Tensor, *, beta: float, radius: float) -> dict[str, Any]:
    """What is promised of a memory (N, d) within `radius` of each pattern x_i, M the largest norm.

    error: ‖f(ξ) − x_i‖ ≤ 2M(N − 1)e^{−β(Δ_i − 2M·radius)}, Δ_i the separation of the pattern.
    slope: ‖∂f/∂ξ‖₂ ≤ 2βNM²(N − 1)e^{…}. stored: a pattern with at least this separation has a fixed
    point within `ball` of it [ramsauer2020hopfield, Theorems 3 to 5]. sharp: the slope again, our
    own: ∂f/∂ξ = β Cov_p(x), and a covariance is at most the second moment about x_i,
    Σ_j p_j‖x_j − x_i‖² ≤ 4M²(N − 1)e^{…}.
    """
    count = len(patterns)
    norm = float(patterns.norm(dim=-1).max())
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

    One entry a pattern. error: ‖f(ξ) − x_i‖ after one step, summed over competitors, which loses no
    digits far below the rounding of x_i; slope: largest eigenvalue of the update's Jacobian.
    distance, radius: how far retrieval ends from patterns with a promised fixed point, and may.
    """
    rng = numpy_generator(seed)
    cases: list[dict[str, torch.Tensor]] = []
    for _ in range(memories):
        size = int(rng.integers(2, 20))
        width = int(rng.integers(2, 40))
        beta = float(np.exp(rng.uniform(-2, 1.5)))
        radius = float(rng.uniform(0, 0.6))
        patterns = torch.as_tensor(rng.standard_normal((size, width)))
        aside = torch.as_tensor(rng.standard_normal((size, width)))
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
    draw = numpy_generator(seed).standard_normal
    centres = draw((draws, clusters, 1, dim))
    patterns = (centres + 0.5 * draw((draws, clusters, members, dim))).reshape(draws, -1, dim)
    return torch.as_tensor(patterns - patterns.mean(1, keepdims=True))


def shares_of_kinds(patterns: torch.Tensor, *, factors: np.ndarray) -> np.ndarray:
    """Where patterns end: shares (temperatures, 3, draws) of single, metastable, average states.

    `patterns` (draws, N, d), each memory at `factors` (temperatures,) times the β at which its
    own mean becomes unstable. Every stored pattern is a start.
    """
    top = torch.linalg.eigvalsh(jacobian(patterns, states=torch.zeros_like(patterns[:, :1])))
    # β in front of every score is the same as a memory whose vectors are √β times as long.
    unit = top[..., -1:].rsqrt()
    shares = []
    for factor in factors:
        memory = math.sqrt(factor) * unit * patterns
        ends = retrieve(memory, queries=memory, beta=1.0, tolerance=1e-7, max_steps=2000)
        entries = effective_entries(ends.attention).numpy()
        single = entries == 1
        average = entries > patterns.shape[1] / 2
        shares.append([kind.mean(-1) for kind in (single, ~single & ~average, average)])
    return np.array(shares)


class ImageSet(NamedTuple):
    """One hundred images: "faces", "other cuts" of photographs, or the `number`th of "digits"."""

    kind: str
    number: int = 1


IMAGE_SETS = {"faces": ImageSet("faces"), "other cuts": ImageSet("other cuts")} | {
    f"digits {number}": ImageSet("digits", number) for number in range(1, 13)
}


def image_set(name: str) -> tuple[torch.Tensor, tuple[int, int]]:
    """One of the IMAGE_SETS: one hundred images as rows, −1 black and 1 white, and their shape.

    The other cuts are of the same photographs and show no face; the sets of digits are disjoint.
    """
    kind, number = IMAGE_SETS[name]
    if kind == "faces":
        return torch.as_tensor(images.faces()), images.FACE_SHAPE
    if kind == "other cuts":
        from skimage.data import lfw_subset

        cuts = 2.0 * lfw_subset()[100:].reshape(100, -1).astype(np.float64) - 1.0
        return torch.as_tensor(cuts), images.FACE_SHAPE
    place = 100 * (number - 1)
    order = numpy_generator(7000).permutation(1797)[place : place + 100]
    return torch.as_tensor(images.digits()[order]), images.DIGIT_SHAPE


@stored(
    "settings_A19",
    parameter_product(data=IMAGE_SETS, half=("lower", "upper", "random"), centring=INVARIANT),
    seconds=0.2,
    within={"value": 0.021, "low": 0.021, "high": 0.021},
)
def settings_A19(data: str, half: str, centring: str) -> Rows:
    """How many more of a hundred images return if all have one length, half of each hidden.

    At β⟨‖x‖²⟩/d = 1, as a fraction, with Student's interval of the differences image by image.
    """
    rows, shape = image_set(data)
    seen = visible_half(half, shape=shape)
    returned = []
    for equal_norm in (True, False):
        memory, queries = prepare_faces(
            rows, seen=seen, centring=centring, equal_norm=equal_norm, scaled_query=True
        )
        returned.append(is_recalled(memory, queries=queries, coldness=1.0).double().numpy())
    return mean_rows(returned[0] - returned[1])


@stored(
    "faces_hidden",
    parameter_product(
        half=HALVES,
        hidden=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        centring=INVARIANT,
        norm=("own", "equal"),
    ),
    seconds=0.1,
    within={"recalled": 1.1},
)
def faces_hidden(half: str, hidden: float, centring: str, norm: str) -> Rows:
    """How many of the hundred faces return at β⟨‖x‖²⟩/d = 1 where more or less is hidden."""
    faces = torch.as_tensor(images.faces())
    memory, queries = prepare_faces(
        faces,
        seen=visible_half(half, hidden=hidden),
        centring=centring,
        equal_norm=norm == "equal",
        scaled_query=True,
    )
    return [{"recalled": faces_recalled(memory, queries=queries, coldness=1.0)}]
