"""The one place where things are wired together."""
