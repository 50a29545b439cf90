"""Measures memory systems on conversations with questions, at equal budgets of tokens."""
