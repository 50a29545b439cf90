"""Adapters to OpenAI, Google and compatible endpoints."""
