"""Energy-based attention: discrete and continuous associative memories, and their density.

Each kind of memory is a module of its own, with its `energy` or `log_prob` and its way to retrieve:
`discrete` (spins, NumPy), `continuous` (real states, torch), `density` (the continuous one as a
probability, and what learns it). `fixed_points` says where updates rest; `attention` and `layer`
are what a transformer has.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
