"""Pictures and live figures of the front page and the pages between chapters."""
