"""One small system as a memory, as spins in equilibrium and as a driven network.

N readers look at n keys, each at one. Keys and values have shape (n, d), states (..., d), counts of
readers (M, n).
"""
