"""A spin system as a module: how far a number of steps is from its saddle point."""
