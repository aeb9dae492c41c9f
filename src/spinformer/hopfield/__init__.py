"""Energy-based attention: discrete and continuous associative memories, and their densities.

Each kind of memory is a module of its own, with its `energy` or `log_prob` and its retrieval
dynamics: `discrete` (spins, NumPy), `continuous` (real states, torch), `density` (the continuous
memory as a probability model, and its maximum-likelihood fit). `fixed_points` finds and classifies
the fixed points of the update. `attention` and `layer` hold the corresponding parts of a
transformer.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
