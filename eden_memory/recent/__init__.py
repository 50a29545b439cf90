"""Messages that no memory has been formed from yet: shown to their user in other sessions, and found by search."""
