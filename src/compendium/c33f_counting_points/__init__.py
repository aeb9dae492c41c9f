"""Regimes by counting the points of a diagram, beside Lyapunov exponents: tables of networks."""
