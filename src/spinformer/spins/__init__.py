"""Spin systems: exact answers, approximate free energies, and modules built on them."""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)
