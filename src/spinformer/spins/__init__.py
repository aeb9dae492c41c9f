"""Spin systems: exact answers, approximate free energies, and modules built on them."""

from spinformer.spins.ising.couplings import pair_couplings, sherrington_kirkpatrick
from spinformer.spins.ising.exact import solve_exact
from spinformer.spins.ising.kinetic import kinetic_simulation
from spinformer.spins.ising.mean_field import solve_mean_field
from spinformer.spins.ising.monte_carlo import sample_ising
from spinformer.spins.modules.couplings import softmax_couplings
from spinformer.spins.modules.driven import DrivenSpinModule
from spinformer.spins.modules.spin_transformer import SpinTransformerModule
from spinformer.spins.vectors.fixed_point import solve_fixed_point
from spinformer.spins.vectors.monte_carlo import sample_vector_spins
from spinformer.spins.vectors.saddle import find_saddle

__all__ = [
    "DrivenSpinModule",
    "SpinTransformerModule",
    "find_saddle",
    "kinetic_simulation",
    "pair_couplings",
    "sample_ising",
    "sample_vector_spins",
    "sherrington_kirkpatrick",
    "softmax_couplings",
    "solve_exact",
    "solve_fixed_point",
    "solve_mean_field",
]
