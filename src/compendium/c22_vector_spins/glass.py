"""Where vector spins with random couplings become a spin glass, without fields and in fields.

The energy is −Σ_{i<j} B_ij σ_i·σ_j − Σ_i H_i·σ_i with random B_ij of variance s²/N, for spins of D
components and length √D. In units of u = σ/√D and h = H/√D a free spin answers a field along any
component with β, whatever D is. For N → ∞ the spin-glass susceptibility without fields is
therefore

    χ = N⁻¹ Σ_ij ⟨u_i·u_j⟩² = 1/(1 − β²s²),

which diverges at βs = 1 [dealmeida1978infinite]. On that point χ grows as N^(1/3), before it not at
all, and in the glass as N. In fields the difference of two replicas is multiplied in each pass by
the stability number λ of `stability_number`, and one state is stable where λ < 1 [sharma2010line].

Criterion of B3b, written before its table: vector spins with random couplings have a spin-glass
phase that begins where the theory says if 1/χ from βs = 0.4 to 0.7, continued as a line in β²s²,
vanishes within 0.1 of βs = 1, and if χ grows faster than N^(1/2) at βs = 1.5 from a quarter of the
spins on. This is asked of one to sixteen components and of the saddle point of D → ∞, of normal
couplings and of couplings of random sign, of 64 and of 128 spins.

An earlier criterion was that the curves of N^(−1/3) χ for two sizes cross within 0.15 of βs = 1. It
was given up after twelve of twenty lines, because the crossings moved with the size: for 12 and
48 or 16 and 64 spins of four components they were at 1.14 to 1.21.
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

BETAS = (0.4, 0.5, 0.6, 0.7)
BEYOND = 1.5
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
            sweeps=256,
            chains=1,
            seed=half,
        ).correlations.value
        for half in np.random.default_rng(seed).spawn(2)
    )
    return float((first * second).sum() / size)


@stored(
    "settings_B3b",
    numbered(
        parameter_product(components=(1, 2, 4, 16, MANY), kind=("normal", "signs"), size=(64, 128))
    ),
    small={"data": 1, "components": 2, "kind": "signs", "size": 16, "systems": 2},
    seconds=2.0,
    rtol=1e-3,
)
def settings_b3b(data: int, components: int, kind: str, size: int, systems: int = 8) -> Rows:
    """0.1 minus the distance from βs = 1 of the point where 1/χ vanishes, bootstrapped.

    Also this point, the ends of its interval, and the power of N with which χ grows beyond it.
    """

    def sampled(spins: int, beta: float) -> np.ndarray:
        found = []
        for system in range(systems):
            seed = 1000 * data + spins + system
            one = susceptibility(spins, components=components, kind=kind, beta=beta, seed=seed)
            found.append(one)
        return np.array(found)

    before = np.array([sampled(size, beta) for beta in BETAS])
    rng = np.random.default_rng(data)
    onsets = []
    for drawn in (np.arange(systems), *rng.integers(systems, size=(400, systems))):
        slope, level = np.polyfit(np.square(BETAS), 1.0 / before[:, drawn].mean(1), 1)
        onsets.append((-level / slope) ** 0.5)
    low, high = np.quantile(onsets[1:], (0.025, 0.975))
    grown = sampled(size, BEYOND).mean() / sampled(size // 4, BEYOND).mean()
    (line,) = near_rows((onsets[0], low, high), aim=1.0, within=0.1, runs=systems)
    return [
        line | {"onset": onsets[0], "first": low, "last": high, "power": np.log(grown) / np.log(4)}
    ]


def stability_number(beta: float, *, strength: float, field: float, components: int) -> float:
    r"""λ of infinitely many spins in Gaussian fields of mean square h² = `field`², s = `strength`.

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
