"""Energy-based attention: discrete and continuous associative memories, and their density."""
