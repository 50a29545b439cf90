"""Requests of applications and commands on memory, written to `memory_inbox` in order after they are checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast, get_args

from bson import ObjectId
from pydantic import ValidationError

from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.participants import own_session
from eden_memory.errors import Invalid, NotFound
from eden_memory.limits import (
    LONGEST_BLOB,
    LONGEST_FACT,
    LONGEST_REASON,
    MOST_ADDED_CHARACTERS,
    MOST_ADDED_TEXTS,
)
from eden_memory.memory.memory_views import Added
from eden_memory.mongo.changes import Unreadable
from eden_memory.mongo.document_fields import Unusable, moment_of, text_of
from eden_memory.mongo.ids import decode_id, encode_id, typed
from eden_memory.mongo.lenient_decoding import documents_by_id
from eden_memory.operations.parameters import VerbatimKind
from eden_memory.schemas.documents import (
    Fact,
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    InboxSessionEnded,
    Reflection,
)
from eden_memory.schemas.events.chat import Role
from eden_memory.schemas.events.facts import Action, By
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.events.reflections import MemoryAction
from eden_memory.schemas.scopes import Scope
from eden_memory.source.inbox_store import parts_of

Message = Mapping[str, Any]
"""`{"role": "user", "content": "…"}`, with an optional `created_at`."""
Asked = (
    InboxAddedText | InboxFactCommand | InboxMemoryCommand | InboxForget | InboxFormNow | InboxSessionEnded
)
AHEAD = timedelta(minutes=1)
ROLES: tuple[str, ...] = get_args(Role)


KINDS = ("fact", "reflection")


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
        given: Scope | None = None,
    ) -> Added:
        """Texts become messages of the session; of our own for the agent and user, which is formed at once.

        `at`: when they were said, where they do not say so themselves. `given`: of our own for the agent, or a
        shard of it; the user stays their author, so that forgetting reaches them.
        """
        if session is None:
            await self._demand_agent()
        said = {} if at is None else {"created_at": past(at, self.memory.clock())}
        messages = [
            {**said, **message} for message in messages_of(texts, self.memory.settings.tailer.text_limit)
        ]
        author = None if user is None else typed(user, "user")
        of_shard = given and given.shard
        name = own_session(self.agent_id, author if given is None else None, shard=of_shard)
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

    async def _demand_agent(self) -> None:
        """Raise NotFound if agents have documents and this one has none: what is added for it would wait for that."""
        collection = self.memory.settings.agents.collection
        if collection is None:
            return
        found = await documents_by_id(self.memory.source[collection], [self.agent_id])
        if self.agent_id not in found or isinstance(found[self.agent_id], Unreadable):
            raise NotFound(
                f"there is no agent {decode_id(self.agent_id)} in {collection}",
                "Write its document first, or name another agent.",
            )

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


class CommandRequests(Requests):
    """Writes commands for one agent, each decided in the order of its scope and without a model."""

    by: ClassVar[By] = "application"

    async def fact_command(
        self,
        action: Action,
        fact: Fact,
        scope: Scope,
        *,
        text: str | None = None,
        expected_version: int | None = None,
        reason: str | None = None,
        replaced_by: str | None = None,
        expires_at: datetime | None = None,
    ) -> str:
        """Request a change of a fact."""
        _demand_text(text, LONGEST_FACT)
        _demand_reason(reason)
        fields = {"action": action, "fact_id": fact.id, "expected_version": expected_version, "text": text}
        return await self._one(
            self._fact_command(scope, reason=reason, replaced_by=replaced_by, expires_at=expires_at, **fields)
        )

    async def memory_command(
        self,
        action: MemoryAction,
        scope: Scope,
        *,
        text: str | None = None,
        reason: str | None = None,
        **fields: Any,
    ) -> str:
        """Request a change of a reflection or of a scope's blob; `fields`: the rest of InboxMemoryCommand."""
        _demand_text(text, LONGEST_BLOB if action == "edit_blob" else LONGEST_FACT)
        _demand_reason(reason)
        return await self._one(self._memory_command(scope, action=action, text=text, reason=reason, **fields))

    async def mark_private(
        self,
        fact: Fact | None,
        reflections: Sequence[Reflection],
        scope: Scope,
        *,
        private: bool,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Request the mark of a fact and of reflections; return the id of the last request.

        `expected_version`: of the fact, without one of the reflection.
        """
        _demand_reason(reason)
        fields: dict[str, Any] = {"private": private, "reason": reason}
        asked: list[InboxFactCommand | InboxMemoryCommand] = []
        if fact is not None:
            version, expected_version = expected_version, None
            marked = {"action": "mark", "fact_id": fact.id, "expected_version": version, **fields}
            asked.append(self._fact_command(scope, **marked))
        fields |= {"action": "edit_reflection", "expected_version": expected_version}
        asked += [
            self._memory_command(scope, reflection_id=reflection.id, **fields) for reflection in reflections
        ]
        await self._write(asked)
        return encode_id(asked[-1].id)

    async def add_verbatim(
        self,
        kind: VerbatimKind,
        texts: str | Sequence[Message],
        scope: Scope,
        *,
        session: Any = None,
        at: Any = None,
        expires_at: datetime | None = None,
    ) -> Added:
        """Request that each text becomes a fact or reflection as it stands, said at `at` unless it says so itself.

        `expires_at`: when the facts retire.

        They belong to the session, or else to the session of added texts: forgetting it reaches them.
        """
        if kind not in KINDS:
            raise Invalid("there is no such kind of memory to add", f"Of: {', '.join(KINDS)}.")
        own = own_session(self.agent_id, scope.user_id, shard=scope.shard)
        there = own if session is None else session
        now = self.memory.clock()
        said_at = None if at is None else past(at, now)
        asked: list[InboxFactCommand | InboxMemoryCommand] = []
        for message in messages_of(texts, MOST_ADDED_CHARACTERS):
            _demand_text(message["text"], LONGEST_FACT)
            created: datetime | None = message.get("created_at")
            said = said_at if created is None else past(created, now)
            fields = {"text": message["text"], "said_at": said, "session_id": there}
            asked.append(
                self._fact_command(scope, action="add", expires_at=expires_at, **fields)
                if kind == "fact"
                else self._memory_command(scope, action="add_reflection", **fields)
            )
        await self._write(asked)
        return Added(tuple(encode_id(request.id) for request in asked), typed(there, "session"))

    def _fact_command(self, scope: Scope, **fields: Any) -> InboxFactCommand:
        return checked(InboxFactCommand, self._fields("fact_command"), scope=scope, by=self.by, **fields)

    def _memory_command(self, scope: Scope, **fields: Any) -> InboxMemoryCommand:
        return checked(InboxMemoryCommand, self._fields("memory_command"), scope=scope, by=self.by, **fields)


def _demand_text(text: str | None, most: int) -> None:
    if text is not None and (not text.strip() or len(text) > most):
        raise Invalid("the text is empty or too long", f"Give 1 to {most:,} characters.")


def _demand_reason(reason: str | None) -> None:
    if reason is not None and len(reason) > LONGEST_REASON:
        raise Invalid("the reason is too long", f"It may have {LONGEST_REASON:,} characters.")
