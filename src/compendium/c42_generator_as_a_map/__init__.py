"""A trained language model that reads the mean of its own voices: rests, motions, voices, loops.

The study says what was predicted; the tables beside it are what was found.
"""
