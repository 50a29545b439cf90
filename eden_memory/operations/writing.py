"""The calls of MemoryService that request changes through `memory_inbox`, in order with the chat."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.stream_store import StreamName, StreamStore
from eden_memory.errors import Invalid, NotFound
from eden_memory.forgetting.forgetting_rules import BlobRef
from eden_memory.memory.browsing_store import Browsing, scopes_of
from eden_memory.memory.memory_views import Added, WindowAsked
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import raw, typed, typed_or_none
from eden_memory.mongo.lenient_decoding import found_document
from eden_memory.operations import parameters as p
from eden_memory.operations.correcting import CorrectingCalls, seen_by_others
from eden_memory.operations.inbox_requests import Message
from eden_memory.operations.reach import KnownSession, SessionReach
from eden_memory.schemas.documents import Message as StoredMessage
from eden_memory.schemas.events.chat import participant_of, role_of, roles_of
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings


class WriteCalls(CorrectingCalls):
    """Each call returns the typed id of its request at once; the running system carries it out a moment later."""

    async def on_session_end(self, session: p.Session) -> str:
        """End a session: form its last window, and consolidate its memory."""
        return await self._requests.end(session)

    async def maybe_form_memories(
        self, session: p.Session, user: p.User = None, agent: Any = None
    ) -> WindowAsked:
        """Form what is pending in the session if a window is due: enough messages or tokens, or idle for long enough.

        `formed` of the result: what waits now makes a window. The running system decides this for itself all the
        time, and decides about the request in its place among the messages; call it where your code expects the
        decision to be asked for. :meth:`form_now` forms whatever the count.

        `user` and `agent` are checked if they are given: NotFound unless the session is theirs.
        """
        typed_session = typed(session, "session")
        if agent is not None or user is not None:
            whose = self._agent_id if agent is None else typed(agent, "agent")
            await self._demand_session(Asker(whose, typed_session, typed_or_none(user, "user")))
        formed = await (await self.memory.current()).recent.are_due(typed_session)
        return WindowAsked(await self._requests.form(session, if_due=True), formed)

    async def _demand_session(self, asked: Asker) -> None:
        """Raise NotFound unless the session is the agent's, and the user, if one is named, is in it."""
        known = await SessionReach(self.memory).known(asked.session_id or "")
        if known is None or not _agents(asked, known):
            raise _nothing("session")
        if asked.user_id is not None:
            readers = await self.memory.current()
            if not (await readers.contexts.view(asked)).present:
                raise _nothing("session")

    async def process_cold_session(self, session: p.Session) -> str:
        """Form what is pending in a session that has gone cold: idle for long enough, with enough messages.

        The same request as :meth:`maybe_form_memories`: a session that is not cold is left as it is.
        """
        return await self._requests.form(session, if_due=True)

    async def form_now(self, session: p.Session) -> str:
        """Form what is pending in the session now, however little."""
        return await self._requests.form(session, if_due=False)

    async def add(
        self,
        text_or_messages: str | Sequence[Message],
        *,
        session: p.Session = None,
        user: p.User = None,
        scope: p.AddedScope = None,
        at: p.At = None,
        verbatim: p.Verbatim = False,
        kind: p.AddedKind = "fact",
        expires_at: Annotated[datetime | None, p.PYTHON_ALONE] = None,
    ) -> Added:
        """Remember a text, or messages, without a chat: formed as chat messages are.

        A message is `{"role": "user", "content": "…"}`, with an optional `created_at`. In a `session` they join what
        is said there. Without one they stand in a session of their own for this agent and user (or the agent
        alone), and are formed at once. `scope` says whose memory it becomes, outside of sessions: `user` (unset, with
        a user), `agent` (unset, without) or `shard:NAME`, which all of its users see, whoever is named as the author.
        `at` says when it was said, where a message does not say so itself: a date (UTC unless it says), ISO text or
        seconds since 1970, not in the future.

        `verbatim`: each text is a fact (`kind` reflection: a reflection) as it stands, without a model. It is the
        user's memory, or the agent's without a user; in a session it needs its user. `expires_at`: when such a fact
        retires by itself.

        Invalid; NotFound for a session that the user is not in, or an unknown shard; Refused where the caller
        may not change what others see.
        """
        given = await self._given(scope, session, user)
        if session is not None and user is not None:
            _, view, _ = await self._seen(session, user)
            if not view.present:
                raise NotFound("there is no such session here")
        if expires_at is not None and not (verbatim and kind == "fact"):
            raise Invalid("only a fact that is added word for word expires")
        if not verbatim:
            return await self._requests.add(text_or_messages, session, user, at, given=given)
        whose = self._scope_of_verbatim(session, user, given)
        return await self._requests.add_verbatim(
            kind, text_or_messages, whose, session=session, at=at, expires_at=expires_at
        )

    async def forget(
        self, what: Forgettable, target: Any, *, session: p.Session = None, user: p.User = None
    ) -> str:
        """Forget for ever: a message, session or user by its id, a fact or reflection by its text id, a version of
        a blob by `<scope key>@<version>`.

        With a `user` or `session` only what is theirs alone, NotFound otherwise; without, it is the application
        that asks for its agent. A user is forgotten with all agents.
        """
        asked, view, readers = await self._seen(session, user)
        scope = await ForgetPermission(self.memory, readers.settings, self._browsing(readers)).demand(
            what, target, asked, view
        )
        if scope is not None:
            sources = await self._browsing(readers).sources(what, target)
            self._demand_own(scope, asked.user_id, sources)
        return await self._requests.forget(what, target)

    def _scope_of_verbatim(self, session: Any, user: Any, given: Scope | None) -> Scope:
        if session is not None and user is None:
            raise Invalid("a verbatim text in a session needs a user", "Name the user whose memory it is.")
        if given is not None and user is not None:
            raise Invalid("a verbatim text for all users has no author", "Name no user.")
        if user is not None:
            return Scope.of_user(self._agent_id, typed(user, "user"))
        scope = given or Scope.of_agent(self._agent_id)
        self._demand_own(scope, None, ())
        return scope

    async def _given(self, label: str | None, session: Any, user: Any) -> Scope | None:
        """Return the scope that a text is added to for all of the agent's users; None: it is not."""
        of_shard = label is not None and label.startswith("shard:")
        if label not in (None, "user", "agent") and not of_shard:
            raise Invalid(
                f"texts cannot be added to the scope {label!r:.40}", "It is user, agent or shard:NAME."
            )
        if label is not None and session is not None:
            raise Invalid(
                "a scope is only for texts outside of sessions", "Leave out the session, or the scope."
            )
        if label == "user" and user is None:
            raise Invalid("the scope `user` needs a user", "Name the user, or leave out the scope.")
        if label in (None, "user"):
            return None
        if self.changes_shared is False:
            raise seen_by_others("shard" if of_shard else "agent")
        return await self._shard(label) if of_shard else Scope.of_agent(self._agent_id)

    async def _shard(self, label: str) -> Scope:
        name = StreamName.parse(self._agent_id, label)
        readers = await self.memory.current()
        stream = await StreamStore(self.memory.database, readers.settings).get(name)
        if not stream.active:
            raise Invalid(f"{label} is switched off", "Set `active` of its stream to true.")
        return Scope.of_shard(self._agent_id, name.shard or "")


