"""What a layer needs: its mixer exchanged, one part removed at a time, many layers in a row."""
