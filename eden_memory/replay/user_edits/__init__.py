"""User edits, reapplied in another memory."""
