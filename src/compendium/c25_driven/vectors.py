"""Chapter 25: mean-field theories of driven vector spins, to second order and of Gaussian fields.

N spins of D components and length √D are redrawn at once from p(s_i) ∝ exp(β s_i·θ_i) in the local
fields θ_i = x_i + Σ_j J_ij s_j. The mean of a spin is φ(θ) = g(θ) θ, its covariance ∂φ/∂θ / β.
For D = 1 these are the Ising spins of `study`.

If spins at one time are independent, with covariances C_j, a field has the mean a_i and the
covariance Δ_i = Σ_j J_ij² C_j, a matrix (D, D): fluctuations along the mean of a neighbour are
smaller than across it. Theories of the mean at the next time are

- "naive": φ(a);
- "second order": φ(θ) with θ = a − ψ, where ∂φ/∂θ ψ = −½ Σ_ab Δ_ab ∂²φ/∂θ_a∂θ_b at θ;
- "isotropic": the same with Δ replaced by tr Δ/D times the unit matrix, for which ψ = β (tr Δ/D) m
  in any dimension, the Onsager term of Ising spins;
- "Gaussian": the average of φ over a normal field. The covariances are propagated, too;
- "Gaussian, of the mean": the same with covariances of spins in the field that gives them their
  mean.

Predicted for `vector_sizes`, before it was drawn: with independent couplings the squared error of
"Gaussian" falls as 1/N, with an exponent within 0.3 of −1, that of the naive theory and of the
second order does not, and with symmetric couplings none does. We also expected "Gaussian, of the
mean" not to fall; a trial with four systems of 64 spins showed no difference between the two.

The program of Bal's Spin-Model Transformers (github.com/mcbal/spin-model-transformers, commit
0984aaa, MIT license) has a correction of second order for spins with many components. Its functions
`_d2_m_d_alpha_2` and `_f` were run once, with NumPy in the place of JAX, on the systems of
`published_system`, with x such that the terms in `v` vanish; nothing of their code is here.
`published.txt` holds the first two entries of what `_f` adds to the field of each spin.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bookmaker.tables import Rows, read_columns, stored
from compendium.common.rows import parameter_product
from spinformer.core.special import alignment_over_kappa
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising import gaussian_couplings

VECTOR_THEORIES = ("naive", "isotropic", "second order", "Gaussian", "Gaussian, of the mean")
# Nodes of the Gaussian average along each axis.
_HERMITE = 16


class Response(NamedTuple):
    """The mean of a spin, φ = g(θ) θ, and its derivatives by the length θ of the field.

    Attributes
    ----------
    gain, gain_slope : ndarray
        g and g'.
    slope, curvature : ndarray
        f' and f'' of the length f = g θ of the mean.
    """

    gain: np.ndarray
    gain_slope: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def spin_response(size: np.ndarray, *, beta: float, dim: int) -> Response:
    """Response of a spin of `dim` components and length √dim in fields of the lengths `size`."""
    radius = math.sqrt(dim)
    kappa = beta * radius * size
    ratio = alignment_over_kappa(kappa, dim=dim)
    aligned = kappa * ratio
    steepness = 1 - aligned**2 - (dim - 1) * ratio
    safe = np.where(kappa > 1e-4, kappa, 1.0)
    # At weak fields A − κA' cancels, and its series takes over.
    bend = np.where(kappa > 1e-4, (steepness - ratio) / safe, -2 * kappa / (dim**2 * (dim + 2)))
    second = beta**2 * radius**3
    return Response(
        gain=beta * dim * ratio,
        gain_slope=second * bend,
        slope=beta * dim * steepness,
        curvature=second * (-2 * aligned * steepness - (dim - 1) * bend),
    )


def many_component_response(size: np.ndarray, *, beta: float, radius: float) -> Response:
    """Response β/(1 + γ), γ² = 1 + β²θ²/R², of a spin with many components and the length R."""
    root = np.sqrt(1 + (beta * size / radius) ** 2)
    rise = beta**2 * size / (radius**2 * root)
    return Response(
        gain=beta / (1 + root),
        gain_slope=-beta * rise / (1 + root) ** 2,
        slope=beta / ((1 + root) * root),
        curvature=-beta * rise * (1 + 2 * root) / ((1 + root) * root) ** 2,
    )


def _directions(field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (...) and unit vectors (..., D) of `field` (..., D), any direction where it is 0."""
    size = np.linalg.norm(field, axis=-1)
    axis = field / np.where(size > 0, size, 1.0)[..., None]
    return size, axis


