"""Namespaces as a whole: filled beside live memory, kept true, switched to, dropped."""
