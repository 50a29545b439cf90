"""The errors that a caller of the Python doors meets."""

from eden_memory.errors import Conflict, EdenError, Invalid, NotAnId, NotFound, OverBudget

__all__ = ["Conflict", "EdenError", "Invalid", "NotAnId", "NotFound", "OverBudget"]
