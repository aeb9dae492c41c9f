"""What chapter 14 measures in a trained language model and in a toy of it."""
