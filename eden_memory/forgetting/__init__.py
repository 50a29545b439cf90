"""Marks, erasing, receipts."""
