"""Training and the direction of attention steps; a layer with one energy: study and tables."""
