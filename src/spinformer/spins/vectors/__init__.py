"""Vector spins: exact small systems, large-dimension theories, Monte Carlo, and a drive."""

from spinformer.spins.vectors.driven import vector_mean_field, vector_response, vector_simulation
from spinformer.spins.vectors.monte_carlo import sample_vector_spins, sample_von_mises_fisher

__all__ = [
    "sample_vector_spins",
    "sample_von_mises_fisher",
    "vector_mean_field",
    "vector_response",
    "vector_simulation",
]
