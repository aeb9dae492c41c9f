"""Chapters 21b and 25: systems of hundreds of spins, where theories for many spins are at home."""

from spinformer.studies.large_systems.errors import ERRORS
from spinformer.studies.large_systems.order import ORDER, stored_moments
from spinformer.studies.large_systems.overlaps import OVERLAPS
from spinformer.studies.large_systems.results import (
    convergence,
    fall_of_errors,
    glass_susceptibilities,
    growth,
    layer_distances,
)

__all__ = [
    "ERRORS",
    "ORDER",
    "OVERLAPS",
    "convergence",
    "fall_of_errors",
    "glass_susceptibilities",
    "growth",
    "layer_distances",
    "stored_moments",
]
