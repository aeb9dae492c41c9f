"""Driven spins have no energy: simulations against their mean-field theories."""
