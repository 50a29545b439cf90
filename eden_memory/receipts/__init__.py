"""Receipts: signed lists of what was forgotten, and looking again."""
