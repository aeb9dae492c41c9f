"""The figure style of the book and the drawings that chapters share."""
