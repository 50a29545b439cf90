"""One document of `memory_inbox` → the record that it asks for."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from eden_memory.constants import LONGEST_FACT, LONGEST_REASON
from eden_memory.error_text import describe
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import Document, RereadRequest
from eden_memory.mongo.document_fields import Unusable, cut
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxReread,
    InboxSessionEnded,
)
from eden_memory.schemas.events import (
    Event,
    FactCommanded,
    Forgotten,
    FormationAsked,
    MessageRecorded,
    SessionEnded,
)
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.reasons import reasons
from eden_memory.source.message_mapping import EncodeId
from eden_memory.tracing import traceparent

AHEAD = timedelta(minutes=1)
"""A clock that is a little ahead is forgiven."""
MESSAGES, CANDIDATES, FORGOTTEN = "chat.messages", "memory.candidates", "memory.forgotten"

Asked = InboxSessionEnded | InboxFormNow | InboxAddedText | InboxFactCommand | InboxForget
REREAD = "reread"
"""The kind of a request that asks the tailer itself, and becomes no record of its own."""
ASKED: TypeAdapter[Asked] = TypeAdapter(Annotated[Asked, Field(discriminator="kind")])


class InboxMapping:
    """`source` is the `ce_source` of every record."""

    def __init__(self, source: str, encode_id: EncodeId, text_limit: int = 8_000) -> None:
        self._source, self._encode, self._limit = source, encode_id, text_limit

    def record(self, document: Document, version: str, time: datetime) -> Outgoing:
        """The record of an inbox document that was written at this cluster time; Unusable if it asks nothing."""
        asked = _read(document)
        try:
            topic, event = self._event(asked, version, time)
        except (TypeError, ValidationError) as error:
            raise Unusable(_reason(error)) from None
        return self._outgoing(topic, event, self._encode(asked.id), time)

    def reread(self, document: Document) -> RereadRequest:
        """What an inbox document of the kind `reread` asks for; Unusable if it cannot be read."""
        try:
            asked = InboxReread.model_validate(_with_zones(document), strict=False)
            session = None if asked.session_id is None else self._encode(asked.session_id)
            return RereadRequest(asked.id, self._encode(asked.id), asked.session_id, session, asked.since)
        except (TypeError, ValidationError) as error:
            raise Unusable(_reason(error)) from None

    def _event(self, asked: Asked, version: str, time: datetime) -> tuple[str, Event]:
        inbox_id = self._encode(asked.id)
        match asked:
            case InboxSessionEnded():
                return MESSAGES, self._control(SessionEnded, asked, version)
            case InboxFormNow():
                return MESSAGES, self._control(FormationAsked, asked, version, if_due=asked.if_due)
            case InboxAddedText():
                return MESSAGES, self._added(asked, version)
            case InboxFactCommand():
                _demand_bounds(asked, time)
                fields = asked.model_dump(exclude={"id", "kind", "scope", "session_id"})
                return CANDIDATES, FactCommanded(
                    command_id=inbox_id,
                    scope=asked.scope,
                    asked_at=time,
                    version=version,
                    sources=self._sources(asked, version, time),
                    **fields,
                )
            case InboxForget():
                return FORGOTTEN, self._forgotten(asked, inbox_id, time)

    def _sources(self, asked: InboxFactCommand, version: str, time: datetime) -> tuple[SourceMessage, ...]:
        """A fact that is added with a session rests on the command as on a message of that session."""
        if asked.session_id is None:
            return ()
        return (
            SourceMessage(
                message_id=self._encode(asked.id),
                version=version,
                session_id=self._encode(asked.session_id),
                user_id=asked.scope.user_id,
                time=time,
                said_at=asked.said_at or time,
            ),
        )

    def _forgotten(self, asked: InboxForget, inbox_id: str, time: datetime) -> Forgotten:
        """Sessions and users may come back: of them what was created up to now is forgotten, all else for ever.

        Records carry whole seconds, so what is written in the very second of the request is forgotten with the rest.
        """
        comes_back = asked.what in ("session", "user")
        by_id = comes_back or asked.what == "message"
        return Forgotten(
            kind=asked.what,
            id=self._encode(asked.target) if by_id else str(asked.target),
            reach="created_up_to" if comes_back else "for_ever",
            until=time if comes_back else None,
            because="asked",
            inbox_id=inbox_id,
            asked_by=asked.asked_by,
            forgotten_at=time,
        )

    def _control(
        self,
        event: Callable[..., Event],
        asked: InboxSessionEnded | InboxFormNow,
        version: str,
        **fields: bool,
    ) -> Event:
        return event(
            inbox_id=self._encode(asked.id),
            session_id=self._encode(asked.session_id),
            version=version,
            asked_by=asked.asked_by,
            **fields,
        )

    def _added(self, asked: InboxAddedText, version: str) -> MessageRecorded:
        return MessageRecorded(
            message_id=self._encode(asked.id),
            session_id=self._encode(asked.session_id),
            version=version,
            role=asked.role,
            user_id=None if asked.user_id is None else self._encode(asked.user_id),
            text=cut(asked.text, self._limit),
            characters=len(asked.text),
            truncated=len(asked.text) > self._limit,
            created_at=asked.created_at,
            origin="added",
        )

    def _outgoing(self, topic: str, event: Event, inbox_id: str, time: datetime) -> Outgoing:
        event_id = f"inbox/{inbox_id}"
        ordering_key = event.ordering_key()
        envelope = event.envelope(event_id, self._source, time, traceparent(ordering_key, event_id))
        key, place = event.key().encode(), ordering_key.encode()
        return Outgoing(topic, key, event.json_bytes(), envelope.headers(), place)


def _demand_bounds(asked: InboxFactCommand, time: datetime) -> None:
    if asked.said_at is not None and asked.said_at > time + AHEAD:
        raise Unusable("said_at: in the future")
    if asked.session_id is not None and asked.action != "add":
        raise Unusable("session_id: of a fact that is added only")
    for name, most in (("text", LONGEST_FACT), ("reason", LONGEST_REASON)):
        if len(getattr(asked, name) or "") > most:
            raise Unusable(f"{name}: longer than {most} characters")


def _read(document: Document) -> Asked:
    """BSON dates come without a zone and mean UTC; a list in BSON may stand for a tuple."""
    try:
        return ASKED.validate_python(_with_zones(document), strict=False)
    except ValidationError as error:
        raise Unusable(_reason(error)) from None


def _with_zones(document: Document) -> dict[str, Any]:
    return {name: _aware(value) for name, value in document.items()}


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _reason(error: Exception) -> str:
    """Fields and rules, never what stood there."""
    return reasons(error) if isinstance(error, ValidationError) else describe(error)
