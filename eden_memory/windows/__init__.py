"""Which messages form together, and when."""
