"""Binary spins: exact sums, mean-field theories, Monte Carlo, and dynamics without an energy."""
