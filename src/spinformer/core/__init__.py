"""What every room needs, written once: checks, results, solvers, states, statistics, randomness.

Letters, the same in all rooms: N spins, sites or stored patterns of a set (the axis that is
summed over), D (also d, the width) components of one of them, P features or ±1 patterns, T tokens
of a context or steps of a series, K bits of position, B or `...` batch axes, always in front;
β an inverse temperature, γ the sharpness of a softmax over scores, h a field, J couplings.
A function takes one array by position; whatever else it needs is given by name.

What a user asks for most is exported by the room itself, as in
`from spinformer.core import lyapunov_exponents`.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)
