"""Finite networks: deviation from the mean field, stationary laws, exponents."""
