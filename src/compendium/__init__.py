"""What each chapter of the book alone needs: its study, its figures, its stored tables."""
