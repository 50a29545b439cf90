"""Checks a receipt at any later time: its signature, what it names, and what is not clean yet."""

from datetime import UTC, datetime

from eden_memory.errors import Invalid
from eden_memory.receipts.looking_again_store import Looked, LookingAgain
from eden_memory.receipts.receipt import CheckedReceipt, Receipt, is_genuine, read_receipt
from eden_memory.receipts.signing_key import signing_key
from eden_memory.replay.installation import Installation
from eden_memory.replay.reform.reform_store import neglected


async def checked(at: Installation, text: bytes, *, in_topics: bool = True) -> CheckedReceipt:
    """Check a receipt (JSON); Invalid unless this installation has signed exactly this one.

    `in_topics`: look in Kafka as well.
    """
    receipt, now = _genuine(at, text), datetime.now(UTC)
    looking, behind = LookingAgain(at), await neglected(at.database, at.settings.mongodb.prefix)
    looked = await looking.at(receipt) if in_topics else Looked(tuple(await looking.in_memory(receipt)), None)
    left = {namespace.id for namespace in behind}
    return CheckedReceipt(
        looked.still_there,
        looked.on_disk,
        tuple(store for store in receipt.clean if store.by > now),
        tuple(name for name in receipt.not_yet if name in left),
    )


def _genuine(at: Installation, text: bytes) -> Receipt:
    receipt = read_receipt(text)
    if not is_genuine(receipt, signing_key(at.settings.receipts.key).public_key()):
        raise Invalid(
            "this receipt is not signed by this installation", "It was changed, or another key signed it."
        )
    return receipt
