"""How the published network changes its kind of motion."""
