"""Counted calls, cost, budgets."""
