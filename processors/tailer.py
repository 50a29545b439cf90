"""messages, memory_inbox → chat.messages, and what the inbox asks of other topics: the pure mapping.

The loop around it (lease, position, transactions, backfill, merge) is `eden_memory.source.tailing`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from eden_memory.kafka.outgoing import CUT, DEAD, Outgoing, why_dead
from eden_memory.mongo.changes import (
    COLLECTION_GONE,
    DELETE,
    INSERT,
    REPLACE,
    UPDATE,
    ChangeEvent,
    Document,
    DocumentPage,
)
from eden_memory.mongo.document_fields import Unusable
from eden_memory.schemas.envelope import rfc3339
from eden_memory.source.inbox_mapping import REREAD, InboxMapping
from eden_memory.source.mapped import Mapped, Unmapped
from eden_memory.source.message_mapping import TOPIC, MessageMapping, Origin, Reason, watermark

LONGEST_ORIGINAL = 3_500_000
LONGEST_KEY = 1_024

ToJson = Callable[[Document], bytes]
"""A document as (extended) JSON."""


class Tailer:
    """Changes and pages of two collections → records, in order."""

    def __init__(
        self, messages: MessageMapping, asked: InboxMapping, collection: str, inbox: str, to_json: ToJson
    ) -> None:
        self._map, self._ask, self._to_json = messages, asked, to_json
        self._collection, self._inbox = collection, inbox

    def changes(self, changes: Sequence[ChangeEvent]) -> Mapped:
        """Records of a batch of changes; of several updates of one message in a row only the last."""
        mapped = Mapped()
        superseded = self._superseded(changes)
        for index, change in enumerate(changes):
            if change.operation in COLLECTION_GONE:
                if change.collection == self._collection or not change.collection:
                    mapped.gone = change.operation
            elif change.collection == self._collection:
                if index not in superseded:
                    self._message(mapped, change)
            elif (
                change.collection == self._inbox
                and change.operation == INSERT
                and change.document is not None
            ):
                self.carry(mapped, change.document, change.version, change.time)
        return mapped

    def page(self, page: DocumentPage, origin: Origin) -> Mapped:
        """Records of a page of messages that were read, not streamed."""
        mapped = Mapped()
        for document in page.documents:
            time = self._map.written_at(document, page.time)
            self._record(mapped, document, page.version, time, origin)
            if origin != "backfill":
                self._emptied(mapped, document, page.version, time, origin)
        return mapped

    def created_since(self, page: DocumentPage, since: datetime) -> DocumentPage:
        """The documents of a page that were created then or later, and those that name no time."""
        latest = rfc3339(since)
        kept = [one for one in page.documents if (self._map.created_at(one) or latest) >= latest]
        return page._replace(documents=kept)

    def _emptied(self, mapped: Mapped, document: Document, version: str, time: bytes, origin: Origin) -> None:
        with suppress(Unusable):
            if not self._map.has_text(document):
                mapped.emptied.append(self._map.record(document, version, time, origin))

    def carry(self, mapped: Mapped, document: Document, version: str, time: datetime) -> None:
        """Add what an inbox document asks for."""
        try:
            if document.get("kind") == REREAD:
                mapped.rereads.append(self._ask.reread(document))
                return
            mapped.records.append(self._ask.record(document, version, time))
        except Unusable as error:
            mapped.unmapped.append(Unmapped(self._inbox, document, str(error), version))
        mapped.carried.append(document["_id"])

    def dead(self, mapped: Mapped, originals: Sequence[Document], time: datetime) -> list[Outgoing]:
        """Dead letters of what could not be mapped; `originals` are the whole messages that still exist."""
        whole = {(self._collection, repr(document["_id"])): document for document in originals}
        return [
            self._dead(one, whole.get((one.collection, repr(one.document["_id"])), one.document), time)
            for one in mapped.unmapped
        ]

    def _dead(self, one: Unmapped, document: Document, time: datetime) -> Outgoing:
        original = self._to_json(document)
        place = {"collection": one.collection, "version": one.version}
        key = self.dead_key(document)
        headers = why_dead(TOPIC, "Unusable", one.reason, time, place)
        if len(original) > LONGEST_ORIGINAL:
            headers.append((CUT, str(len(original)).encode()))
        return Outgoing(TOPIC + DEAD, key, original[:LONGEST_ORIGINAL], headers, key)

    def dead_key(self, document: Document) -> bytes:
        """The Kafka key of a document's dead letter."""
        return self._to_json({"_id": document["_id"]})[:LONGEST_KEY]

    def key(self, document: Document) -> bytes | None:
        """The Kafka key of a message's document; None if its id can be none."""
        message_id = self._message_id(document["_id"])
        return message_id.encode() if message_id is not None else None

    def ended(self, key: bytes, version: str, time: datetime, reason: Reason, partition: int) -> Outgoing:
        """The tombstone of a message in a partition where it stands."""
        return self._map.tombstone(key.decode(), version, time, reason, partition=partition)

    def watermark(self, partition: int, version: str, time: datetime) -> Outgoing:
        """Everything up to a cluster time is published to a partition."""
        return watermark(partition, version, time, self._map.source)

    def _message(self, mapped: Mapped, change: ChangeEvent) -> None:
        if change.operation == DELETE:
            self._ended(mapped, change)
        elif change.document is None:
            # Gone since, and its delete follows; that knows only the session that it was in last.
            self._moved(mapped, change)
        elif change.operation == INSERT:
            self._record(mapped, change.document, change.version, self._map.second(change.time), "stream")
        elif change.operation == REPLACE or self._matters(change):
            self._moved(mapped, change)
            time = self._map.second(change.time)
            edited = change.operation == REPLACE or self._touches(change, self._map.paths.content)
            self._record(
                mapped, change.document, change.version, time, "stream", even_empty=True, edited=edited
            )

    def _record(
        self,
        mapped: Mapped,
        document: Document,
        version: str,
        time: bytes,
        origin: Origin,
        *,
        even_empty: bool = False,
        edited: bool = False,
    ) -> None:
        try:
            if even_empty or self._map.has_text(document):
                mapped.records.append(self._map.record(document, version, time, origin, edited=edited))
                mapped.authorless += self._map.lacks_author(document)
            else:
                mapped.empty += 1
        except Unusable as error:
            mapped.unmapped.append(Unmapped(self._collection, document, str(error), version))

    def _ended(self, mapped: Mapped, change: ChangeEvent) -> None:
        message_id = self._message_id(change.id)
        if message_id is None:
            return  # it was never recorded
        session = self._map.session_id(change.before)
        mapped.records.append(
            self._map.tombstone(message_id, change.version, change.time, "deleted", session_id=session)
        )

    def _moved(self, mapped: Mapped, change: ChangeEvent) -> None:
        """A tombstone where the message was, if it may have changed its session."""
        if change.operation == UPDATE and not self._touches(change, self._map.paths.session_id):
            return
        before, now = self._map.session_id(change.before), self._map.session_id(change.document)
        if before == now and now is not None:
            return
        message_id = self._message_id(change.id)
        if message_id is None:
            return
        mapped.records.append(
            self._map.tombstone(
                message_id, change.version, change.time, "moved", session_id=before, moved_to=now
            )
        )

    def _message_id(self, value: Any) -> str | None:
        try:
            return self._map.message_id(value)
        except Unusable:
            return None

    def _matters(self, change: ChangeEvent) -> bool:
        return any(self._touches(change, path) for path in self._map.paths)

    @staticmethod
    def _touches(change: ChangeEvent, path: str) -> bool:
        return change.touched is None or any(_overlap(name, path) for name in change.touched)

    def _repeats(self, later: ChangeEvent, earlier: ChangeEvent) -> bool:
        """Whether the record of `later` says all that the one of `earlier` would: also that the text changed."""
        content = self._map.paths.content
        return self._touches(later, content) or not self._touches(earlier, content)

    def _superseded(self, changes: Sequence[ChangeEvent]) -> set[int]:
        """Updates that a later one of the same message repeats; one that may move it stays."""
        waiting: dict[str, int] = {}
        superseded: set[int] = set()
        for index, change in enumerate(changes):
            update = change.operation == UPDATE
            if not update and not waiting:
                continue
            name = f"{change.collection}/{change.id!r}"
            if update and not self._touches(change, self._map.paths.session_id):
                if self._matters(change):
                    if name in waiting and self._repeats(change, changes[waiting[name]]):
                        superseded.add(waiting[name])
                    waiting[name] = index
            else:
                waiting.pop(name, None)
        return superseded


def _overlap(touched: str, mapped: str) -> bool:
    return touched == mapped or touched.startswith(mapped + ".") or mapped.startswith(touched + ".")
