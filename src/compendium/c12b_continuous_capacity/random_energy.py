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

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from spinformer.core.records import record
from spinformer.core.special import log_sphere_integral, mean_alignment

# Uniform on the sphere of radius √d, independent unit normals, independent fair coins ±1. Of each
# I(u), u ≥ 0, where P(x·ξ/d ≈ u) ~ e^{−dI(u)} of an unrelated pattern, and ψ′(β), the overlap of
# those that hold the sum while it is not frozen.
ENSEMBLES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "spherical": (
        lambda u: -0.5 * math.log1p(-(u**2)),
        lambda beta: 2.0 * beta / (1.0 + math.sqrt(1.0 + 4.0 * beta**2)),
    ),
    "gaussian": (lambda u: 0.5 * u**2, lambda beta: beta),
    "binary": (
        lambda u: 0.5 * float((1 + u) * math.log1p(u) + xlogy(1 - u, 1 - u)),
        math.tanh,
    ),
}


def capacity(beta: float, *, overlap: float = 1.0, ensemble: str = "spherical") -> float:
    """α₁: the largest load at which a state of this overlap m in (0, 1] finds its pattern.

    For a typical pattern. From φ(α₁, β) = βm: βm − ψ(β) while m exceeds the overlap ψ′(β) of the
    others, which are then not frozen, and else I(m) [lucibello2024exponential].
    """
    rate, tilted = ENSEMBLES[ensemble]
    u = tilted(beta)
    return beta * (overlap - u) + rate(u) if overlap > u else rate(overlap)


@record
class RetrievalFold:
    """ln N and overlap at which the state around a typical pattern ends, d finite.

    spread: standard deviation over patterns of the ln N at which theirs ends.
    """

    log_count: float
    overlap: float
    spread: float


def one_step_log_count(dim: int, *, beta: float, ensemble: str = "spherical") -> float:
    """ln N at which one step from a pattern gives it the weight ½, d finite; not for Gaussian.

    ln of 1 + e^{βd}/G, G the exact mean of e^{βx·ξ}: the others are not frozen there.
    """
    on_sphere = float(log_sphere_integral(beta * dim, dim=dim))
    mean = dim * math.log(math.cosh(beta)) if ensemble == "binary" else on_sphere
    return float(np.logaddexp(0.0, beta * dim - mean))


def retrieval_fold(dim: int, *, beta: float) -> RetrievalFold:
    """The number of spherical patterns up to which a pattern keeps a state of its own, d finite.

    The state is ξ = t·x_i plus little, t = p + (1 − p)A(t), ln(p/(1 − p)) = βdt − ln Σ, with the
    mean Σ = (N − 1)G(βdt) of the others: the fold is where ln(N − 1) is largest. The weighted mean
    of finitely many others also has a part across ξ, of mean square dG(2κ)/(NG(κ)²), κ = βdt,
    which adds β(1 − p) times that to ln Σ. The spread is that of ln Σ from pattern to pattern.
    """

    def log_mean(kappa: float) -> float:
        return float(log_sphere_integral(kappa, dim=dim))

    def place(t: float) -> tuple[float, float]:
        kappa = beta * dim * t
        mean = float(mean_alignment(kappa, dim=dim))
        weight = (t - mean) / (1.0 - mean)
        if not 0.0 < weight < 1.0:
            return -math.inf, weight
        return kappa - math.log(weight / (1.0 - weight)) - log_mean(kappa), weight

    # Between this and 1 there is one maximum; below, a minimum, where the global average ends.
    start = max(np.linspace(0.4, 1.0, 61)[:-1].tolist(), key=lambda t: place(t)[0])
    around, fine = (start - 0.01, min(start + 0.01, 1.0)), {"xatol": 1e-9}
    top = minimize_scalar(lambda t: -place(t)[0], bounds=around, method="bounded", options=fine)
    overlap = float(top.x)
    (log_sum, weight), kappa = place(overlap), beta * dim * overlap
    excess = math.exp(log_mean(2.0 * kappa) - 2.0 * log_mean(kappa))
    across = beta * (1.0 - weight) * dim * excess / math.exp(log_sum)
    return RetrievalFold(
        log_count=float(np.logaddexp(0.0, log_sum - across)),
        overlap=overlap,
        spread=math.sqrt((excess - 1.0) / math.exp(log_sum)),
    )
