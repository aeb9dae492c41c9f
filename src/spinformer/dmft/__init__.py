"""Dynamical mean-field theory of self-attention with tokens of N bits or letters.

The theory is that of [poclopez2024dynamical]. Everything is in float64, and long runs are compiled:
`kernels` has the loops, and `ensemble` gives them many systems at once. Attractors, basins, cycles
and their bifurcations are those of a network or of a map of one's own (`maps`).

- `network` has weights and contexts, `mean_field` one step of the limit N → ∞ and trajectories,
  `linear_stability` the onset of order, `weight_statistics` the statistics of attention.
- `attractors` and `regimes` classify motion, `diagrams` draws orbit and phase diagrams.
- `basins` has coexisting attractors and their basins, told apart by `fingerprints`,
  `basin_boundaries` their uncertainty exponent, `attractor_continuation` what becomes of them.
- `cycles` finds fixed points, cycles and bifurcations, `branches` follows cycles along a parameter,
  `branch_switching` begins another branch, `normal_forms` tells supercritical from subcritical,
  `bifurcation_curves` follows bifurcations in two parameters. They stand on `continuation`.
- `lyapunov` has exponents and the monodromy matrix, `stroboscopic` the section and its rotation
  number, `settling` how long motion takes to settle, `lifetimes` chaotic transients, and
  `poclopez2024` the motions of the published network.
- `finite_size` has tokens of N bits, `corrections` their variance and 1/N shift, `escape` their way
  out of an attractor.

What a user asks for most is exported by the room itself, as in
`from spinformer.dmft import orbit_diagram`.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)
