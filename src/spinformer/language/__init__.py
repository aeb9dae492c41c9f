"""A real, small language model, read from disk and run in a few lines of torch."""
