"""Receipts of what was forgotten, for whoever administers everything."""

from eden_memory.access.admission_store import Caller, demand_operator
from eden_memory.app.memory import ProcessMemory
from eden_memory.errors import needs_extra
from eden_memory.operations.operator_calls import LongRead
from eden_memory.receipts.receipt import CheckedReceipt, Receipt, UndoRequest
from eden_memory.receipts.receipt_store import checked, signed_receipt
from eden_memory.replay.installation import Installation

PATIENCE = 5.0
"""Seconds that a request waits for what is on its way."""
CHECKING = LongRead("check of a receipt in the topics", "eden forget verify", seconds=600)


async def receipt_of(memory: ProcessMemory, caller: Caller, request_id: str) -> Receipt:
    """Return the receipt of a request; Refused for keys that are bound to agents or users, as it names all ids."""
    at = await _installation(memory, caller)
    if UndoRequest.read(request_id) is None:
        return await signed_receipt(at, request_id, PATIENCE, in_topics=False)
    with needs_extra("the receipt of an undo", "run"):
        from eden_memory.kafka.connection import answering  # noqa: PLC0415
        from eden_memory.unpoison.attack_store import receipt_of_undo  # noqa: PLC0415
    with answering():
        return await receipt_of_undo(at, request_id, PATIENCE, in_topics=False)


async def checked_receipt(
    memory: ProcessMemory, caller: Caller, text: bytes, *, in_topics: bool
) -> CheckedReceipt:
    """Check a receipt (JSON); `in_topics`: read Kafka's topics, too. Refused as :func:`receipt_of`.

    Conflict while the process checks another one in the topics.
    """
    at = await _installation(memory, caller)
    if not in_topics:
        return await checked(at, text, in_topics=False)
    with needs_extra("looking in the topics", "run", ", or look in the collections alone"):
        from eden_memory.kafka.connection import answering  # noqa: PLC0415
    with answering():
        async with CHECKING.turn():
            return await checked(at, text)


async def _installation(memory: ProcessMemory, caller: Caller) -> Installation:
    demand_operator(caller, "a receipt")
    return Installation((await memory.current()).settings, memory.database)