def spin_mean(field: np.ndarray, *, beta: float) -> np.ndarray:
    """Means (..., D) of spins in fields (..., D)."""
    size = np.linalg.norm(field, axis=-1)
    return spin_response(size, beta=beta, dim=field.shape[-1]).gain[..., None] * field


def spin_covariance(field: np.ndarray, *, beta: float) -> np.ndarray:
    """Covariances (..., D, D) of spins in fields (..., D): f'/β along the field, g/β across."""
    size, axis = _directions(field)
    response = spin_response(size, beta=beta, dim=field.shape[-1])
    along = (response.slope - response.gain)[..., None, None] * axis[..., :, None]
    eye = np.eye(field.shape[-1])
    return (response.gain[..., None, None] * eye + along * axis[..., None, :]) / beta


def reaction(
    field: np.ndarray, spread: np.ndarray, response: Response, *, trace: np.ndarray | None = None
) -> np.ndarray:
    """The field ψ (N, D) that spins in fluctuating fields are short of, to second order.

    ∂φ/∂θ ψ = −½ Σ_ab Δ_ab ∂²φ/∂θ_a∂θ_b at the `field` (N, D), Δ the `spread` (N, D, D), whose
    `trace` (N,) may be given.
    """
    _, axis = _directions(field)
    across = (spread @ axis[..., None])[..., 0]
    along = (across * axis).sum(-1)
    if trace is None:
        trace = np.trace(spread, axis1=-2, axis2=-1)
    length = 0.5 * (
        (response.curvature - 3 * response.gain_slope) * along + response.gain_slope * trace
    )
    change = response.gain_slope[..., None] * across + length[..., None] * axis
    parallel = (change * axis).sum(-1)
    transverse = change - parallel[..., None] * axis
    ahead = (parallel / response.slope)[..., None] * axis
    return -(transverse / response.gain[..., None] + ahead)


def _reacting_field(mean: np.ndarray, spread: np.ndarray, *, beta: float) -> np.ndarray:
    """θ = a − ψ(θ), by damped iteration; strong reactions need the smaller steps."""
    for step in (0.3, 0.08, 0.02):
        field = mean
        for _ in range(round(150 / step)):
            size = np.linalg.norm(field, axis=-1)
            response = spin_response(size, beta=beta, dim=field.shape[-1])
            missing = mean - reaction(field, spread, response) - field
            field = field + step * missing
            if np.abs(missing).max() < 1e-12:
                return field
    raise ValueError(
        f"couplings must be so weak that the reaction converges, off by {np.abs(missing).max():.1e}"
    )


