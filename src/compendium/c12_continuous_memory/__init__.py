"""The continuous memory: descent of its energy, bounds, faces."""
