"""The inspector: memory as pages for people, under /ui. Pages read and ask as the HTTP API does, with its reach."""
