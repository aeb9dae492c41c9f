"""A transformer module taken apart into couplings, spins and response."""
