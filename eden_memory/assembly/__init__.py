"""Handlers with their parts."""
