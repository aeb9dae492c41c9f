"""Small language models, trained here on plays of Shakespeare, as maps of their own soft tokens."""
