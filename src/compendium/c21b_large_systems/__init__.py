"""Chapters 21b and 25: systems of hundreds of spins, where theories for many spins are at home."""
