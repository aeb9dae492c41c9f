"""Transformers as spin systems: associative memories, free energies, dynamical mean fields.

Three rooms follow the documents the book is about: `hopfield` (energies of attention), `spins`
(free energies and magnetizations) and `dmft` (dynamical mean-field theory of self-attention);
`language` reads a real language model, `plot` holds the style of the figures. All stand on `core`,
which holds what they share. Bad input raises a TypeError or ValueError that names the argument.
What one chapter alone needs lies in `compendium`; `bookmaker` runs, checks and builds chapters.
"""

from spinformer.core.lazy import modules_on_demand

__version__ = "0.1.0"

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
