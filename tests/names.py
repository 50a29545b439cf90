"""The names of the memory collections in tests: those that settings give when nothing is set."""

from eden_memory.names import Names

NAMES = Names("memory_")