def _gaussian_moments(
    mean: np.ndarray, spread: np.ndarray, *, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means (N, D) and covariances (N, D, D) of spins in normal fields."""
    dim = mean.shape[-1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(_HERMITE)
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    weight = np.stack(np.meshgrid(*[weights / weights.sum()] * dim, indexing="ij"), axis=-1)
    weight = weight.reshape(-1, dim).prod(axis=-1)
    values, vectors = np.linalg.eigh(spread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    field = mean[:, None] + np.einsum("iab,kb->ika", root, grid)
    means = spin_mean(field, beta=beta)
    moment = spin_covariance(field, beta=beta) + means[..., :, None] * means[..., None, :]
    mean = np.einsum("k,ika->ia", weight, means)
    covariance = np.einsum("k,ikab->iab", weight, moment) - mean[..., :, None] * mean[..., None, :]
    return mean, covariance


def field_of_mean(mean: np.ndarray, *, beta: float) -> np.ndarray:
    """The fields (..., D) in which spins have the means (..., D), by halving."""
    length, axis = _directions(mean)
    dim = mean.shape[-1]
    low = np.zeros_like(length)
    high = np.full_like(length, 60.0 / beta)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = spin_response(middle, beta=beta, dim=dim).gain * middle < length
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return low[..., None] * axis


def vector_mean_field(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, start: np.ndarray, theory: str
) -> np.ndarray:
    """Means (T + 1, N, D) under the `drive` (T, N, D), from independent spins in fields `start`."""
    mean = spin_mean(start, beta=beta)
    covariance = spin_covariance(start, beta=beta)
    dim = start.shape[-1]
    path = [mean]
    for x in drive:
        field = x + couplings @ mean
        spread = np.einsum("ij,jab->iab", couplings**2, covariance)
        if theory.startswith("Gaussian"):
            mean, covariance = _gaussian_moments(field, spread, beta=beta)
            if theory == "Gaussian, of the mean":
                covariance = spin_covariance(field_of_mean(mean, beta=beta), beta=beta)
        else:
            if theory == "isotropic":
                trace = np.trace(spread, axis1=-2, axis2=-1)
                spread = (trace / dim)[:, None, None] * np.eye(dim)
            if theory != "naive":
                field = _reacting_field(field, spread, beta=beta)
            mean = spin_mean(field, beta=beta)
            covariance = spin_covariance(field, beta=beta)
        path.append(mean)
    return np.array(path)


def sphere_nodes(dim: int, *, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (M, dim) of length √dim and weights (M,) of averages over the sphere, dim 1 to 3.

    Exact for polynomials of a degree below `count`.
    """
    if dim == 1:
        return np.array([[1.0], [-1.0]]), np.array([0.5, 0.5])
    angle = 2 * np.pi * np.arange(count) / count
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    if dim == 2:
        return math.sqrt(2) * circle, np.full(count, 1 / count)
    height, weight = np.polynomial.legendre.leggauss((count + 1) // 2)
    around = np.sqrt(1 - height**2)[:, None, None] * circle
    level = np.broadcast_to(height[:, None, None], (len(height), count, 1))
    nodes = math.sqrt(3) * np.concatenate([around, level], axis=-1)
    return nodes.reshape(-1, 3), np.repeat(weight / 2 / count, count)


def exact_vector_means(
    couplings: np.ndarray, *, drive: np.ndarray, beta: float, start: np.ndarray, count: int
) -> np.ndarray:
    """The same exactly, by quadrature with `sphere_nodes` over the joint states of 2 or 3 spins."""
    size, dim = start.shape
    nodes, weights = sphere_nodes(dim, count=count)
    places = np.indices((len(nodes),) * size).reshape(size, -1)
    states = nodes[places]

    def distribution(fields: np.ndarray) -> np.ndarray:
        log = beta * fields @ nodes.T
        density = weights * np.exp(log - log.max(axis=-1, keepdims=True))
        return density / density.sum(axis=-1, keepdims=True)

    single = distribution(start)
    joint = np.prod([single[i][places[i]] for i in range(size)], axis=0)
    means = [np.einsum("s,isa->ia", joint, states)]
    for x in drive:
        fields = x[:, None] + np.einsum("ij,jsa->isa", couplings, states)
        left = joint[:, None]
        for i in range(size - 1):
            left = (left[:, :, None] * distribution(fields[i])[:, None]).reshape(len(joint), -1)
        joint = (left.T @ distribution(fields[-1])).ravel()
        means.append(np.einsum("s,isa->ia", joint, states))
    return np.array(means)


def weak_coupling_errors(
    size: int, *, dim: int, strengths: np.ndarray, beta: float, steps: int, count: int, seed: int
) -> dict[str, np.ndarray]:
    """Largest error of the means under a random drive, for every theory by strength."""
    rng = np.random.default_rng(seed)
    drive = 0.5 * rng.standard_normal((steps, size, dim))
    start = rng.standard_normal((size, dim))
    couplings = gaussian_couplings(size, seed=seed)
    errors: dict[str, list[float]] = {theory: [] for theory in VECTOR_THEORIES}
    for strength in strengths.tolist():
        run: dict[str, Any] = {"drive": drive, "beta": beta, "start": start}
        exact = exact_vector_means(strength * couplings, **run, count=count)
        for theory in VECTOR_THEORIES:
            path = vector_mean_field(strength * couplings, **run, theory=theory)
            errors[theory].append(float(np.abs(path - exact).max()))
    return {theory: np.array(values) for theory, values in errors.items()}


def simulate_planar_spins(
    couplings: np.ndarray,
    *,
    drive: np.ndarray,
    beta: float,
    replicas: int,
    seed: np.random.Generator,
) -> np.ndarray:
    """Mean spins (N, 2) after the last step of `drive` (T, N, 2), from free spins."""
    angle = seed.uniform(-np.pi, np.pi, (replicas, len(couplings)))
    for x in drive:
        spins = math.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)])
        along, across = x.T[:, None] + spins @ couplings.T
        kappa = beta * math.sqrt(2) * np.hypot(along, across)
        angle = seed.vonmises(np.arctan2(across, along), kappa)
    return math.sqrt(2) * np.stack([np.cos(angle).mean(0), np.sin(angle).mean(0)], axis=-1)


