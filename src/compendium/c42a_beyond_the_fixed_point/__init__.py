"""The map of a generator beyond its fixed point; stored tables."""
