"""Finite networks: corrections of order 1/N and the Gaussian closure."""
