"""Attention maps of a real language model."""
