"""Sessions, their windows, and what is asked of them."""
