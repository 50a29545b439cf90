"""A question, its answer, and the answers kept."""