def vector_squared_errors(
    size: int, *, symmetry: float, beta: float, steps: int, systems: int, replicas: int, seed: int
) -> dict[str, Estimate]:
    """Mean square error a component of every theory, as `study.squared_errors`, for D = 2."""
    squared: dict[str, list[float]] = {theory: [] for theory in VECTOR_THEORIES}
    for copy in range(systems):
        number = seed + 100 * copy + size
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=number)
        fields = 0.5 * np.random.default_rng(number).standard_normal((size, 2))
        drive = np.broadcast_to(fields, (steps, size, 2))
        run: dict[str, Any] = {"drive": drive, "beta": beta}
        halves = [
            simulate_planar_spins(couplings, **run, replicas=replicas // 2, seed=rng)
            for rng in np.random.default_rng(copy).spawn(2)
        ]
        for theory in VECTOR_THEORIES:
            end = vector_mean_field(couplings, **run, start=np.zeros((size, 2)), theory=theory)[-1]
            squared[theory].append(float(np.mean((end - halves[0]) * (end - halves[1]))))
    return {theory: mean_estimate(values) for theory, values in squared.items()}


@stored(
    "vector_sizes",
    parameter_product(symmetry=(0.0, 1.0), size=(16, 32, 64, 128)),
    seconds=8.0,
    rtol=0.2,
    within={"value": 2e-4, "error": 2e-4},
)
def vector_sizes(symmetry: float, size: int, systems: int | None = None) -> Rows:
    """A row for each theory: its squared error in systems of this size, D = 2, as `sizes`."""
    number = systems or max(4, min(16, 512 // size))
    found = vector_squared_errors(
        size, symmetry=symmetry, beta=1.5, steps=8, systems=number, replicas=4000, seed=0
    )
    return [
        {"theory": name, "value": float(one.value), "error": float(one.error)}
        for name, one in found.items()
    ]


class PublishedSystem(NamedTuple):
    """Means before and after a step (N, D), in units in which R is their longest; couplings."""

    before: np.ndarray
    after: np.ndarray
    couplings: np.ndarray
    radius: float


def published_system(data: int, *, dim: int) -> PublishedSystem:
    """Three spins with R² = D/2 − 1 and random means of different lengths, by the seed `data`."""
    rng = np.random.default_rng(data)
    radius = math.sqrt(dim / 2 - 1)
    before, after = rng.standard_normal((2, 3, dim))
    before *= radius * np.array([[0.2], [0.5], [0.8]]) / np.linalg.norm(before, axis=1)[:, None]
    after *= radius * 0.5 / np.linalg.norm(after, axis=1)[:, None]
    couplings = rng.standard_normal((3, 3)) / 2
    np.fill_diagonal(couplings, 0.0)
    return PublishedSystem(before, after, couplings, radius)


def published_correction(system: PublishedSystem, *, beta: float, own: bool) -> np.ndarray:
    """The published correction −ψ (N, D) of the fields, by `reaction` for many components.

    With `own`, as in the published program, the covariance of a neighbour is taken with the γ of
    the spin that feels it, and otherwise with the neighbour's own.
    """
    before, after, couplings, radius = system

    def field_of(mean: np.ndarray) -> np.ndarray:
        squares = (mean**2).sum(-1, keepdims=True)
        return 2 * radius**2 / (beta * (radius**2 - squares)) * mean

    square = (before**2).sum(-1)
    root = (radius**2 + square) / (radius**2 - square)
    felt = np.broadcast_to(root[:, None] if own else root, couplings.shape)
    outer = before[:, :, None] * before[:, None, :]
    eye = np.eye(before.shape[1])
    spread = np.einsum("ij,ab->iab", couplings**2 / (1 + felt), eye)
    spread -= np.einsum("ij,jab->iab", couplings**2 / (radius**2 * felt), outer)
    field = field_of(after)
    response = many_component_response(np.linalg.norm(field, axis=-1), beta=beta, radius=radius)
    return -reaction(field, spread, response, trace=couplings**2 @ (radius**2 - square))


def published_corrections() -> dict[str, np.ndarray]:
    """What the published program returned, by columns; β = 1."""
    return read_columns(Path(__file__).parent / "published.txt")
