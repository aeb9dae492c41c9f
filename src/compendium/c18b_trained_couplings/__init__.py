"""Singular values of a trained model's couplings, between rank one and Gaussian matrices."""
