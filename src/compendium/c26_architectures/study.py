"""Architectures as approximations of the magnetization of one system of vector spins.

The fields are tokens, N vectors of D components and length √D, each the sum of a part that belongs
to its position and a part that belongs to the text. The couplings are attention weights, J =
g softmax(γ Q Kᵀ/√D) without diagonal, and a pair of spins is coupled by B = J + Jᵀ. In units of √D
one step of the naive mean field, from free spins, is

    m_i = A(h_i + Σ_j B_ij A(h_j)),    A(θ) = A_D(D|θ|) θ/|θ|,    β = 1,

with the Langevin function A_D of D components. An *architecture* puts other couplings in the place
of B, and other equations in the place of this step. Its error is its distance from the
magnetization that Monte Carlo finds, divided by the distance of the spins without couplings, A(h).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.core.random import numpy_generator
from spinformer.core.special import alignment_over_kappa
from spinformer.spins.monte_carlo import sample_vector_spins
from spinformer.spins.solvers import solve_saddle_point

TEXTS = 200  # texts over which the fixed couplings are averaged
# Couplings that an architecture may put in the place of those of the spins.
COUPLINGS = ("Fourier", "uniform", "fixed", "linear", "rows", "softmax")
# What is used in the place of attention, and attention as it is used.
MIXERS = ("uniform", "fixed", "linear", "rows")
EQUATIONS = ("one step", "three steps", "fixed point", "TAP", "saddle", "corrected saddle")
_STRENGTHS = np.linspace(0.0, 3.0, 61)  # factors of the mixing among which the best is found
_DAMPED_STEPS = 100


class Setting(NamedTuple):
    """Choices that define a family of systems: see the head of this module.

    `position` is the fraction of the squared length of a token that belongs to its position.
    """

    tokens: int = 32
    dim: int = 16
    strength: float = 0.5
    gamma: float = 2.0
    position: float = 0.5


class System(NamedTuple):
    """Fields H (N, D), weights J/g (N, N), and what replaces J + Jᵀ, divided by g, by name."""

    fields: np.ndarray
    weights: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    pairs: dict[str, np.ndarray]


def _without_diagonal(weights: np.ndarray) -> np.ndarray:
    """Rows of sum one without the coupling of a token with itself."""
    weights = weights * (1.0 - np.eye(weights.shape[-1]))
    return weights / weights.sum(-1, keepdims=True)


def softmax_weights(scores: np.ndarray) -> np.ndarray:
    """Softmax of the rows of scores (..., N, N), zero on the diagonal."""
    return _without_diagonal(np.exp(scores - scores.max(-1, keepdims=True)))


def linear_weights(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Weights of linear attention: products of the features elu(x) + 1, rows of sum one."""

    def features(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0.0, x + 1.0, np.exp(np.minimum(x, 0.0)))

    return _without_diagonal(features(queries) @ np.swapaxes(features(keys), -1, -2))


def fourier_couplings(tokens: int) -> np.ndarray:
    """The real part of the discrete Fourier transform of N tokens, rows of squared sum about ½."""
    place = np.arange(tokens)
    mixing = np.cos(2.0 * np.pi * np.outer(place, place) / tokens) / np.sqrt(tokens)
    return mixing * (1.0 - np.eye(tokens))


def draw_system(setting: Setting, seed: int) -> System:
    """Draw positions, query and key weights, and the tokens of a text."""
    rng = numpy_generator(seed)
    shape = (setting.tokens, setting.dim)
    query = rng.normal(size=(setting.dim, setting.dim)) / np.sqrt(setting.dim)
    key = rng.normal(size=(setting.dim, setting.dim)) / np.sqrt(setting.dim)
    places = rng.normal(size=shape)
    contents = rng.normal(size=(TEXTS, *shape))
    texts = np.sqrt(setting.position) * places + np.sqrt(1.0 - setting.position) * contents
    texts *= np.sqrt(setting.dim) / np.linalg.norm(texts, axis=-1, keepdims=True)
    queries = texts @ query
    keys = texts @ key
    scores = setting.gamma * queries @ np.swapaxes(keys, -1, -2) / np.sqrt(setting.dim)
    weights = softmax_weights(scores)
    # The text itself takes no part in the average that is to replace its couplings.
    average = weights[1:].mean(axis=0)
    linear = linear_weights(queries[0], keys[0])
    uniform = _without_diagonal(np.ones((setting.tokens, setting.tokens)))
    pairs = {
        "Fourier": 2.0 * fourier_couplings(setting.tokens),
        "uniform": 2.0 * uniform,
        "fixed": average + average.T,
        "linear": linear + linear.T,
        "rows": 2.0 * weights[0],
        "softmax": weights[0] + weights[0].T,
    }
    return System(texts[0], weights[0], query, key, pairs)


