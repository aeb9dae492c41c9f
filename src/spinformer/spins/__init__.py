"""Spin systems: exact answers, approximate free energies, and neural-network layers built on them.

For Ising spins `ising` sums over all states, `mean_field` has the mean-field equations (naive, TAP,
adaptive TAP, belief propagation), `theories` compares all of these, and `replica_symmetry` has the
replica-symmetric Sherrington–Kirkpatrick model. For vector spins `large_d` has free energy and mean
field for many components, `solvers` solves them, `vector_theories` compares them, and
`exact_vectors` integrates two or three spins; couplings that are matrices are in
`block_couplings`. `monte_carlo` samples both kinds, and `kinetic` has
driven spins without an energy.

Layers of neural networks are in `module` (spins in equilibrium) and `driven_module` (driven and
causal). `heads` and `masks` have what they share, `fused` their backward pass, and `validity` how
far a pass can be trusted.

What a user asks for most is exported by the room itself, as in
`from spinformer.spins import solve_mean_field`.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)
