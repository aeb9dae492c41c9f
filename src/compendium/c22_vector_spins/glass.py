"""Where vector spins with random couplings freeze, by their spin-glass susceptibility.

The energy is −Σ_{i<j} B_ij σ_i·σ_j with normal B_ij of variance 1/N, without fields, for spins of
D components and length √D. With spins u of length one the susceptibility is

    χ = N⁻¹ Σ_ij ⟨u_i·u_j⟩².

A free spin answers a field along any component with β, whatever D is. Therefore χ = 1/(1 − β²)
for N → ∞, which diverges at β = 1 [dealmeida1978stability, for D = 1]. There N^{−1/3} χ does not
depend on N, so that the curves of two sizes cross.

Criterion of B3b, written before any of its tables: spins of one, two and four components and of
many (the saddle point of D → ∞) have a spin-glass phase if N^{−1/3} χ of the larger size is below
that of the smaller one at β = 0.7 and above it at β = 1.3, and it begins where the theory says if
the curves cross within 0.15 of β = 1.
"""

import numpy as np
import torch

from spinformer.core.statistics import Estimate
from spinformer.spins.ising import gaussian_couplings
from spinformer.spins.monte_carlo import sample_vector_spins
from spinformer.spins.solvers import solve_saddle_point

BETAS = (0.7, 0.85, 1.0, 1.15, 1.3)
MANY = 0  # stands for D → ∞


def susceptibility(size: int, *, components: int, beta: float, seed: int) -> float:
    """χ of one system; sampled twice, so that the errors of the correlations average out."""
    pair = gaussian_couplings(size, symmetry=1.0, seed=seed)
    if components == MANY:
        coupled = torch.as_tensor(pair / 2)
        free = torch.zeros(size, 1, dtype=torch.float64)
        solved = solve_saddle_point(coupled, fields=free, beta=beta).correlations
        return float(solved.square().sum() / size)
    sampled = [
        sample_vector_spins(
            pair / 2,
            fields=np.zeros((size, components)),
            beta=beta,
            sweeps=512,
            chains=2,
            seed=half,
        ).correlations.value
        for half in np.random.default_rng(seed).spawn(2)
    ]
    return float((sampled[0] * sampled[1]).sum() / size)


def onset(
    components: int, *, sizes: tuple[int, int], systems: int, seed: int
) -> tuple[Estimate, np.ndarray]:
    """β at which N^{−1/3} χ of two sizes is level, with its error by bootstrap over systems.

    Also ln of the ratio of the larger size's to the smaller's at each of `BETAS`.
    """
    logs = np.log(
        [
            [
                [
                    susceptibility(size, components=components, beta=beta, seed=seed + system)
                    / size ** (1 / 3)
                    for beta in BETAS
                ]
                for system in range(systems)
            ]
            for size in sizes
        ]
    )

    def crossing(chosen: np.ndarray) -> float:
        ratio = logs[1][chosen[1]].mean(0) - logs[0][chosen[0]].mean(0)
        slope, level = np.polyfit(BETAS, ratio, 1)
        return float(-level / slope)

    rng = np.random.default_rng(seed)
    drawn = [crossing(rng.integers(0, systems, (2, systems))) for _ in range(200)]
    whole = np.tile(np.arange(systems), (2, 1))
    found = Estimate(value=crossing(whole), error=float(np.std(drawn)), samples=systems)
    return found, logs[1].mean(0) - logs[0].mean(0)
