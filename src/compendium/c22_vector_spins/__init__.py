"""Three vector spins exactly, and adaptive TAP for any number of components."""
