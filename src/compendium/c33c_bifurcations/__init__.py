"""How the document's network changes its kind of motion."""
