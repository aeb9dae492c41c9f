"""Chapter 24a: what the answers of a spin system tell of its couplings."""
