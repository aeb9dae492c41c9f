"""The TAP iteration unrolled into layers: convergence, pace and depth."""
