"""Contexts: building, keeping fresh, recall."""
