"""Agents, users, sessions, groups; who is present."""
