"""The janitor: retention of topics and ledgers."""
