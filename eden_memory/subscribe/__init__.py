"""Typed consumers of the memory topics with FastStream (extra `faststream`): docs/how-to/subscribe.md."""

from eden_memory.errors import needs_extra

with needs_extra("eden_memory.subscribe", "faststream"):
    from eden_memory.subscribe.router import About, MemoryRouter, Retries

from eden_memory.subscribe.router import NewestVersions, Tombstone, version_of

__all__ = ["About", "MemoryRouter", "NewestVersions", "Retries", "Tombstone", "version_of"]
