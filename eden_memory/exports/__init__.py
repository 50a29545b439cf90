"""Export of memory as JSON lines, and its import into scopes that hold nothing."""
