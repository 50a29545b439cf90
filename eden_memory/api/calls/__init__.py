"""The calls of `MemoryService`, by what they are for."""
