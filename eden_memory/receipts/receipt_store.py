"""Collects what a request has erased, in every pipeline, says when each store is clean, and checks receipts."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from time import monotonic
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.kafka.topics import Topic
from eden_memory.names import ORIGINAL, Names, Placement
from eden_memory.receipts.looking_again_store import Looked, LookingAgain, names_of
from eden_memory.receipts.receipt import (
    CAUSED_BY,
    AskedToForget,
    CheckedReceipt,
    CleanStore,
    ErasedInMemory,
    Receipt,
    UndoRequest,
    erased_in,
    is_genuine,
    read_receipt,
    requests_of,
    signed,
)
from eden_memory.receipts.signing_key import signing_key
from eden_memory.replay.installation import Installation
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import Erasure
from eden_memory.source.source_mapping import event_id_of
from eden_memory.stages.outcome_store import MongoLedger

Row = dict[str, Any]
FORGETTING = "forgetting"
LOOK_SECONDS = 0.2
PATIENCE = 120.0
TOGETHER = 1_000


class Receipts:
    """Makes receipts of one installation's requests."""

    def __init__(self, at: Installation) -> None:
        self._at = at

    async def of(self, request_id: str, patience: float = PATIENCE) -> Receipt:
        """Return the receipt of a request (its inbox document's typed id), once everything is carried out.

        NotFound if it is not carried out within `patience` seconds.
        """
        until = monotonic() + patience
        while True:
            behind = await neglected(self._at.database, self._at.settings.mongodb.prefix)
            found = await self._erased(request_id, {namespace.pipeline for namespace in behind})
            if found is not None:
                unreadable = await self._at.letters.unreadable()
                clean = [_deleted(topic, count, by) for topic, (count, by) in unreadable.items()]
                return self._receipt(request_id, found, [namespace.id for namespace in behind], clean)
            if monotonic() > until:
                raise NotFound(
                    f"no request {request_id} to forget has been carried out",
                    "Check that `eden run` is running (`eden status`), and that forgetting has given nothing up "
                    "(`eden dead list --stage forgetting`); ask for the receipt again.",
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _erased(self, request_id: str, behind: Collection[str]) -> Mapping[str, list[Erasure]] | None:
        """Return the erasures by pipeline; None while any is missing."""
        found: dict[str, list[Erasure]] = {}
        for placement in await pipelines(self._at):
            names = names_of(self._at, placement)
            roots = map(event_id_of, requests_of(request_id))
            erasures = await erased_by(self._at.database, names, placement, roots)
            if erasures is not None:
                found[placement.pipeline] = erasures
            elif placement.pipeline == ORIGINAL or placement.pipeline not in behind:
                return None
        return found

    def _receipt(
        self,
        request_id: str,
        found: Mapping[str, list[Erasure]],
        behind: Sequence[str],
        unreadable: Sequence[CleanStore],
    ) -> Receipt:
        now = datetime.now(UTC)
        asked = _asked(request_id, [erasure for erasures in found.values() for erasure in erasures])
        memories: list[ErasedInMemory] = [erased_in(name, erasures) for name, erasures in found.items()]
        topics = self._at.topics(self._at.settings.placement)
        clean = [
            CleanStore(store="MongoDB", by=now),
            *(clean_topic(topic, now) for topic in topics),
            *unreadable,
        ]
        return Receipt(
            asked=asked, memories=tuple(memories), clean=tuple(clean), not_yet=tuple(behind), made_at=now
        )


async def signed_receipt(
    at: Installation, request_id: str, patience: float = PATIENCE, *, in_topics: bool = True
) -> Receipt:
    """Return the signed receipt of a request, once it is carried out and nothing of it is in memory.

    `in_topics`: look in Kafka as well. NotFound if nobody has carried out such a request; Conflict if something is
    still there after `patience` seconds.
    """
    key = signing_key(at.settings.receipts.key)
    return signed(await erased(at, request_id, patience, in_topics=in_topics), key)


async def erased(
    at: Installation, request_id: str, patience: float = PATIENCE, *, in_topics: bool = True
) -> Receipt:
    """Wait until a request is carried out, and return its receipt without a signature; errors as `signed_receipt`."""
    until = monotonic() + patience
    receipt, looking = await Receipts(at).of(request_id, patience), LookingAgain(at)
    while left := await looking.in_memory(receipt) or (
        (await looking.at(receipt)).still_there if in_topics else ()
    ):
        if monotonic() > until:
            raise Conflict(
                f"{len(left)} of what to erase are still there, such as {left[0].name} in {left[0].where}",
                "Check that `eden run` is running (`eden status`), and ask for the receipt again.",
            )
        await asyncio.sleep(LOOK_SECONDS)
    return receipt


async def checked(at: Installation, text: bytes, *, in_topics: bool = True) -> CheckedReceipt:
    """Check a receipt (JSON); Invalid unless this installation has signed exactly this one.

    `in_topics`: look in Kafka as well.
    """
    receipt, now = read_receipt(text), datetime.now(UTC)
    if not is_genuine(receipt, signing_key(at.settings.receipts.key).public_key()):
        raise Invalid(
            "this receipt is not signed by this installation", "It was changed, or another key signed it."
        )
    looking, behind = LookingAgain(at), await neglected(at.database, at.settings.mongodb.prefix)
    looked = await looking.at(receipt) if in_topics else Looked(tuple(await looking.in_memory(receipt)), None)
    left = {namespace.id for namespace in behind}
    return CheckedReceipt(
        looked.still_there,
        looked.on_disk,
        tuple(store for store in receipt.clean if store.by > now),
        tuple(name for name in receipt.not_yet if name in left),
    )


def _asked(request_id: str, erasures: Sequence[Erasure]) -> AskedToForget:
    """Return what was asked, as the record of the first request says it; NotFound if there is none."""
    undo, root = UndoRequest.read(request_id), next(requests_of(request_id), None)
    if root is None:
        raise NotFound("the request erased nothing, so there is no receipt")
    first = next((erasure for erasure in erasures if erasure.id == event_id_of(root)), None)
    if first is None:
        raise NotFound(f"there is no record of what the request {request_id} erased", "Forget it again.")
    if undo is not None and undo.is_nameless:
        raise NotFound(f"the name of the {undo.cause} is too long for a receipt")
    return AskedToForget(
        request_id=request_id,
        kind=first.kind if undo is None else f"{CAUSED_BY}{undo.cause}",
        target=(undo and undo.name) or first.target,
        asked_by=first.asked_by,
        asked_at=first.forgotten_at,
    )


async def pipelines(at: Installation) -> list[Placement]:
    """Return a placement of every pipeline that is not dropped, the first one's before the others."""
    placements = {ORIGINAL: Placement()}
    for namespace in await at.namespaces.all():
        if namespace.state != "dropped":
            placements.setdefault(namespace.pipeline, Placement(namespace.id, namespace.pipeline))
    return list(placements.values())


async def erased_by(
    database: AsyncDatabase[Row], names: Names, placement: Placement, roots: Iterable[str]
) -> list[Erasure] | None:
    """Return what records and all that follow from them have erased; None if a part waits or was given up.

    Once a part waits, the rest of `roots` is not read: there may be millions.
    """
    collection = database[names[Erasure.COLLECTION]]
    ledger = MongoLedger(database, names)
    found, decided, wanted, left = dict[str, Erasure](), set[str](), set[str](), iter(roots)
    while wanted := wanted or {*islice(left, TOGETHER)}:
        some = list(wanted)[:TOGETHER]
        rows = await collection.find({"_id": {"$in": some}}).to_list()
        if await ledger.given_up(FORGETTING, some):
            return None
        without = {*some} - {row["_id"] for row in rows}
        if await ledger.decided(FORGETTING, list(without)) != without:
            return None
        decided |= without  # they have erased nothing
        for row in rows:
            erasure = Erasure.model_validate(row, strict=False)
            found[erasure.id] = erasure
            wanted |= {_in_pipeline(name, placement) for name in erasure.leads_to}
        wanted -= {*found, *decided}
    return list(found.values())


def _in_pipeline(name: str, placement: Placement) -> str:
    """Return the id that a derived record has in another pipeline than the first (forgetting.pipeline_marks)."""
    own = placement.pipeline != ORIGINAL and name.startswith("derived/")
    return f"{placement.pipeline}/{name}" if own else name


def clean_topic(topic: Topic, now: datetime) -> CleanStore:
    """Return when nothing of it is left in a topic's segments."""
    return CleanStore(store=f"Kafka: {topic.name}", by=now + topic.holds)


def _deleted(topic: str, count: int, by: datetime) -> CleanStore:
    """Return when dead letters that cannot be read, and so may hold anything, are deleted by age."""
    what = f"{count} dead letters of {topic} that cannot be read and name no message"
    return CleanStore(store=f"MongoDB: {what}", by=by)
