"""Vector spins: exact small systems, large-dimension theories, Monte Carlo, and a drive."""