def free_response(fields: np.ndarray) -> np.ndarray:
    """Mean of free spins of length one in the fields h (N, D), at β = 1: A_D(D|h|) h/|h|."""
    dim = fields.shape[-1]
    kappa = dim * np.linalg.norm(fields, axis=-1, keepdims=True)
    return dim * alignment_over_kappa(kappa, dim=dim) * fields


def mean_field_spins(
    fields: np.ndarray, pair: np.ndarray, *, steps: int, onsager: bool = False, damping: float = 0.0
) -> np.ndarray:
    """Steps of the mean field from free spins, with pair couplings B, by Onsager's term or not."""
    mean = free_response(fields)
    for _ in range(steps):
        field = fields + pair @ mean
        if onsager:
            field = field - (pair**2 @ (1.0 - (mean**2).sum(-1, keepdims=True))) * mean
        mean = damping * mean + (1.0 - damping) * free_response(field)
    return mean


def fixed_point_steps(fields: np.ndarray, pair: np.ndarray, *, change: float = 1e-3) -> int:
    """Number of steps without damping until no component of a mean spin moves by `change`."""
    mean = free_response(fields)
    for step in range(1, _DAMPED_STEPS + 1):
        new = free_response(fields + pair @ mean)
        if np.abs(new - mean).max() < change:
            return step
        mean = new
    return _DAMPED_STEPS


def solve_equation(fields: np.ndarray, pair: np.ndarray, equation: str) -> tuple[np.ndarray, float]:
    """The magnetization by one of `EQUATIONS`, and its number of multiplications.

    Counted are products of matrices, for couplings that are given: N²D for each step, and for each
    step of the saddle point the N³ of a Cholesky factorisation, of an inverse, and of a linear
    system, of N³/3, N³ and N³/3.
    """
    size, dim = fields.shape
    product = float(size**2 * dim)
    if equation in ("one step", "three steps"):
        steps = 1 if equation == "one step" else 3
        return mean_field_spins(fields, pair, steps=steps), steps * product
    if equation in ("fixed point", "TAP"):
        onsager = equation == "TAP"
        mean = mean_field_spins(fields, pair, steps=_DAMPED_STEPS, onsager=onsager, damping=0.5)
        steps = fixed_point_steps(fields, pair)
        return mean, steps * (product + onsager * size**2)
    found = solve_saddle_point(
        torch.tensor(0.5 * pair),
        fields=torch.tensor(fields * np.sqrt(dim)),
        beta=1.0,
        corrected=equation == "corrected saddle",
    )
    cost = int(found.saddle.steps) * 5.0 / 3.0 * size**3 + product
    return found.magnetization.numpy() / np.sqrt(dim), cost


def mixing_cost(couplings: str, *, tokens: int, dim: int) -> tuple[float, float]:
    """Multiplications (or additions, if there are none) to make couplings, and of one mixing.

    Queries, keys and values are given. Sums over tokens need N D additions, a fast Fourier
    transform N D log₂ N multiplications, and linear attention mixes by sums over features.
    """
    square = float(tokens**2 * dim)
    return {
        "Fourier": (0.0, tokens * dim * np.log2(tokens)),
        "uniform": (0.0, float(tokens * dim)),
        "fixed": (0.0, square),
        "linear": (0.0, 2.0 * tokens * dim**2),
    }.get(couplings, (square, square))


class Reference(NamedTuple):
    """Magnetization by Monte Carlo in units of √D, its squared error, the free spins, and C."""

    mean: np.ndarray
    noise: float
    free: np.ndarray
    correlations: np.ndarray

    def relative_error(self, mean: np.ndarray) -> float:
        """Distance of magnetizations from those of Monte Carlo; 1 is that of free spins.

        The squared error of Monte Carlo, which both distances contain, is subtracted from both.
        """
        missed = ((mean - self.mean) ** 2).sum() - self.noise
        ignored = ((self.free - self.mean) ** 2).sum() - self.noise
        return float(np.sqrt(max(missed, 0.0) / ignored))


