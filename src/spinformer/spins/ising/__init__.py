"""Binary spins: exact sums, mean-field theories, Monte Carlo, and dynamics without an energy."""

from spinformer.spins.ising.bipartite import conditional_means, restricted_conditional
from spinformer.spins.ising.couplings import (
    gaussian_couplings,
    ordered_couplings,
    pair_couplings,
    sherrington_kirkpatrick,
)
from spinformer.spins.ising.exact import ising_log_partition, solve_exact
from spinformer.spins.ising.kinetic import kinetic_path, kinetic_simulation
from spinformer.spins.ising.kinetic_theories import kinetic_mean_field
from spinformer.spins.ising.master_equation import kinetic_exact, kinetic_stationary
from spinformer.spins.ising.mean_field import solve_mean_field
from spinformer.spins.ising.monte_carlo import sample_ising

__all__ = [
    "conditional_means",
    "gaussian_couplings",
    "ising_log_partition",
    "kinetic_exact",
    "kinetic_mean_field",
    "kinetic_path",
    "kinetic_simulation",
    "kinetic_stationary",
    "ordered_couplings",
    "pair_couplings",
    "restricted_conditional",
    "sample_ising",
    "sherrington_kirkpatrick",
    "solve_exact",
    "solve_mean_field",
]
