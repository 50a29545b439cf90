"""Map a document of `memory_inbox` to the record that it requests."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from eden_memory.errors import describe
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.limits import LONGEST_BLOB, LONGEST_FACT, LONGEST_REASON
from eden_memory.mongo.changes import Document, RereadRequest
from eden_memory.mongo.document_fields import Unusable, cut, text_of
from eden_memory.names import traceparent
from eden_memory.redaction import Redactor
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    InboxReread,
    InboxSessionEnded,
)
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
from eden_memory.source.message_mapping import EncodeId

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

        Imported memory rests on the messages that it names, too; sharing sees the command as one of them.
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
    if request.sources and (request.by != "import" or request.session_id is None):
        raise Unusable("sources: of an import only, and with session_id")
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
