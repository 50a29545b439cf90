"""Asking for changes: through `memory_inbox`, in order with the chat, carried out by the running system."""

from collections.abc import Sequence
from typing import Any

from eden_memory.api.access import Refused
from eden_memory.api.calls.forgettable import Forgetting
from eden_memory.api.calls.lists import ListCalls
from eden_memory.api.calls.requests import Message, Requests
from eden_memory.api.errors import Conflict, NotFound
from eden_memory.api.results import Added
from schemas.documents import Fact
from schemas.events.forgetting import Forgettable
from schemas.scopes import Scope


class AskCalls(ListCalls):
    """Each returns the typed id of its request at once; what it asks for is done a moment later."""

    @property
    def _requests(self) -> Requests:
        return Requests(self.memory, self._agent_id, self._asked_by)

    async def on_session_end(self, session: Any) -> str:
        """The session is over: its last window is formed and its memory consolidated."""
        return await self._requests.end(session)

    async def maybe_form_memories(self, session: Any) -> str:
        """Form what is pending in the session now, if anything is."""
        return await self._requests.form(session)

    async def process_cold_session(self, session: Any) -> str:
        """As :meth:`maybe_form_memories`, without waiting until the session has been idle for long enough."""
        return await self._requests.form(session)

    async def add(
        self, text_or_messages: str | Sequence[Message], *, session: Any = None, user: Any = None
    ) -> Added:
        """Remember a text, or messages, without a chat: formed as chat messages are.

        A message is `{"role": "user", "content": "…"}`, with an optional `created_at`. In a `session` they join what
        is said there. Without one they stand in a session of their own for this agent and user (or the agent
        alone), and are formed at once. Invalid; NotFound for a session that the user is not in.
        """
        if session is not None and user is not None:
            _, view, _ = await self._seen(session, user)
            if not view.present:
                raise NotFound("there is no such session here")
        return await self._requests.add(text_or_messages, session, user)

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
            self._demand_own(scope)
        return await self._requests.forget(what, target)

    async def _changeable(
        self, fact_id: str, session: Any, user: Any, expected_version: int | None
    ) -> tuple[Fact, Scope]:
        asked, view, readers = await self._seen(session, user)
        fact, scope = await self._browsing(readers).fact(asked, view, fact_id)
        self._demand_own(scope)
        if not fact.active:
            raise Conflict("the fact is retired", "Only its history is left.")
        if expected_version not in (None, fact.version):
            raise Conflict(f"the fact is at version {fact.version}", "Read it again, and ask again.")
        return fact, scope

    def _demand_own(self, scope: Scope) -> None:
        """Refused, where others see it too and the asker's key does not reach so far."""
        if scope.kind not in ("user", "session") and not self.changes_shared:
            raise Refused(
                f"the memory of the {scope.kind} is seen by others, too",
                "It takes a key with the right `admin`, or one bound to no user.",
            )
