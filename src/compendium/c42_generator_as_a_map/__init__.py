"""A trained language model that reads the mean of its own voices: rests, motions, voices, loops."""
