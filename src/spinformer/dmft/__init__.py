"""Dynamical mean-field theory of self-attention networks."""
