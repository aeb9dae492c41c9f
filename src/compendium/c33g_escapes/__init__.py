"""Escapes between coexisting cycles of the document's network by the noise of finite N (33b)."""
