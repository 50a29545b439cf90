"""Map documents of the messages collection and of the inbox to records. Pure."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from eden_memory.errors import describe
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import Document, DocumentPage, RereadRequest, Unreadable
from eden_memory.mongo.document_fields import Unusable
from eden_memory.schemas.documents import DeadLetter
from eden_memory.schemas.envelope import rfc3339
from eden_memory.source.inbox_mapping import REREAD, InboxMapping
from eden_memory.source.message_mapping import MessageMapping, Origin, Reason, watermark
from eden_memory.stages.dead_letter_ids import ids_in
from eden_memory.stages.dead_letters import LONGEST_REASON, hashed, names_in, sources_in

LONGEST_KEY = 1_024
TAILER = "tailer"

ToJson = Callable[[Document], bytes]
"""Return a document as (extended) JSON."""


class Unmapped(NamedTuple):
    """A document that cannot become a record, and the reason."""

    collection: str
    document: Document
    """The mapped fields, as far as they are known."""
    reason: str
    version: str
    time: datetime
    """When it was written."""


@dataclass(slots=True)
class Mapped:
    """The result of mapping a batch of changes or a page of documents."""

    records: list[Outgoing] = field(default_factory=list[Outgoing])
    unmapped: list[Unmapped] = field(default_factory=list[Unmapped])
    carried: list[Any] = field(default_factory=list[Any])
    """Ids of the inbox documents among them, to be erased once this is safely in Kafka."""
    empty: int = 0
    """Messages without text, left out until text arrives."""
    authorless: int = 0
    """Records of the role user without an author: they form no user-scoped memory."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Parts of messages that have no text, by kind."""
    undated: int = 0
    """Messages read from the collection that say no time."""
    emptied: list[Outgoing] = field(default_factory=list[Outgoing])
    """Of a merge: records of messages without text, published only if the topic may hold an earlier text."""
    rereads: list[RereadRequest] = field(default_factory=list[RereadRequest])
    """Requests to read messages again; their inbox documents stay until that is done."""
    gone: str | None = None
    """Why the messages collection can no longer be followed."""


