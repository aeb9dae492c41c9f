"""Spin systems: exact answers, approximate free energies, and neural-network layers built on them.

For Ising spins `ising` sums over all states, `mean_field` has the mean-field equations (naive, TAP,
adaptive TAP, belief propagation), and `free_energies` compares all of these. For vector spins
`large_d` has free energy and mean field for many components, `solvers` solves them, and
`exact_vectors` integrates two or three spins. `sherrington_kirkpatrick` has the model's
replica-symmetric theory. `monte_carlo` samples both kinds, `kinetic` has driven spins without an
energy, and `module` has layers of neural networks.
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
