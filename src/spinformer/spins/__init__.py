"""Spin systems: exact answers, approximate free energies, and modules built on them.

Ising spins: `ising` sums over all states, `mean_field` has their mean-field equations,
`free_energies` all of these side by side. Vector spins: `large_d` has free energy and mean field of
many components, `solvers` solves these. `monte_carlo` samples either kind, `kinetic` has no energy,
`module` is a network's layer.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
