"""Small attention layers that learn to retrieve: scale of the scores, normalization, heads."""
