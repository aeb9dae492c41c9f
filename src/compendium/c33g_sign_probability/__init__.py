"""Random networks whose weights have positive signs more often than negative ones."""
