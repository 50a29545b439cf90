"""Asking for changes: through `memory_inbox`, in order with the chat, carried out by the running system."""

from collections.abc import Sequence
from typing import Any

from eden_memory.access.callers import Refused
from eden_memory.api.calls.forgettable import Forgetting
from eden_memory.api.calls.lists import ListCalls
from eden_memory.api.calls.requests import Message, Requests
from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.memory.results import Added
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope


class AskCalls(ListCalls):
    """Each returns the typed id of its request at once; what it asks for is done a moment later."""

    @property
    def _requests(self) -> Requests:
        return Requests(self.memory, self._agent_id, self._asked_by)

    async def on_session_end(self, session: Any) -> str:
        """The session is over: its last window is formed and its memory consolidated."""
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
        scope = await Forgetting(self.memory, readers.settings, self._browsing(readers)).demand(
            what, target, asked, view
        )
        if scope is not None:
            sources = await self._browsing(readers).sources(what, target)
            self._demand_own(scope, asked.user_id, sources)
        return await self._requests.forget(what, target)

    def _is_for_all(self, scope: str | None, session: Any, user: Any) -> bool:
        """Whether a text is added to the agent's memory, for all of its users."""
        if scope not in (None, "user", "agent"):
            raise Invalid(f"texts are not added to the scope {scope!r:.40}", "It is user or agent.")
        if scope is not None and session is not None:
            raise Invalid(
                "a scope is said of texts outside of sessions", "Leave out the session, or the scope."
            )
        if scope == "user" and user is None:
            raise Invalid(
                "the scope is a user's, and no user is named", "Name the user, or leave out the scope."
            )
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
        """Refused, where others see it too and the asker does not reach so far."""
        if scope.kind in ("user", "session") or self.changes_shared:
            return
        if self.changes_shared is False:
            raise _seen_by_others(scope.kind)
        if user_id is not None and {one.user_id for one in sources} != {user_id}:
            raise Refused(
                f"this memory of the {scope.kind} does not rest on this user alone",
                "Name no user to change it as the operator.",
            )


def _seen_by_others(kind: str) -> Refused:
    return Refused(
        f"the memory of the {kind} is seen by others, too",
        "It takes a key with the right `admin`, or one bound to no user.",
    )
