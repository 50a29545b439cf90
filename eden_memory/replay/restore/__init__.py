"""State and ledger restored from the topics."""
