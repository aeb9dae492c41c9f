"""What a per-token feed-forward network can learn of the response of a system's couplings."""
