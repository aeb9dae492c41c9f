"""Corrections to the mean field of a finite network: bias, closure, stationary law, exponents."""
