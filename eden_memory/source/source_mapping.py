"""Map documents of the messages collection and of `memory_inbox` to records. Pure."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple, cast

from pydantic import Field, TypeAdapter, ValidationError

from eden_memory.errors import describe
from eden_memory.kafka.record import Outgoing
from eden_memory.limits import LONGEST_BLOB, LONGEST_FACT, LONGEST_REASON
from eden_memory.mongo.changes import Document, DocumentPage, RereadRequest, Unreadable
from eden_memory.mongo.document_fields import UnreadableJson, Unusable, cut, text_of
from eden_memory.names import hashed, traceparent
from eden_memory.redaction import Redactor
from eden_memory.schemas.documents import (
    DeadLetter,
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    InboxReread,
    InboxSessionEnded,
)
from eden_memory.schemas.envelope import rfc3339
from eden_memory.schemas.events import (
    Event,
    FactCommanded,
    Forgotten,
    FormationAsked,
    MemoryCommanded,
    MessageRecorded,
    SessionEnded,
)
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.reasons import reasons
from eden_memory.source.message_mapping import EncodeId, MessageMapping, Origin, Reason, watermark
from eden_memory.stages.dead_letters import LONGEST_LETTER_REASON, ids_in, names_in, sources_in

AHEAD = timedelta(minutes=1)
"""A clock that is a little ahead is forgiven."""
MESSAGES, CANDIDATES, FORGOTTEN = "chat.messages", "memory.candidates", "memory.forgotten"
COMMANDS = "memory.commands"
InboxCommand = InboxFactCommand | InboxMemoryCommand
InboxRequest = InboxSessionEnded | InboxFormNow | InboxAddedText | InboxCommand | InboxForget
REREAD = "reread"
"""The kind of a request that asks the tailer itself, and becomes no record of its own."""
REQUEST: TypeAdapter[InboxRequest] = TypeAdapter(Annotated[InboxRequest, Field(discriminator="kind")])


def event_id_of(inbox_id: str) -> str:
    """Return the id of the event that a request (by its typed id) becomes."""
    return f"inbox/{inbox_id}"


class InboxMapping:
    """Maps requests; `source` is the `ce_source` of every record."""

    def __init__(
        self, source: str, encode_id: EncodeId, text_limit: int, redactor: Redactor | None = None
    ) -> None:
        self._source, self._encode, self._limit = source, encode_id, text_limit
        self._redacted = redactor or str

    def record(self, document: Document, version: str, time: datetime) -> Outgoing:
        """Return the record of an inbox document written at this cluster time; Unusable if it requests nothing."""
        request = _read(document)
        try:
            topic, event = self._event(request, version, time)
        except (TypeError, ValidationError) as error:
            raise Unusable(_reason(error)) from None
        return self._outgoing(topic, event, self._encode(request.id), time)

    def reread(self, document: Document) -> RereadRequest:
        """Return the request of an inbox document of the kind `reread`; Unusable if it cannot be read."""
        try:
            request = InboxReread.model_validate(_with_zones(document), strict=False)
            session = None if request.session_id is None else self._encode(request.session_id)
            name, only = self._encode(request.id), request.documents
            return RereadRequest(request.id, name, request.session_id, session, request.since, only)
        except (TypeError, ValidationError) as error:
            raise Unusable(_reason(error)) from None

    def _event(self, request: InboxRequest, version: str, time: datetime) -> tuple[str, Event]:
        inbox_id = self._encode(request.id)
        match request:
            case InboxSessionEnded():
                return MESSAGES, self._control(SessionEnded, request, version)
            case InboxFormNow():
                return MESSAGES, self._control(FormationAsked, request, version, if_due=request.if_due)
            case InboxAddedText():
                return MESSAGES, self._added(request, version)
            case InboxFactCommand():
                _demand_bounds(request, time, adds="add")
                return CANDIDATES, self._commanded(FactCommanded, request, version, time)
            case InboxMemoryCommand():
                _demand_bounds(request, time, adds="add_reflection")
                return COMMANDS, self._commanded(MemoryCommanded, request, version, time)
            case InboxForget():
                return FORGOTTEN, self._forgotten(request, inbox_id, time)

    def _commanded(
        self, event: Callable[..., Event], request: InboxCommand, version: str, time: datetime
    ) -> Event:
        fields = request.model_dump(exclude={"id", "kind", "scope", "session_id", "sources"})
        for name in ("text", "reason"):
            fields[name] = fields[name] and self._redacted(fields[name])
        return event(
            command_id=self._encode(request.id),
            scope=request.scope,
            asked_at=time,
            version=version,
            sources=self._sources(request, version, time),
            **fields,
        )

    def _sources(self, request: InboxCommand, version: str, time: datetime) -> tuple[SourceMessage, ...]:
        """Return the source of memory that is added with a session: the command, as if it were a message there.

        It rests on the messages that the command names, too; sharing sees the command as one of them.
        """
        if request.session_id is None:
            return ()
        session = self._encode(request.session_id)
        alike = [source for source in request.sources if source.session_id == session] or request.sources
        own = SourceMessage(
            message_id=self._encode(request.id),
            version=version,
            session_id=session,
            user_id=request.scope.belongs_to,
            time=time,
            said_at=request.said_at or time,
            participants=alike[0].participants if alike else None,
        )
        return own, *request.sources

    def _forgotten(self, request: InboxForget, inbox_id: str, time: datetime) -> Forgotten:
        """Return the event that forgets a session or user up to now, because they may come back; all else for ever.

        Records carry whole seconds, so what is written in the very second of the request is forgotten with the rest.
        """
        comes_back = request.what in ("session", "user")
        by_id = comes_back or request.what == "message"
        return Forgotten(
            kind=request.what,
            id=self._encode(request.target) if by_id else str(request.target),
            reach="created_up_to" if comes_back else "for_ever",
            until=time if comes_back else None,
            because="asked",
            inbox_id=inbox_id,
            asked_by=request.asked_by,
            forgotten_at=time,
        )

    def _control(
        self,
        event: Callable[..., Event],
        request: InboxSessionEnded | InboxFormNow,
        version: str,
        **fields: bool,
    ) -> Event:
        return event(
            inbox_id=self._encode(request.id),
            session_id=self._encode(request.session_id),
            version=version,
            asked_by=request.asked_by,
            **fields,
        )

    def _added(self, request: InboxAddedText, version: str) -> MessageRecorded:
        return MessageRecorded(
            message_id=self._encode(request.id),
            session_id=self._encode(request.session_id),
            version=version,
            role=request.role,
            user_id=None if request.user_id is None else self._encode(request.user_id),
            text=self._redacted(cut(text_of(request.text), self._limit)),
            characters=len(request.text),
            truncated=len(request.text) > self._limit,
            created_at=request.created_at,
            origin="added",
        )

    def _outgoing(self, topic: str, event: Event, inbox_id: str, time: datetime) -> Outgoing:
        event_id = event_id_of(inbox_id)
        ordering_key = event.ordering_key()
        envelope = event.envelope(event_id, self._source, time, traceparent(ordering_key, event_id))
        key, place = event.key().encode(), ordering_key.encode()
        return Outgoing(topic, key, event.json_bytes(), envelope.headers(), place)


def _demand_bounds(request: InboxCommand, time: datetime, *, adds: str) -> None:
    if request.said_at is not None and request.said_at > time + AHEAD:
        raise Unusable("said_at: in the future")
    if request.session_id is not None and request.action != adds:
        raise Unusable(f"session_id: of {adds} only")
    if request.sources and request.session_id is None:
        raise Unusable("sources: only with session_id")
    longest = LONGEST_BLOB if request.action == "edit_blob" else LONGEST_FACT
    for name, most in (("text", longest), ("reason", LONGEST_REASON)):
        if len(getattr(request, name) or "") > most:
            raise Unusable(f"{name}: longer than {most} characters")


def _read(document: Document) -> InboxRequest:
    """Validate a document: BSON dates come without a zone and mean UTC; a list may stand for a tuple."""
    try:
        return REQUEST.validate_python(_with_zones(document), strict=False)
    except ValidationError as error:
        raise Unusable(_reason(error)) from None


def _with_zones(document: Document) -> dict[str, Any]:
    return {name: _aware(value) for name, value in document.items()}


def _aware(value: Any) -> Any:
    if isinstance(value, list):
        return [_aware(part) for part in cast("list[Any]", value)]
    if isinstance(value, dict):
        return _with_zones(cast("Document", value))
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _reason(error: Exception) -> str:
    """Return the fields and the rules that they break, never their values."""
    return reasons(error) if isinstance(error, ValidationError) else describe(error)


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
    deleted: list[bytes] = field(default_factory=list[bytes])
    """Keys of messages that are marked as deleted: of those that the topic holds, memory is told."""
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
                if self.message_mapping.is_deleted(document):
                    self._deleted(mapped, document)
                    continue
                time = self.message_mapping.written_at(document, page.time)
                recorded = self.add_record(mapped, document, page.version, time, origin)
                mapped.undated += self.message_mapping.created_at(document) is None
                if not recorded and origin != "backfill":
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
    ) -> bool:
        """Add the record of a message, and tell whether there is one: of a message without text there is none, it is
        counted. Raises whatever the document makes it raise.

        `even_empty`: record a message without text too. `edited`: its text may have changed at `time`.
        """
        _demand_readable(document)
        mapped.left_out.update(self.message_mapping.left_out(document))
        if even_empty or self.message_mapping.has_text(document):
            record = self.message_mapping.record(document, version, time, origin, edited=edited)
            mapped.authorless += self.message_mapping.lacks_author(document)
            mapped.records.append(record)
            return True
        mapped.empty += 1
        return False

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
        no_json = isinstance(document, Unreadable) and document.no_json
        mapped.left_out["json"] += no_json or isinstance(error, UnreadableJson)
        mapped.unmapped.append(Unmapped(collection, document, reason, version, written))

    def add_removed(self, mapped: Mapped, document: Document, version: str, time: datetime) -> None:
        """Add the tombstone of a message that its document lists no more; `document` names its session."""
        if (message_id := self.message_id(document["_id"])) is not None:
            session = self.message_mapping.session_id(document)
            mapped.records.append(
                self.message_mapping.tombstone(message_id, version, time, "deleted", session_id=session)
            )

    def _deleted(self, mapped: Mapped, document: Document) -> None:
        if (key := self.key_of(document)) is not None:
            mapped.deleted.append(key)

    def _emptied(self, mapped: Mapped, document: Document, version: str, time: bytes, origin: Origin) -> None:
        with suppress(Unusable):
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
            reason=refused.reason[:LONGEST_LETTER_REASON],
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