def sample_reference(
    fields: np.ndarray, couplings: np.ndarray, *, seed: int, sweeps: int
) -> Reference:
    """Sample a system with fields H (N, D) of spins of length √D and couplings J, at β = 1."""
    dim = fields.shape[1]
    found = sample_vector_spins(
        couplings, fields=fields, beta=1.0, sweeps=sweeps, burn_in=128, seed=seed
    )
    return Reference(
        mean=found.magnetization.value / np.sqrt(dim),
        noise=float((found.magnetization.error**2).sum() / dim),
        free=free_response(fields / np.sqrt(dim)),
        correlations=found.correlations.value,
    )


def best_strength_error(reference: Reference, fields: np.ndarray, pair: np.ndarray) -> float:
    """Error of one step with the strength of mixing that suits this very system best."""
    return min(
        reference.relative_error(mean_field_spins(fields, factor * pair, steps=1))
        for factor in _STRENGTHS
    )


def coupling_response(system: System, setting: Setting, correlations: np.ndarray) -> np.ndarray:
    """The second term of the response, Σ ⟨σ_k·σ_l⟩ ∂J_kl/∂H_i, in units of √D, (N, D)."""
    fields = torch.tensor(system.fields, requires_grad=True)
    scale = setting.gamma / np.sqrt(setting.dim)
    scores = (
        scale * (fields @ torch.tensor(system.queries)) @ (fields @ torch.tensor(system.keys)).T
    )
    never = torch.eye(setting.tokens, dtype=torch.bool)
    weights: Tensor = scores.masked_fill(never, -torch.inf).softmax(-1)
    energy = setting.strength * setting.dim * (torch.tensor(correlations) * weights).sum()
    energy.backward()
    assert fields.grad is not None
    return fields.grad.numpy() / np.sqrt(setting.dim)


def architecture_errors(setting: Setting, seed: int, *, sweeps: int) -> Rows:
    """Errors of all couplings and equations of one system, in the magnetization of *this* system.

    `error` has the strength g of the spins, and `best`, of one step, the strength of mixing that
    suits it best.
    `whole` is the error in the whole response, with the term of the couplings, in the same unit;
    `cost` the multiplications divided by those of one step of attention. The last row is Monte
    Carlo itself.
    """
    system = draw_system(setting, seed)
    size, dim = system.fields.shape
    couplings = setting.strength * system.weights
    reference = sample_reference(system.fields, couplings, seed=seed, sweeps=sweeps)
    response = coupling_response(system, setting, reference.correlations)
    whole = reference._replace(mean=reference.mean + response)
    fields = system.fields / np.sqrt(dim)
    attention = sum(mixing_cost("rows", tokens=size, dim=dim))
    rows: Rows = []
    for name in COUPLINGS:
        pair = setting.strength * system.pairs[name]
        made, mixed = mixing_cost(name, tokens=size, dim=dim)
        # The theories that need an energy are for the couplings of the spins.
        for equation in EQUATIONS if name == "softmax" else EQUATIONS[:3]:
            mean, solved = solve_equation(fields, pair, equation)
            error = reference.relative_error(mean)
            best = error
            if equation == "one step":
                best = best_strength_error(reference, fields, pair)
            rows.append(
                {
                    "couplings": name,
                    "equation": equation,
                    "error": error,
                    "best": best,
                    "whole": whole.relative_error(mean),
                    "cost": (made + solved * mixed / (size**2 * dim)) / attention,
                }
            )
    last = {"couplings": "softmax", "equation": "Monte Carlo", "error": 0.0, "best": 0.0}
    return [*rows, last | {"whole": whole.relative_error(reference.mean), "cost": 0.0}]


def own_errors(setting: Setting, seed: int, *, sweeps: int) -> Rows:
    """Errors of one step and of the fixed point of each mixer in the spin system of its *own*.

    That system has the symmetric part of the mixer's couplings, the only one an energy has.
    """
    system = draw_system(setting, seed)
    fields = system.fields / np.sqrt(setting.dim)
    rows = []
    for name in COUPLINGS:
        pair = setting.strength * system.pairs[name]
        reference = sample_reference(system.fields, 0.5 * pair, seed=seed, sweeps=sweeps)
        for equation in ("one step", "fixed point"):
            error = reference.relative_error(solve_equation(fields, pair, equation)[0])
            rows.append({"couplings": name, "equation": equation, "error": error})
    return rows


