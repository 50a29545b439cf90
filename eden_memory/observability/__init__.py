"""Lag, feeds and traces for people who watch."""
