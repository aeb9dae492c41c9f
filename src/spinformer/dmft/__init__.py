"""Self-attention with tokens of N bits or letters, the limit N → ∞, and what it settles on.

The theory is that of [poclopez2024dynamical]. `network` has weights and contexts, `mean_field` the
step of the limit in NumPy and torch and its trajectories, `finite_size` tokens of N bits, `onset`
where rest ends, `attractors` what a network settles on, `settling` how long that takes, `lyapunov`
its exponents, `cycles` cycles with their bifurcations. All in float64; long runs are compiled:
`kernels` has the loops, `ensemble` hands them many systems at once.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
