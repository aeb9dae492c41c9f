"""What a generator still knows of a token that its window has lost; two stored tables."""