class ForgetPermission:
    """`target` is the application's id of a message, session or user, and the text id of what is ours."""

    def __init__(self, memory: ProcessMemory, settings: Settings, browsing: Browsing) -> None:
        """`settings` of the namespace that is read."""
        self._memory, self._settings, self._browsing = memory, settings, browsing
        self._reach = SessionReach(memory)

    async def demand(self, what: Forgettable, target: Any, asked: Asker, view: VisibleMemory) -> Scope | None:
        """NotFound unless it may be forgotten; Invalid for what cannot be. Gives the scope of what is ours."""
        match what:
            case "message":
                await self._message(typed(target, "message"), asked)
            case "session":
                await self._session(typed(target, "session"), asked)
            case "user":
                _user(typed(target, "user"), asked)
            case "fact":
                return (await self._browsing.fact(asked, view, target))[1]
            case "reflection":
                return (await self._browsing.reflection(asked, view, target))[1]
            case "blob":
                return _blob(target, asked, view)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise Invalid("there is no such thing to forget")
        return None

    async def _message(self, message: str, asked: Asker) -> None:
        """Raise NotFound unless the asking user wrote the message, or is alone in its session."""
        session, author, role = await self._place(message)
        if asked.session_id not in (None, session):
            raise _nothing("message")
        known = await self._reach.known(session)
        if not _agents(asked, known):
            raise _nothing("message")
        alone = _is_alone(known, asked.user_id) and participant_of(role, author) is None
        if asked.user_id is not None and author != asked.user_id and not alone:
            raise _nothing("message")

    async def _place(self, message: str) -> tuple[str, str | None, str]:
        """Its session, author and role, as memory knows them, or the application's own document."""
        settings = self._settings
        stored = self._memory.database[settings.names[StoredMessage.COLLECTION]]
        row = await stored.find_one({"_id": message}, {"session_id": 1, "user_id": 1, "role": 1})
        if row is not None and row.get("session_id") is not None:
            return row["session_id"], row.get("user_id"), row["role"]
        paths = settings.messages
        messages = self._memory.source[paths.collection]
        said = await found_document("message", messages, {"_id": raw(message, "message")})
        fields = (paths.session_id, paths.user_id, paths.role)
        session, user, role = (getter(path)(said or {}) for path in fields)
        if session is None:
            raise _nothing("message")
        author = None if user is None else typed(user, "user")
        return typed(session, "session"), author, role_of(role, roles_of(paths.roles))

    async def _session(self, session: str, asked: Asker) -> None:
        """Raise NotFound unless the asking user is alone in the session."""
        known = await self._reach.known(session)
        mine = asked.session_id in (None, session) and _agents(asked, known)
        if asked.user_id is not None:
            mine = mine and _is_alone(known, asked.user_id)
        if not mine:
            raise _nothing("session")


def _is_alone(known: KnownSession | None, user: str | None) -> bool:
    """Return whether nobody but the user is in the session."""
    return known is not None and known.users is not None and set(known.users) == {user}


def _agents(asked: Asker, known: KnownSession | None) -> bool:
    """Return whether the session is the agent's, as far as is known."""
    return known is None or known.agent_id is None or known.agent_id == asked.agent_id


def _user(user: str, asked: Asker) -> None:
    if asked.user_id != user and (asked.user_id is not None or asked.session_id is not None):
        raise _nothing("user")


def _blob(target: Any, asked: Asker, view: VisibleMemory) -> Scope:
    """Return the scope of a blob version that exists; a future version cannot be forgotten in advance."""
    parsed = BlobRef.parse(target) if isinstance(target, str) else None
    if parsed is None:
        raise _nothing("blob")
    key, version = parsed
    shown = next((visible.snapshot for visible in view.shown if visible.scope.key == key), None)
    given = 0 if shown is None else max(shown.highest_blob_version, shown.blob_version)
    if version > given:
        raise _nothing("blob")
    return scopes_of(asked, view)[key]


def _nothing(what: str) -> NotFound:
    return NotFound(f"there is no such {what} here")
