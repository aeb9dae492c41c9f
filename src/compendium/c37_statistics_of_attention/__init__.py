"""Statistics of attention, sampled and by the mean field: motions, and random networks."""
