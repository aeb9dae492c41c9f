"""Cheap free energies of Ising systems beside the exact one."""
