"""How long the chaos of the document's network lasts: three tables and their live counterparts."""
