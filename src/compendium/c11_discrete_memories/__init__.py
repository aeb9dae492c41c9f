"""How many patterns discrete memories hold, and how they are lost."""
