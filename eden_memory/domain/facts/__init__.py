"""What new facts mean for what is known."""
