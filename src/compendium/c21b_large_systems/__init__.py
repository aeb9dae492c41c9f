"""Systems of hundreds of spins, where theories for many spins are at home."""
