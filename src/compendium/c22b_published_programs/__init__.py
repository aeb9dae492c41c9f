"""Bal's published programs beside this package: stored numbers, comparisons, learned reactions."""
