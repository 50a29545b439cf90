"""How a handler runs: lanes, decide once, retries, dead letters, pauses."""
