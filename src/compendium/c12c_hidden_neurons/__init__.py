"""Chapter 12c: the two-layer network whose fast limit is attention."""
