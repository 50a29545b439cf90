"""The errors that the Python doors raise."""

from eden_memory.errors import Conflict, EdenError, Invalid, NotAnId, NotFound, OverBudget

__all__ = ["Conflict", "EdenError", "Invalid", "NotAnId", "NotFound", "OverBudget"]