DRAWS = 12
STRENGTHS = (0.25, 0.5, 1.0, 2.0)
SHARPNESSES = (1.0, 4.0)
_FAMILIES = parameter_product(gamma=SHARPNESSES, strength=STRENGTHS)
_WITHIN = {"error": 0.05, "best": 0.05, "whole": 0.05, "cost": 1.0}


@stored(
    "errors",
    [family | {"seed": seed} for family in _FAMILIES for seed in range(DRAWS)],
    seconds=2.0,
    within=_WITHIN,
)
def errors_table(gamma: float, strength: float, seed: int) -> Rows:
    """Errors of all architectures in one spin system with the couplings of attention."""
    setting = Setting(gamma=gamma, strength=strength)
    return architecture_errors(setting, seed, sweeps=1024)


@stored(
    "own",
    [{"strength": strength, "seed": seed} for strength in STRENGTHS for seed in range(DRAWS)],
    seconds=2.0,
    within=_WITHIN,
)
def own_table(strength: float, seed: int) -> Rows:
    """Errors of the mixers in the spin systems of their own."""
    return own_errors(Setting(gamma=4.0, strength=strength), seed, sweeps=512)


# An architecture approximates a magnetization if it leaves at most so much of the error that
# ignoring the couplings makes.
LEFT = 0.5
_CHOICES = parameter_product(
    tokens=(16, 64), dim=(8, 32), gamma=(1.0, 4.0), position=(0.0, 0.5), strength=(0.25, 1.0)
)
_SYSTEMS = 5
_CHANGES = {"value": 0.1, "low": 0.1, "high": 0.1}  # what another processor may sample


@stored("settings_B20", numbered(_CHOICES, step=_SYSTEMS), seconds=6.0, within=_CHANGES)
def settings_b20(data: int, **choices: float) -> Rows:
    """What a mixer may leave minus what the worst of four leaves, in one step or at a fixed point.

    One step has the strength of mixing that suits each system best, the fixed point that of the
    spins.
    """
    setting = Setting(**choices)  # type: ignore[arg-type]
    one_step = []
    settled = []
    for seed in range(1000 + data, 1000 + data + _SYSTEMS):
        system = draw_system(setting, seed)
        reference = sample_reference(
            system.fields, setting.strength * system.weights, seed=seed, sweeps=512
        )
        fields = system.fields / np.sqrt(setting.dim)
        pairs = [setting.strength * system.pairs[name] for name in MIXERS]
        worst = max(best_strength_error(reference, fields, pair) for pair in pairs)
        one_step.append(LEFT - worst)
        means = [solve_equation(fields, pair, "fixed point")[0] for pair in pairs]
        settled.append(LEFT - max(reference.relative_error(mean) for mean in means))
    return [
        {"equation": equation, **row}
        for equation, samples in (("one step", one_step), ("fixed point", settled))
        for row in mean_rows(np.array(samples))
    ]


def gain_by_iteration(data: int, **choices: float) -> Rows:
    """Error of one step minus that of the fixed point, with the couplings of the spins."""
    setting = Setting(**choices)  # type: ignore[arg-type]
    samples = []
    for seed in range(2000 + data, 2000 + data + _SYSTEMS):
        system = draw_system(setting, seed)
        reference = sample_reference(
            system.fields, setting.strength * system.weights, seed=seed, sweeps=512
        )
        fields = system.fields / np.sqrt(setting.dim)
        pair = setting.strength * system.pairs["softmax"]
        errors = [
            reference.relative_error(solve_equation(fields, pair, equation)[0])
            for equation in ("one step", "fixed point")
        ]
        samples.append(errors[0] - errors[1])
    return mean_rows(np.array(samples))


# With three tokens, too, where a spin feels its own echo in few neighbours.
_FEW = parameter_product(
    tokens=(3, 16, 64), dim=(8, 32), gamma=(1.0, 4.0), position=(0.0, 0.5), strength=(0.25, 1.0)
)
settings_b20b = stored(
    "settings_B20b", numbered(_FEW, step=_SYSTEMS), seconds=6.0, within=_CHANGES
)(gain_by_iteration)

# On both sides of the values above, inside the region of the claim.
_FRESH = parameter_product(
    tokens=(8, 32), dim=(4, 64), gamma=(0.5, 16.0), position=(0.25,), strength=(0.1, 0.5, 2.0)
)
confirm_b20b = stored(
    "confirm_B20b",
    numbered(_FRESH, first=1001, step=_SYSTEMS),
    seconds=6.0,
    within=_CHANGES,
)(gain_by_iteration)
