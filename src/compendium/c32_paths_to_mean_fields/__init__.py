"""From tokens of N bits to the mean field."""
