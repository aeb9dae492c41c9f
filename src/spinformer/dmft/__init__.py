"""Dynamical mean-field theory of self-attention with tokens of N bits or letters.

The theory is that of [poclopez2024dynamical]. `network` has weights and contexts, `mean_field` one
step of the limit N → ∞ in NumPy and torch, and its trajectories, `finite_size` tokens of N bits,
`onset` the loss of stability of the disordered state, `attractors` the classification of
attractors, `settling` relaxation times, `lyapunov` Lyapunov exponents and the monodromy matrix, and
`cycles` cycles with their bifurcations. Everything is in float64, and long runs are compiled:
`kernels` has the loops, and `ensemble` gives them many systems at once.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
