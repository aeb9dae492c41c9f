"""How much the continuous memory holds: the other patterns as a random energy model.

N = e^{αd} random patterns x_j of d components, mean square 1. A state ξ of the same length has the
overlap m = x_i·ξ/d with the pattern it should find, which scores βdm. The other scores are βdu_j
with u_j = x_j·ξ/d, independent draws whose density falls as e^{−d I(u)}: the energy levels of
Derrida's model [derrida1981random; lucibello2024exponential]. Their sum Σ_j e^{βdu_j} is e^{dφ},

    φ = α + ψ(β),  ψ(β) = max_u [βu − I(u)],  if β < β_f(α)   (many patterns share it),
    φ = βu_f(α),   I(u_f) = α,               if β ≥ β_f(α)   (frozen: the largest few hold it),

with β_f = I′(u_f). One step finds the pattern if βm > φ, and the error left is e^{−d(βm − φ)}.
At finite d, `retrieval_fold` corrects what d → ∞ neglects.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from spinformer.core.records import record
from spinformer.core.special import log_sphere_integral, mean_alignment

# Uniform on the sphere of radius √d, independent unit normals, independent fair coins ±1.
ENSEMBLES = ("spherical", "gaussian", "binary")
# Where ln 2 is the load at which binary patterns are all the states there are.
_ALL = math.log(2.0)


def score_rate(overlap: float, *, ensemble: str = "spherical") -> float:
    """I(u): P(x·ξ/d ≈ u) ~ e^{−dI(u)} of an unrelated pattern, for u in [−1, 1) (any if Gaussian).

    −½ ln(1 − u²) on the sphere, u²/2 for Gaussian patterns, ln 2 minus the entropy of a coin of
    mean u for binary ones.
    """
    if ensemble == "gaussian":
        return 0.5 * overlap**2
    u = abs(overlap)
    if ensemble == "binary":
        return 0.5 * ((1 + u) * math.log1p(u) + ((1 - u) * math.log1p(-u) if u < 1.0 else 0.0))
    return -0.5 * math.log1p(-(u**2)) if u < 1.0 else math.inf


def score_cumulant(beta: float, *, ensemble: str = "spherical") -> float:
    """ψ(β) = max_u [βu − I(u)]: (1/d) ln of the mean of e^{βx·ξ} over an unrelated pattern."""
    u = _tilted(beta, ensemble)
    return beta * u - score_rate(u, ensemble=ensemble)


def largest_overlap(load: float, *, ensemble: str = "spherical") -> float:
    """u_f(α), I(u_f) = α: the largest overlap that e^{αd} unrelated patterns have with a state.

    √(1 − e^{−2α}), √(2α), and for binary patterns a root (1 from α = ln 2).
    """
    if ensemble == "spherical":
        return math.sqrt(-math.expm1(-2.0 * load))
    if ensemble == "gaussian":
        return math.sqrt(2.0 * load)
    if load >= _ALL:
        return 1.0
    return float(brentq(lambda u: score_rate(u, ensemble="binary") - load, 0.0, 1.0, xtol=1e-14))


def freezing_beta(load: float, *, ensemble: str = "spherical") -> float:
    """β_f(α): above it the sum over the others is frozen, held by the largest few of them."""
    u = largest_overlap(load, ensemble=ensemble)
    if ensemble == "gaussian":
        return u
    if ensemble == "binary":
        return math.atanh(u) if u < 1.0 else math.inf
    # 1 − u² = e^{−2α} here: its difference would round to zero at loads above 18.
    return u * math.exp(2.0 * load) if load < 350.0 else math.inf


def noise_exponent(load: float, *, beta: float, ensemble: str = "spherical") -> float:
    """φ(α, β) = lim (1/d) ln Σ_j e^{βx_j·ξ} over e^{αd} unrelated patterns."""
    if beta < freezing_beta(load, ensemble=ensemble):
        return load + score_cumulant(beta, ensemble=ensemble)
    return beta * largest_overlap(load, ensemble=ensemble)


def capacity(beta: float, *, overlap: float = 1.0, ensemble: str = "spherical") -> float:
    """α₁: the largest load at which a state of this overlap m in (0, 1] finds its pattern.

    For a typical pattern. From φ(α₁, β) = βm: βm − ψ(β) while the others are not frozen there,
    that is while m exceeds the overlap ψ′(β) that they have with the state, and else I(m)
    [lucibello2024exponential]. At m = 1: β − ψ(β) on the sphere, without limit as β grows;
    β − β²/2 up to ½ for Gaussian patterns; β − ln cosh β up to ln 2 for binary ones.
    """
    if overlap > _tilted(beta, ensemble):
        return beta * overlap - score_cumulant(beta, ensemble=ensemble)
    return score_rate(overlap, ensemble=ensemble)


def capacity_of_all(beta: float, *, ensemble: str = "spherical") -> float:
    """α_c: the largest load at which all patterns are found, each from itself.

    On the sphere it is α₁. Of e^{αd} Gaussian patterns the shortest has ‖x‖² = ρd with
    (ρ − 1 − ln ρ)/2 = α and is found if α < ρκ, κ = β − β²/2 (½ from β = 1), so that
    α_c = 1/(2e) at most [lucibello2024exponential].
    """
    typical = capacity(beta, ensemble=ensemble)
    if ensemble == "spherical":
        return typical
    shortest = brentq(lambda r: r * (1.0 - 2.0 * typical) - 1.0 - math.log(r), 1e-9, 1.0)
    return float(shortest) * typical


@record
class RetrievalFold:
    """Where the state around a pattern ends at finite d.

    log_count: ln N there, for a typical pattern. overlap: its last overlap. spread: standard
    deviation over patterns of the ln N at which theirs ends.
    """

    log_count: float
    overlap: float
    spread: float


def one_step_log_count(dim: int, *, beta: float, ensemble: str = "spherical") -> float:
    """ln N at which one step from a pattern gives it the weight ½, d finite; not for Gaussian.

    ln of 1 + e^{βd}/G, G the exact mean of e^{βx·ξ}: the others are not frozen there.
    """
    if ensemble == "binary":
        gap = dim * (beta - math.log(math.cosh(beta)))
    else:
        gap = beta * dim - float(log_sphere_integral(beta * dim, dim=dim))
    return float(np.logaddexp(0.0, gap))


def retrieval_fold(dim: int, *, beta: float) -> RetrievalFold:
    """The number of spherical patterns up to which a pattern keeps a state of its own, d finite.

    The state is ξ = t·x_i plus little: its pattern holds the weight p, the others have the mean
    overlap A(t) with its direction, so t = p + (1 − p)A and ln(p/(1 − p)) = βdt − ln Σ. With the
    mean Σ = (N − 1)G(βdt) this gives ln(N − 1) as a function of t, whose maximum is the fold.
    The weighted mean of a finite number of others also has a part across ξ, of mean square
    dG(2κ)/(NG(κ)²), κ = βdt, which feeds back: it adds β(1 − p) times that to ln Σ. The
    spread is that of ln Σ from pattern to pattern.
    """

    def place(t: float) -> tuple[float, float]:
        kappa = beta * dim * t
        mean = float(mean_alignment(kappa, dim=dim))
        weight = (t - mean) / (1.0 - mean)
        if not 0.0 < weight < 1.0:
            return -math.inf, weight
        log_sum = kappa - math.log(weight / (1.0 - weight))
        return log_sum - float(log_sphere_integral(kappa, dim=dim)), weight

    # Between this and 1 there is one maximum; below, a minimum, where the global average ends.
    grid = np.linspace(0.4, 1.0, 61)[:-1]
    start = float(grid[np.argmax([place(float(t))[0] for t in grid])])
    top = minimize_scalar(
        lambda t: -place(t)[0],
        bounds=(start - 0.01, min(start + 0.01, 1.0)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    overlap = float(top.x)
    log_sum, weight = place(overlap)
    kappa = beta * dim * overlap
    excess = math.exp(
        float(log_sphere_integral(2.0 * kappa, dim=dim) - 2.0 * log_sphere_integral(kappa, dim=dim))
    )
    across = beta * (1.0 - weight) * dim * excess / math.exp(log_sum)
    return RetrievalFold(
        log_count=float(np.logaddexp(0.0, log_sum - across)),
        overlap=overlap,
        spread=math.sqrt((excess - 1.0) / math.exp(log_sum)),
    )


def kept_share(count: int, *, dim: int, beta: float) -> float:
    """Share of N spherical patterns that keep a state of their own."""
    fold = retrieval_fold(dim, beta=beta)
    return float(ndtr((fold.log_count - math.log(count)) / fold.spread))


def _tilted(beta: float, ensemble: str) -> float:
    """ψ′(β): the overlap of the patterns that hold the sum while it is not frozen."""
    if ensemble == "gaussian":
        return beta
    if ensemble == "binary":
        return math.tanh(beta)
    return 2.0 * beta / (1.0 + math.sqrt(1.0 + 4.0 * beta**2))


def random_pattern_overlap(count: int, *, dim: int, beta: float) -> float:
    """Overlap m = x_iᵀξ*/d of the fixed point reached from one of N random patterns, theory.

    For N = `count` independent patterns of d = `dim` components of unit variance and norm √d.
    At ξ = m x_i + (rest) the pattern itself scores βdm, the others are Gaussian of variance β²dm²,
    and weighted by e^{score} their mean is βξ (annealed: right while β√d stays below √(2 log N)).
    So p = 1/(1 + (N − 1) exp(β²dm²/2 − βdm)) and m = p/(1 − (1 − p)β), iterated from m = 1; our
    own estimate, for β < 1. The pattern is lost where the iteration falls to m ≈ 0.
    """
    overlap = 1.0
    for _ in range(2_000):
        exponent = 0.5 * beta**2 * dim * overlap**2 - beta * dim * overlap
        weight = 1.0 / (1.0 + (count - 1) * float(np.exp(exponent)))
        before, overlap = overlap, weight / (1.0 - (1.0 - weight) * beta)
        if overlap == before:
            break
    return overlap
