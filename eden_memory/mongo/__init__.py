"""Adapters to MongoDB."""
