"""Namespaces, the live pointer, and what runs for standby namespaces."""
