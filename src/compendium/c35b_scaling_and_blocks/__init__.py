"""Attention with features in proportion to its bits, and with more blocks."""
