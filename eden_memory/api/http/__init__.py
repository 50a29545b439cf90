"""The HTTP API: `MemoryService` under /v1, for callers with a key, or on loopback without one."""

from eden_memory.errors import needs

needs("serve", "the HTTP API")
