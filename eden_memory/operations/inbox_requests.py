"""Requests of applications, written to `memory_inbox` in order after they are checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast, get_args

from bson import ObjectId
from pydantic import ValidationError

from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.participants import own_session
from eden_memory.errors import Invalid
from eden_memory.limits import MOST_ADDED_CHARACTERS, MOST_ADDED_TEXTS
from eden_memory.memory.memory_views import Added
from eden_memory.mongo.application_ids import typed
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.document_fields import Unusable, moment_of, text_of
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    InboxSessionEnded,
)
from eden_memory.schemas.events.chat import Role
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.source.inbox_store import parts_of

Message = Mapping[str, Any]
"""`{"role": "user", "content": "…"}`, with an optional `created_at`."""
Asked = (
    InboxAddedText | InboxFactCommand | InboxMemoryCommand | InboxForget | InboxFormNow | InboxSessionEnded
)
AHEAD = timedelta(minutes=1)
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Requests:
    """Writes the requests for one agent; every request carries `asked_by`."""

    memory: ProcessMemory
    agent_id: str
    asked_by: str

    async def end(self, session: Any) -> str:
        """The session is over."""
        return await self._control(InboxSessionEnded, "session_ended", session)

    async def form(self, session: Any, *, if_due: bool) -> str:
        """Form what is pending in the session: now, or only if it is due."""
        return await self._control(InboxFormNow, "form_now", session, if_due=if_due)

    async def add(
        self,
        texts: str | Sequence[Message],
        session: Any,
        user: Any,
        at: Any = None,
        *,
        to_agent: bool = False,
    ) -> Added:
        """Texts become messages of the session; of our own for the agent and user, which is formed at once.

        `at`: when they were said, where they do not say so themselves. `to_agent`: of our own for the agent alone;
        the user stays their author, so that forgetting reaches them.
        """
        said = {} if at is None else {"created_at": past(at, self.memory.clock())}
        messages = [
            {**said, **message} for message in messages_of(texts, self.memory.settings.tailer.text_limit)
        ]
        author = None if user is None else typed(user, "user")
        name = own_session(self.agent_id, None if to_agent else author)
        there = name if session is None else session
        typed_session = typed(there, "session")
        asked: list[Asked] = [
            checked(
                InboxAddedText,
                self._fields("added_text"),
                session_id=there,
                **message,
                **_author(message, user),
            )
            for message in messages
        ]
        ids = tuple(encode_id(request.id) for request in asked)
        if session is None:
            asked.append(checked(InboxFormNow, self._fields("form_now"), session_id=there))
        await self._write(asked)
        return Added(ids, typed_session)

    async def forget(self, what: Forgettable, target: Any) -> str:
        """Request that something is forgotten for ever."""
        return await self._one(checked(InboxForget, self._fields("forget"), what=what, target=target))

    async def _control(
        self,
        document: type[InboxSessionEnded] | type[InboxFormNow],
        kind: str,
        session: Any,
        **fields: bool,
    ) -> str:
        typed(session, "session")
        return await self._one(checked(document, self._fields(kind), session_id=session, **fields))

    def _fields(self, kind: str) -> dict[str, Any]:
        return {"_id": ObjectId(), "kind": kind, "asked_by": self.asked_by[:256]}

    async def _one(self, asked: Asked) -> str:
        await self._write([asked])
        return encode_id(asked.id)

    async def _write(self, asked: Sequence[Asked]) -> None:
        """Insert the requests in order, as the change stream carries them."""
        inbox = self.memory.source[self.memory.settings.names[InboxFormNow.COLLECTION]]
        try:
            await inbox.insert_many([request.model_dump(exclude_none=True) for request in asked])
        except UnicodeEncodeError:
            raise Invalid("a text is not valid Unicode", "Leave out lone surrogates.") from None


def checked(document: type[Any], fields: dict[str, Any], **rest: Any) -> Any:
    """Return a document of the inbox; Invalid."""
    try:
        return document.model_validate({**fields, **rest}, strict=False)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['type']}" for detail in error.errors()[:3]
        )
        raise Invalid(f"the request is not valid: {wrong}") from None


def _author(message: Mapping[str, Any], user: Any) -> dict[str, Any]:
    return {"user_id": user} if message["role"] == "user" else {}


def messages_of(texts: Any, limit: int) -> list[dict[str, Any]]:
    """Return role, text and time of each message; a long text in parts."""
    given = [{"role": "user", "content": texts}] if isinstance(texts, str) else texts
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise Invalid(f"{type(texts).__name__} cannot be added", "Give a text, or a list of messages.")
    split = [part for message in cast("Sequence[Any]", given) for part in _split(message, limit)]
    if not split:
        raise Invalid("there is no text to add")
    if len(split) > MOST_ADDED_TEXTS or sum(len(part["text"]) for part in split) > MOST_ADDED_CHARACTERS:
        raise Invalid(
            "this is too much to add at once",
            f"At most {MOST_ADDED_TEXTS} messages (of {limit:,} characters each), "
            f"{MOST_ADDED_CHARACTERS:,} characters in all.",
        )
    return split


def _split(message: Any, limit: int) -> list[dict[str, Any]]:
    if not isinstance(message, Mapping):
        raise Invalid("a message must be a mapping", 'Give {"role": "user", "content": "…"}.')
    fields = cast("Mapping[str, Any]", message)
    role = fields.get("role", "user")
    if role not in ROLES:
        raise Invalid("a message has an unknown role", f"One of: {', '.join(ROLES)}.")
    try:
        text = text_of(fields.get("content"))
    except Unusable as error:
        raise Invalid(f"a message's {error}") from None
    at = _moment(fields.get("created_at"))
    return [{"role": role, "text": part, **at} for part in parts_of(text, limit)]


def past(at: Any, now: datetime) -> datetime:
    """Return a time that is not in the future; tolerate a clock that is a little ahead."""
    written = moment_of(at)
    if written is None:
        raise Invalid("`at` is not a time", "Give a date, ISO text, or seconds since 1970.")
    said = datetime.fromisoformat(written)
    if said > now + AHEAD:
        raise Invalid("`at` is in the future", "Give the time at which it was said.")
    return min(said, now)


def _moment(value: Any) -> dict[str, datetime]:
    if value is None:
        return {}
    written = moment_of(value)
    if written is None:
        raise Invalid("a message's created_at is not a time", "Give a date, ISO text, or seconds since 1970.")
    return {"created_at": datetime.fromisoformat(written).replace(tzinfo=UTC)}
