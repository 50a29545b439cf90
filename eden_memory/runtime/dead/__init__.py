"""Dead letters: written, read, sent again."""
