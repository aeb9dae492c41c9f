"""How much the continuous memory holds: theory and measurement."""
