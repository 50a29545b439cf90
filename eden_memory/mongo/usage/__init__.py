"""Usage totals, budgets and reservations in MongoDB."""
