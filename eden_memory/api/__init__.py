"""The doors into memory: Python here, HTTP, MCP and the gateway in their folders; each loads on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eden_memory.api.service import Memory, MemoryService
    from eden_memory.api.sync import SyncMemory, SyncMemoryService

PLACES = {
    "Memory": "service",
    "MemoryService": "service",
    "SyncMemory": "sync",
    "SyncMemoryService": "sync",
}

__all__ = ["Memory", "MemoryService", "SyncMemory", "SyncMemoryService"]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
