"""What chapters 14 and 14b measure in a trained language model and in a toy of it."""
