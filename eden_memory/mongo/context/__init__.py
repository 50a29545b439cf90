"""Ready contexts: read, written, watched."""
