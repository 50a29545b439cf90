"""Receipts of undone attacks."""

from typing import cast

from eden_memory.errors import Conflict
from eden_memory.receipts.receipt import CAUSED_BY, Receipt
from eden_memory.receipts.receipt_store import PATIENCE, signed_receipt
from eden_memory.replay.installation import Installation
from eden_memory.unpoison.attack_rules import Attack, CauseKind
from eden_memory.unpoison.attack_store import AttackUndo


async def receipt_of_undo(
    at: Installation, request_id: str, patience: float = PATIENCE, *, in_topics: bool = True
) -> Receipt:
    """Return the signed receipt of an undo, as `signed_receipt` does; Conflict while memory rests on the attack."""
    receipt = await signed_receipt(at, request_id, patience, in_topics=in_topics)
    cause = cast("CauseKind", receipt.asked.kind.removeprefix(CAUSED_BY))
    if await AttackUndo(at).plan(Attack(cause, receipt.asked.target)):
        raise Conflict("memory rests on the attack still", "Preview the undo again, and undo what is left.")
    return receipt
