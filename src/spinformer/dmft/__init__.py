"""Self-attention with tokens of N bits or letters, the limit N → ∞, and what it settles on.

NumPy and compiled kernels, float64; `mean_field.torch_step` is the torch form. The theory is
that of [poclopez2024dynamical].
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
