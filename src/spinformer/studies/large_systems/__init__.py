"""Chapters 21b and 25: systems of hundreds of spins, where theories for many spins are at home."""

from spinformer.studies.large_systems.order import ORDER, stored_moments

__all__ = ["ORDER", "stored_moments"]
