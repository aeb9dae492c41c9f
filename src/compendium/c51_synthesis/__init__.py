"""One small system as a memory, as spins in equilibrium and as a driven network.

N spins choose among n keys, each one key. Keys and values have shape (n, d), states (..., d),
counts of spins (M, n).
"""
