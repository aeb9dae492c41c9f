"""Finite networks: deviation from the mean field, closure, stationary law, exponents."""
