"""One document of `memory_inbox` → the record that it asks for."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from eden_memory.domain.limits import LONGEST_FACT, LONGEST_REASON
from eden_memory.domain.source.changes import Document
from eden_memory.domain.source.message_fields import Unusable, cut
from eden_memory.domain.source.message_mapping import EncodeId
from eden_memory.domain.source.records import Outgoing
from eden_memory.domain.tracing import traceparent
from schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxSessionEnded,
)
from schemas.events import Event, FactCommanded, Forgotten, FormationAsked, MessageRecorded, SessionEnded

MESSAGES, CANDIDATES, FORGOTTEN = "chat.messages", "memory.candidates", "memory.forgotten"

Asked = InboxSessionEnded | InboxFormNow | InboxAddedText | InboxFactCommand | InboxForget
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

    def _event(self, asked: Asked, version: str, time: datetime) -> tuple[str, Event]:
        inbox_id = self._encode(asked.id)
        match asked:
            case InboxSessionEnded():
                return MESSAGES, self._control(SessionEnded, asked, version)
            case InboxFormNow():
                return MESSAGES, self._control(FormationAsked, asked, version)
            case InboxAddedText():
                return MESSAGES, self._added(asked, version)
            case InboxFactCommand():
                _demand_bounds(asked)
                fields = asked.model_dump(exclude={"id", "kind", "scope"})
                return CANDIDATES, FactCommanded(
                    command_id=inbox_id, scope=asked.scope, asked_at=time, version=version, **fields
                )
            case InboxForget():
                return FORGOTTEN, self._forgotten(asked, inbox_id, time)

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
        self, event: Callable[..., Event], asked: InboxSessionEnded | InboxFormNow, version: str
    ) -> Event:
        return event(
            inbox_id=self._encode(asked.id),
            session_id=self._encode(asked.session_id),
            version=version,
            asked_by=asked.asked_by,
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


def _demand_bounds(asked: InboxFactCommand) -> None:
    for name, most in (("text", LONGEST_FACT), ("reason", LONGEST_REASON)):
        if len(getattr(asked, name) or "") > most:
            raise Unusable(f"{name}: longer than {most} characters")


def _read(document: Document) -> Asked:
    """BSON dates come without a zone and mean UTC; a list in BSON may stand for a tuple."""
    try:
        return ASKED.validate_python({name: _aware(value) for name, value in document.items()}, strict=False)
    except ValidationError as error:
        raise Unusable(_reason(error)) from None


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _reason(error: Exception) -> str:
    """Fields and rules, never what stood there."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)[:3]
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['type']}" for one in found)
    return str(error)
