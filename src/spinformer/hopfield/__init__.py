"""Energy-based attention: discrete and continuous associative memories, and their densities.

Each kind of memory is a module of its own, with its `energy` or `log_prob` and its retrieval
dynamics: `discrete` (spins, NumPy), `continuous` (real states, torch; the modern Hopfield network),
`density` (the continuous memory as a probability model, and its maximum-likelihood fit).
`separation` has the functions that separate patterns, softmax, sparsemax and entmax, and
`fixed_points` finds and classifies the fixed points of the update. `attention` and `layer` hold the
corresponding parts of a transformer.

What a user asks for most is exported by the room itself, as in
`from spinformer.hopfield import HopfieldLayer`. The names `energy`, `retrieve` and `update` are
those of the continuous network. Those of spins are found in `discrete`, which needs no torch.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)
