"""Texts into vectors."""
