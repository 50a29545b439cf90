"""Forming memory anew: which windows, what it is expected to cost, and how much of it at once."""
