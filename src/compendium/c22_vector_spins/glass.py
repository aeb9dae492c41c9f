"""Where vector spins with random couplings become a spin glass, without fields and in fields.

The energy is −Σ_{i<j} B_ij σ_i·σ_j − Σ_i H_i·σ_i with random B_ij of variance s²/N, for spins of D
components and length √D. In units of u = σ/√D and h = H/√D a free spin answers a field along any
component with β, whatever D is. For N → ∞ the spin-glass susceptibility without fields is
therefore

    χ = N⁻¹ Σ_ij ⟨u_i·u_j⟩² = 1/(1 − β²s²),

which diverges at βs = 1 [dealmeida1978infinite]. There N^{−1/3} χ does not depend on N, so that the
curves of two sizes cross. In fields the difference of two replicas is multiplied in each pass by
the stability number λ of `stability_number`, and one state is stable where λ < 1 [sharma2010line].

Criterion of B3b, written before its table: vector spins with random couplings have a spin-glass
phase that begins where the theory says if the curves of N^{−1/3} χ for two sizes cross within 0.15
of βs = 1, for one to sixteen components and for the saddle point of D → ∞, for normal couplings and
couplings of random sign, and for both pairs of sizes.
"""

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import chi2

from bookmaker.tables import Rows, stored
from compendium.common.rows import near_rows, numbered, parameter_product
from spinformer.core.special import alignment_over_kappa, mean_alignment
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.monte_carlo import sample_vector_spins
from spinformer.spins.solvers import solve_saddle_point

BETAS = (0.7, 0.9, 1.1, 1.3)
MANY = 0  # components that stand for D → ∞


def susceptibility(size: int, *, components: int, kind: str, beta: float, seed: int) -> float:
    """χ of one system without fields; sampled twice, so that errors of correlations average out."""
    pair = gaussian_couplings(size, symmetry=1.0, seed=seed)
    if kind == "signs":
        pair = np.sign(pair) / size**0.5
    if components == MANY:
        free = torch.zeros(size, 1, dtype=torch.float64)
        solved = solve_saddle_point(torch.as_tensor(pair / 2), fields=free, beta=beta)
        return float(solved.correlations.square().sum() / size)
    first, second = (
        sample_vector_spins(
            pair / 2,
            fields=np.zeros((size, components)),
            beta=beta,
            sweeps=512,
            chains=2,
            seed=half,
        ).correlations.value
        for half in np.random.default_rng(seed).spawn(2)
    )
    return float((first * second).sum() / size)


@stored(
    "settings_B3b",
    numbered(
        parameter_product(
            components=(1, 2, 4, 16, MANY), kind=("normal", "signs"), small=(12, 16), times=(4,)
        )
    ),
    small={"data": 1, "components": 2, "kind": "signs", "small": 8, "times": 4, "systems": 4},
    seconds=1.0,
    rtol=1e-3,
)
def settings_b3b(
    data: int, components: int, kind: str, small: int, times: int, systems: int = 24
) -> Rows:
    """0.15 minus the distance of the crossing from β = 1, with a bootstrap over the systems.

    Also the crossing itself with the ends of its interval.
    """
    logs = np.empty((2, systems, len(BETAS)))
    for one, size in enumerate((small, times * small)):
        for system, column in np.ndindex(systems, len(BETAS)):
            seed = 10_000 * data + 100 * one + system
            found = susceptibility(
                size, components=components, kind=kind, beta=BETAS[column], seed=seed
            )
            logs[one, system, column] = np.log(found / size ** (1 / 3))
    rng = np.random.default_rng(data)
    crossings = []
    for drawn in (
        np.tile(np.arange(systems), (2, 1)),
        *rng.integers(systems, size=(400, 2, systems)),
    ):
        ratio = logs[1][drawn[1]].mean(0) - logs[0][drawn[0]].mean(0)
        slope, level = np.polyfit(BETAS, ratio, 1)
        crossings.append(-level / slope)
    low, high = np.quantile(crossings[1:], (0.025, 0.975))
    (line,) = near_rows((crossings[0], low, high), aim=1.0, within=0.15, runs=systems)
    return [line | {"crossing": crossings[0], "first": low, "last": high}]


def stability_number(beta: float, *, strength: float, field: float, components: int) -> float:
    r"""λ of infinitely many spins in Gaussian fields of mean square `field`² = h², for s = `strength`.

    The cavity field of a spin is normal, with the mean square s² q + h² in all D components
    together, and q = E |⟨u⟩|². A small change of the cavity field is answered by v_∥ along it and
    by v_⊥ in the D − 1 other directions. Hence

        λ = s² E [v_∥² + (D − 1) v_⊥²] / D        [sharma2010line].
    """
    middle = (np.arange(4000) + 0.5) / 4000
    squares = chi2.ppf(middle, components) / components

    def alignments(q: float) -> tuple[np.ndarray, np.ndarray]:
        kappa = beta * components * np.sqrt((strength**2 * q + field**2) * squares)
        return kappa, mean_alignment(kappa, dim=components)

    q = brentq(lambda q: float((alignments(q)[1] ** 2).mean()) - q, 1e-12, 1.0)
    kappa, mean = alignments(q)
    across = beta * components * alignment_over_kappa(kappa, dim=components)
    # A_D' = 1 − A_D² − (D − 1) A_D/κ, of one component of u in units of βD.
    along = beta * components * (1.0 - mean**2) - (components - 1) * across
    return float(strength**2 * (along**2 + (components - 1) * across**2).mean() / components)
