"""Decide which messages form together, and when."""
