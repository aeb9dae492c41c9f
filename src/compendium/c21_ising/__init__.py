"""Exact sums of small Ising systems, and what a free energy is good for."""
