"""The `eden` command."""
