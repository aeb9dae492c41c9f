"""Spin systems: exact answers, approximate free energies, and modules built on them."""
