"""What formation may spend: budgets, what windows are expected to cost, and who may be asked for."""