class SourceMapping:
    """Map documents of the collections `collection` (messages) and `inbox`."""

    def __init__(
        self,
        messages: MessageMapping,
        requests: InboxMapping,
        collection: str,
        inbox: str,
        to_json: ToJson,
    ) -> None:
        self.message_mapping, self.collection, self.inbox = messages, collection, inbox
        self._requests, self._to_json = requests, to_json

    def map_page(self, page: DocumentPage, origin: Origin) -> Mapped:
        """Map a page of messages that were read from the collection, not from the stream."""
        mapped = Mapped()
        for document in page.documents:
            time = None
            try:
                time = self.message_mapping.written_at(document, page.time)
                self.add_record(mapped, document, page.version, time, origin)
                mapped.undated += self.message_mapping.created_at(document) is None
                if origin != "backfill":
                    self._emptied(mapped, document, page.version, time, origin)
            except Exception as error:  # noqa: BLE001 - whatever it is, this document raised it
                written = page.time if time is None else datetime.fromisoformat(time.decode())
                self.refuse(mapped, self.collection, document, page.version, written, error)
        return mapped

    def created_since(self, page: DocumentPage, since: datetime) -> DocumentPage:
        """Return the page with the documents created at `since` or later, and those that give no time."""
        latest = rfc3339(since)
        kept = [document for document in page.documents if (self._created(document) or latest) >= latest]
        return page._replace(documents=kept)

    def _created(self, document: Document) -> str | None:
        with suppress(Exception):  # it is refused when it is mapped
            return self.message_mapping.created_at(document)
        return None

    def add_record(
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
        """Add the record of a message; count it if it has no text. Raises whatever the document makes it raise.

        `even_empty`: record a message without text too. `edited`: its text may have changed at `time`.
        """
        _demand_readable(document)
        mapped.left_out.update(self.message_mapping.left_out(document))
        if even_empty or self.message_mapping.has_text(document):
            record = self.message_mapping.record(document, version, time, origin, edited=edited)
            mapped.authorless += self.message_mapping.lacks_author(document)
            mapped.records.append(record)
        else:
            mapped.empty += 1

    def refuse(
        self,
        mapped: Mapped,
        collection: str,
        document: Document,
        version: str,
        written: datetime,
        error: Exception,
    ) -> None:
        """Note that a document cannot become a record, and what it made the mapping raise."""
        reason = str(error) if isinstance(error, Unusable) else describe(error)
        mapped.unmapped.append(Unmapped(collection, document, reason, version, written))

    def _emptied(self, mapped: Mapped, document: Document, version: str, time: bytes, origin: Origin) -> None:
        with suppress(Unusable):
            if not self.message_mapping.has_text(document):
                mapped.emptied.append(self.message_mapping.record(document, version, time, origin))

    def add_request(self, mapped: Mapped, document: Document, version: str, time: datetime) -> None:
        """Add what an inbox document requests."""
        try:
            _demand_readable(document)
            if document.get("kind") == REREAD:
                mapped.rereads.append(self._requests.reread(document))
                return
            mapped.records.append(self._requests.record(document, version, time))
        except Exception as error:  # noqa: BLE001 - whatever it is, this document raised it
            self.refuse(mapped, self.inbox, document, version, time, error)
        mapped.carried.append(document["_id"])

    def dead_letter(self, refused: Unmapped, time: datetime, topic: str) -> DeadLetter:
        """Return the dead letter of an unmapped document: its ids and the reason, nothing of its content."""
        ids = ids_in([{**self._named(refused), "version": refused.version}], refused.time)
        return DeadLetter(
            _id=self.letter_id(refused.collection, refused.document),
            program=TAILER,
            stage=TAILER,
            reason=refused.reason[:LONGEST_REASON],
            error="Unusable",
            at=time,
            topic=topic,
            key=self._id_of(refused.document)[:LONGEST_KEY],
            collection=refused.collection,
            version=refused.version,
            named=names_in(ids),
            sources=sources_in(ids),
        )

    def letter_id(self, collection: str, document: Document) -> str:
        """Return the id of a document's dead letter."""
        return hashed(TAILER, collection, self._id_of(document).decode())

    def _named(self, refused: Unmapped) -> dict[str, str | None]:
        document = refused.document
        if refused.collection == self.inbox:
            return {name: self.message_id(document.get(name)) for name in ("session_id", "user_id")}
        return {
            "message_id": self.message_id(document["_id"]),
            "session_id": self.message_mapping.session_id(document),
            "user_id": self.message_id(self.message_mapping.author(document)),
        }

    def _id_of(self, document: Document) -> bytes:
        """Return a document's `_id` as JSON; of one whose `_id` cannot be read, a hash of its bytes."""
        if isinstance(document, Unreadable) and document.digest is not None:
            return b'{"bytes": "%s"}' % document.digest.encode()
        try:
            return self._to_json({"_id": document["_id"]})
        except Exception:  # noqa: BLE001 - whatever stands there, it is the document's
            return b'{"_id": null}'

    def key_of(self, document: Document) -> bytes | None:
        """Return the Kafka key of a message's document; None if its `_id` cannot be an id."""
        message_id = self.message_id(document["_id"])
        return message_id.encode() if message_id is not None else None

    def message_id(self, value: Any) -> str | None:
        """Return the typed id of a message's `_id`; None if it cannot be an id."""
        try:
            return self.message_mapping.message_id(value)
        except Exception:  # noqa: BLE001 - whatever it is, it is no id
            return None

    def tombstone(self, key: bytes, version: str, time: datetime, reason: Reason, partition: int) -> Outgoing:
        """Return the tombstone of a message, for a partition that holds it."""
        return self.message_mapping.tombstone(key.decode(), version, time, reason, partition=partition)

    def watermark(self, partition: int, version: str, time: datetime) -> Outgoing:
        """Return the record which says that a partition holds everything up to a cluster time."""
        return watermark(partition, version, time, self.message_mapping.source)


def _demand_readable(document: Document) -> None:
    if isinstance(document, Unreadable):
        raise Unusable(document.reason)
