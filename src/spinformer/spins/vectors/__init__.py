"""Vector spins: exact small systems, large-dimension theories, Monte Carlo, and a drive."""

from spinformer.spins.vectors.adaptive import solve_adaptive_tap
from spinformer.spins.vectors.driven import vector_mean_field, vector_response, vector_simulation
from spinformer.spins.vectors.exact import one_spin, three_spins, triangle, two_spins
from spinformer.spins.vectors.fixed_point import solve_fixed_point
from spinformer.spins.vectors.monte_carlo import sample_vector_spins, sample_von_mises_fisher
from spinformer.spins.vectors.saddle import find_saddle

__all__ = [
    "find_saddle",
    "one_spin",
    "sample_vector_spins",
    "sample_von_mises_fisher",
    "solve_adaptive_tap",
    "solve_fixed_point",
    "three_spins",
    "triangle",
    "two_spins",
    "vector_mean_field",
    "vector_response",
    "vector_simulation",
]
