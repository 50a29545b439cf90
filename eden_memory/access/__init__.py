"""API keys, and which memory a caller may see."""
