"""The heads of a generator beside those of an encoder: energies, stages, kinds."""
