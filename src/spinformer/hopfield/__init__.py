"""Energy-based attention: discrete and continuous associative memories, and their density.

Each kind of memory is a module of its own: `discrete` (spins, NumPy), `continuous` (real states,
torch) and `density` (the continuous one as a probability, with `learning`), each with its
`energy` or `log_prob` and its way to retrieve.
"""

from spinformer.hopfield import continuous, density, discrete, learning
from spinformer.hopfield.attention import multi_head_attention
from spinformer.hopfield.capacity import ags_capacity
from spinformer.hopfield.fixed_points import FixedPoints, effective_entries, find_fixed_points
from spinformer.hopfield.layer import HopfieldLayer
from spinformer.hopfield.separation import CLASSICAL, EXPONENTIAL, Separation, polynomial

__all__ = [
    "CLASSICAL",
    "EXPONENTIAL",
    "FixedPoints",
    "HopfieldLayer",
    "Separation",
    "ags_capacity",
    "continuous",
    "density",
    "discrete",
    "effective_entries",
    "find_fixed_points",
    "learning",
    "multi_head_attention",
    "polynomial",
]
