"""Namespaces and the live pointer; rebuild, restore, reform, comparing."""
