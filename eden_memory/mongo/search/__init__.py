"""Facts to rank: in this process over kept scopes, or by Atlas' search indexes; and as they were known at a time."""
