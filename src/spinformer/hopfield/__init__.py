"""Energy-based attention: discrete and continuous associative memories, and their density.

Each kind of memory is a module of its own: `discrete` (spins, NumPy), `continuous` (real states,
torch), `density` (the continuous one as a probability, with `learning`), `interacting` (patterns
that talk to each other) and `two_time_scales` (hidden neurons that lag), each with its `energy` or
`log_prob` and its way to retrieve. How much a memory holds: `capacity` (spins without noise),
`replica` (at a temperature), `random_energy` (real states).
"""

from spinformer.hopfield import (
    continuous,
    density,
    discrete,
    interacting,
    learning,
    random_energy,
    replica,
    two_time_scales,
)
from spinformer.hopfield.attention import multi_head_attention
from spinformer.hopfield.attention_module import AttentionModule
from spinformer.hopfield.capacity import ags_capacity
from spinformer.hopfield.energy_transformer import EnergyTransformer
from spinformer.hopfield.fixed_points import FixedPoints, effective_entries, find_fixed_points
from spinformer.hopfield.layer import HopfieldLayer
from spinformer.hopfield.separation import CLASSICAL, EXPONENTIAL, Separation, polynomial

__all__ = [
    "CLASSICAL",
    "EXPONENTIAL",
    "AttentionModule",
    "EnergyTransformer",
    "FixedPoints",
    "HopfieldLayer",
    "Separation",
    "ags_capacity",
    "continuous",
    "density",
    "discrete",
    "effective_entries",
    "find_fixed_points",
    "interacting",
    "learning",
    "multi_head_attention",
    "polynomial",
    "random_energy",
    "replica",
    "two_time_scales",
]
