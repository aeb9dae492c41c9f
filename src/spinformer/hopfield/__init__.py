"""Energy-based attention: discrete and continuous associative memories, and their density.

Each kind of memory is a module of its own: `discrete` (spins, NumPy), `continuous` (real states,
torch), `density` (the continuous one as a probability, with `learning`), `interacting` (patterns
that talk to each other), each with its `energy` or
`log_prob` and its way to retrieve. How much a memory holds: `capacity` (spins without noise),
`replica` (at a temperature), `random_energy` (real states).
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
