"""A stage in a process: lanes, decisions, failures, offsets."""
