"""What runs processors: topics, lanes, ledger, tailing, metrics."""
