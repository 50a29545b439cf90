"""Webhooks: who is told, what goes out and when, and how a receiver is reached."""
