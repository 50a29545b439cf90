"""Receipts of what was forgotten, for whoever administers everything."""

from eden_memory.access.callers import Caller, Refused
from eden_memory.app.memory import ProcessMemory
from eden_memory.receipts.receipt import Receipt
from eden_memory.receipts.receipt_store import signed_receipt
from eden_memory.replay.installation import Installation

PATIENCE = 5.0
"""Seconds that a request waits for what is on its way."""


async def receipt_of(memory: ProcessMemory, caller: Caller, request_id: str) -> Receipt:
    """Return the receipt of a request; Refused for keys that are bound to agents or users, as it names all ids."""
    if not caller.may("admin") or caller.agents is not None or caller.users is not None:
        raise Refused(
            "a receipt concerns all agents and users",
            "Use a key with the right `admin` that is bound to none.",
        )
    at = Installation((await memory.current()).settings, memory.database)
    return await signed_receipt(at, request_id, PATIENCE, in_topics=False)
