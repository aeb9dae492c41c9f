"""A trained language model that reads the mean of its own samples: motions and loops."""
