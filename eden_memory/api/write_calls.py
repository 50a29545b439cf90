"""The calls of MemoryService that request changes through `memory_inbox`, in order with the chat."""

from collections.abc import Sequence
from typing import Any

from eden_memory.access.callers import Refused
from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.api.inbox_requests import Message, Requests
from eden_memory.api.reach import KnownSession, SessionReach
from eden_memory.api.read_calls import ReadCalls
from eden_memory.app.memory import SharedMemory
from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.forgetting.forgetting_rules import BlobRef
from eden_memory.memory.browsing_store import Browsing, scopes_of
from eden_memory.memory.results import Added
from eden_memory.mongo.application_ids import raw, typed
from eden_memory.mongo.document_fields import getter
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.documents import Message as StoredMessage
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings


class WriteCalls(ReadCalls):
    """Each call returns the typed id of its request at once; the running system carries it out a moment later."""

    @property
    def _requests(self) -> Requests:
        return Requests(self.memory, self._agent_id, self._asked_by)

    async def on_session_end(self, session: Any) -> str:
        """End a session: form its last window, and consolidate its memory."""
        return await self._requests.end(session)

    async def maybe_form_memories(self, session: Any) -> str:
        """Form what is pending in the session if a window is due: enough messages or tokens, or idle for long enough.

        The running system decides this for itself all the time; call it where your code expects the decision to be
        asked for. :meth:`form_now` forms whatever the count.
        """
        return await self._requests.form(session, if_due=True)

    async def process_cold_session(self, session: Any) -> str:
        """Form what is pending in a session that has gone cold: idle for long enough, with enough messages.

        The same request as :meth:`maybe_form_memories`: a session that is not cold is left as it is.
        """
        return await self._requests.form(session, if_due=True)

    async def form_now(self, session: Any) -> str:
        """Form what is pending in the session now, however little."""
        return await self._requests.form(session, if_due=False)

    async def add(
        self,
        text_or_messages: str | Sequence[Message],
        *,
        session: Any = None,
        user: Any = None,
        scope: str | None = None,
        at: Any = None,
    ) -> Added:
        """Remember a text, or messages, without a chat: formed as chat messages are.

        A message is `{"role": "user", "content": "…"}`, with an optional `created_at`. In a `session` they join what
        is said there. Without one they stand in a session of their own for this agent and user (or the agent
        alone), and are formed at once. `scope` says whose memory it becomes, outside of sessions: `user` (unset, with
        a user) or `agent` (unset, without), which all of its users see, whoever is named as the author.
        `at` says when it was said, where a message does not say so itself: a date (UTC unless it says), ISO text or
        seconds since 1970, not in the future.

        Invalid; NotFound for a session that the user is not in; Refused where the caller may not change what others
        see.
        """
        to_agent = self._is_for_all(scope, session, user)
        if session is not None and user is not None:
            _, view, _ = await self._seen(session, user)
            if not view.present:
                raise NotFound("there is no such session here")
        return await self._requests.add(text_or_messages, session, user, at, to_agent=to_agent)

    async def edit(
        self,
        fact_id: str,
        text: str,
        *,
        session: Any = None,
        user: Any = None,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Give a fact another text; not carried out if it no longer stands at `expected_version` by then.

        NotFound; Conflict if it is retired, or at another version already; Invalid; Refused where it is shared, and
        this service is for one who may not change that.
        """
        fact, scope = await self._changeable(fact_id, session, user, expected_version)
        return await self._requests.command(
            "edit", fact, scope, text=text, expected_version=expected_version, reason=reason
        )

    async def retire(
        self,
        fact_id: str,
        *,
        session: Any = None,
        user: Any = None,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Take a fact out of search and context; its history stays. Errors as of :meth:`edit`."""
        fact, scope = await self._changeable(fact_id, session, user, expected_version)
        return await self._requests.command(
            "retire", fact, scope, expected_version=expected_version, reason=reason
        )

    async def forget(self, what: Forgettable, target: Any, *, session: Any = None, user: Any = None) -> str:
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

    def _is_for_all(self, scope: str | None, session: Any, user: Any) -> bool:
        """Return whether a text is added to the agent's memory, for all of its users."""
        if scope not in (None, "user", "agent"):
            raise Invalid(f"texts cannot be added to the scope {scope!r:.40}", "It is user or agent.")
        if scope is not None and session is not None:
            raise Invalid(
                "a scope is only for texts outside of sessions", "Leave out the session, or the scope."
            )
        if scope == "user" and user is None:
            raise Invalid("the scope `user` needs a user", "Name the user, or leave out the scope.")
        if scope == "agent" and self.changes_shared is False:
            raise _seen_by_others("agent")
        return scope == "agent"

    async def _changeable(
        self, fact_id: str, session: Any, user: Any, expected_version: int | None
    ) -> tuple[Fact, Scope]:
        asked, view, readers = await self._seen(session, user)
        fact, scope = await self._browsing(readers).fact(asked, view, fact_id)
        self._demand_own(scope, asked.user_id, fact.sources)
        if not fact.active:
            raise Conflict("the fact is retired", "Only its history is left.")
        if expected_version not in (None, fact.version):
            raise Conflict(f"the fact is at version {fact.version}", "Read it again, and ask again.")
        return fact, scope

    def _demand_own(self, scope: Scope, user_id: str | None, sources: Sequence[SourceMessage]) -> None:
        """Raise Refused if others see the memory and the asker may not change it."""
        if scope.kind in ("user", "session") or self.changes_shared:
            return
        if self.changes_shared is False:
            raise _seen_by_others(scope.kind)
        if user_id is not None and {source.user_id for source in sources} != {user_id}:
            raise Refused(
                f"this memory of the {scope.kind} has sources of other users",
                "Name no user to change it as the operator.",
            )


def _seen_by_others(kind: str) -> Refused:
    return Refused(
        f"the memory of the {kind} is visible to others, too",
        "It takes a key with the right `admin`, or one bound to no user.",
    )


class ForgetPermission:
    """`target` is the application's id of a message, session or user, and the text id of what is ours."""

    def __init__(self, memory: SharedMemory, settings: Settings, browsing: Browsing) -> None:
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
                return await self._browsing.scope_of_reflection(asked, view, target)
            case "blob":
                return _blob(target, asked, view)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise Invalid("there is no such thing to forget")
        return None

    async def _message(self, message: str, asked: Asker) -> None:
        """Raise NotFound unless the asking user wrote the message, or is alone in its session."""
        session, author = await self._place(message)
        if asked.session_id not in (None, session):
            raise _nothing("message")
        known = await self._reach.known(session)
        if not _agents(asked, known):
            raise _nothing("message")
        alone = _is_alone(known, asked.user_id) and author is None
        if asked.user_id is not None and author != asked.user_id and not alone:
            raise _nothing("message")

    async def _place(self, message: str) -> tuple[str, str | None]:
        """Its session and author, as memory knows them, or the application's own document."""
        settings = self._settings
        stored = self._memory.database[settings.names[StoredMessage.COLLECTION]]
        row = await stored.find_one({"_id": message}, {"session_id": 1, "user_id": 1})
        if row is not None and row.get("session_id") is not None:
            return row["session_id"], row.get("user_id")
        paths = settings.messages
        said = await self._memory.source[paths.collection].find_one({"_id": raw(message, "message")})
        session, user = (getter(path)(said or {}) for path in (paths.session_id, paths.user_id))
        if session is None:
            raise _nothing("message")
        return typed(session, "session"), None if user is None else typed(user, "user")

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
