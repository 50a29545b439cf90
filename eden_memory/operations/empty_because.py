"""Why a read found nothing, for operators: others learn nothing of what they may not see."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.app.readers import Readers
from eden_memory.directory.id_reader_store import IdKind
from eden_memory.directory.participants import DEFAULT_AGENT, whose
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import Page
from eden_memory.memory.snapshot_store import of_users
from eden_memory.mongo.ids import decode_id
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.operation import Operation
from eden_memory.operations.parameters import ContextText
from eden_memory.schemas.documents import DeadLetter, Fact, Message, Reflection, Snapshot
from eden_memory.search.search_requests import SearchReport
from eden_memory.windows.window_list_store import PENDING

log = LibraryLogger()
EXPLAINED = frozenset({"context", "search", "list facts", "list reflections", "list blobs"})
"""Operations whose empty answers are explained."""
MOST_NAMED = 5
"""Agents, users or sessions that a reason names."""
SECONDS = 1.0
"""For all of them: a reader never waits longer for a reason."""
LONGEST_HEADER = 500
UNPRINTABLE = re.compile(r"[^ -~]")
Reason = Literal[
    "unknown_agent",
    "unknown_user",
    "unknown_session",
    "no_match",
    "other_agent",
    "several_users",
    "sharing_hides",
    "not_read_yet",
    "not_formed_yet",
    "given_up",
    "retired",
    "nothing_formed",
]


@dataclass(frozen=True, slots=True)
class EmptyBecause:
    """Why nothing was found, and what to do about it; ids typed.

    `what` names no ids but those that were asked for: it goes in a header, which proxies may log. `hint` may.
    """

    reason: Reason
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}"

    @property
    def header(self) -> str:
        """As the value of an HTTP header: printable ASCII, no blank at its end."""
        return UNPRINTABLE.sub("?", f"{self.reason}; {self.what}")[:LONGEST_HEADER].rstrip()


async def empty_because(call: AdmittedCall, operation: Operation, found: Any) -> EmptyBecause | None:
    """Return why an answer is empty; None: it is not, the caller is no operator, or no reason is found in time.

    The answer itself is right: what fails here, such as a right that is missing on a collection, never fails it.
    """
    if not call.caller.is_operator or operation.name not in EXPLAINED or not _is_empty(found):
        return None
    try:
        async with asyncio.timeout(SECONDS):
            return await _Reasons(call, await call.service.memory.current()).find()
    except (PyMongoError, TimeoutError) as error:
        log.info(
            "the reason of an empty answer is not known", operation=operation.name, error=type(error).__name__
        )
        return None


def _is_empty(found: Any) -> bool:
    match found:
        case ContextText():
            return not found.context
        case SearchReport():
            return not (found.facts or found.unformed)
        case Page():
            return not cast("Page[Any]", found).items
        case _:
            return not found


class _Reasons:
    """Looks for the reason of one empty answer, what is asked wrongly first."""

    def __init__(self, call: AdmittedCall, readers: Readers) -> None:
        self._call, self._asked, self._readers = call, call.asked, readers
        self._memory, self._mapped = call.service.memory, readers.settings

    async def find(self) -> EmptyBecause:
        """Return the first reason that applies."""
        asked, view = self._asked, await self._readers.contexts.view(self._asked)
        return (
            await self._unknown(asked)
            or self._unmatched(view)
            or await self._with_another_agent(asked)
            or self._among_several(asked, view)
            or await self._hidden(view)
            or await self._waiting(asked)
            or await self._given_up(asked)
            or await self._retired(view)
            or EmptyBecause(
                "nothing_formed",
                "no memory formed from what was said here",
                '`eden why "TEXT" --user USER` explains what became of a message.',
            )
        )

    async def _unknown(self, asked: Asker) -> EmptyBecause | None:
        if not await self._agent_is_known(asked.agent_id):
            return await self._nobody("unknown_agent", "agent", asked.agent_id)
        if asked.session_id is not None and not await self._session_is_known(asked.session_id):
            return await self._nobody("unknown_session", "session", asked.session_id)
        if asked.user_id is not None and not await self._is_there("user", asked.user_id):
            return await self._nobody("unknown_user", "user", asked.user_id)
        return None

    async def _nobody(self, reason: Reason, kind: IdKind, name: str) -> EmptyBecause:
        there = await self._memory.ids.sample(kind)
        if kind == "agent" and not there:
            there = [DEFAULT_AGENT]
        more = ", …" if len(there) > MOST_NAMED else ""
        listed = ", ".join(there[:MOST_NAMED]) + more
        hint = f"The newest {kind}s are {listed}: ids keep their type." if there else ""
        if kind == "agent" and len(there) == 1:
            hint = f"{hint} EDEN_AGENTS_DEFAULT={there[0]} makes it the agent of calls that name none."
        exist = "" if there else f"; no document names any {kind} yet"
        return EmptyBecause(
            reason, f"there is no {kind} {name}{exist}", hint or "Ids keep their type (`s.TEXT`)."
        )

    async def _agent_is_known(self, agent: str) -> bool:
        if self._mapped.sessions.collection is None and agent == DEFAULT_AGENT:
            return True
        return await self._is_there("agent", agent)

    async def _session_is_known(self, session: str) -> bool:
        return whose(session) is not None or await self._is_there("session", session)

    async def _is_there(self, kind: IdKind, name: str) -> bool:
        """Whether memory is stored of it, or a document of the application names it."""
        stored = await self._of(Snapshot.COLLECTION).find_one({f"{kind}_id": name}, {"_id": 1})
        return stored is not None or await self._memory.ids.exists(kind, decode_id(name))

    def _unmatched(self, view: VisibleMemory) -> EmptyBecause | None:
        facts = sum(shown.snapshot.active_facts for shown in view.shown)
        if not facts:
            return None
        return EmptyBecause(
            "no_match",
            f"{facts:,} facts may be seen here, and none of them is what was asked for",
            "Ask with other words, other kinds or scopes, or without limits of time.",
        )

    async def _with_another_agent(self, asked: Asker) -> EmptyBecause | None:
        if asked.user_id is None:
            return None
        others: list[str] = await self._of(Snapshot.COLLECTION).distinct(
            "agent_id", {"user_id": asked.user_id, "agent_id": {"$ne": asked.agent_id}}
        )
        own = await self._of(Snapshot.COLLECTION).find_one(
            {"user_id": asked.user_id, "agent_id": asked.agent_id}, {"_id": 1}
        )
        if not others or own is not None:
            return None
        named = ", ".join(sorted(others)[:MOST_NAMED])
        return EmptyBecause(
            "other_agent",
            f"memory of the user {asked.user_id} is with other agents, not with {asked.agent_id}",
            f"Memory belongs to one agent: name {named}.",
        )

    def _among_several(self, asked: Asker, view: VisibleMemory) -> EmptyBecause | None:
        if asked.session_id is None or view.users is None or len(view.users) < 2:
            return None
        return EmptyBecause(
            "several_users",
            f"the session has {len(view.users)} users: none of them sees memory of their own in it",
            "docs/how-to/group-rooms.md shows what such a session can remember.",
        )

    async def _hidden(self, view: VisibleMemory) -> EmptyBecause | None:
        if not view.private:
            return None
        query = of_users(view.private)
        hidden = await self._of(Fact.COLLECTION).count_documents({"active": True, **query})
        hidden += await self._of(Reflection.COLLECTION).count_documents(query)
        if not hidden:
            return None
        return EmptyBecause(
            "sharing_hides",
            f"sharing is private and hides {hidden:,} facts and reflections that rest on what users said",
            "`eden sharing list --hidden` shows them.",
        )

    async def _waiting(self, asked: Asker) -> EmptyBecause | None:
        """Messages of the session or user that are not formed yet, or that the tailer has not read."""
        about = _about(asked)
        if not about:
            return None
        messages = self._of(Message.COLLECTION)
        waiting = await messages.count_documents({**PENDING, **about})
        if waiting:
            said = "1 message waits" if waiting == 1 else f"{waiting:,} messages wait"
            return EmptyBecause(
                "not_formed_yet",
                f"{said} for a window to close, and nothing is formed yet",
                "`eden status` shows what waits and when it forms; `eden session form SESSION` forms it now.",
            )
        if await messages.find_one(about, {"_id": 1}) is None:
            return EmptyBecause(
                "not_read_yet",
                "no message of this session or user has been read yet",
                "`eden run` reads them, and must be running; `eden doctor` checks the mapping.",
            )
        return None

    async def _given_up(self, asked: Asker) -> EmptyBecause | None:
        named = [f"{kind.removesuffix('_id')}:{value}" for kind, value in _about(asked).items()]
        query: dict[str, Any] = {"state": "dead", **({"named": {"$in": named}} if named else {})}
        dead = await self._of(DeadLetter.COLLECTION).count_documents(query)
        if not dead:
            return None
        return EmptyBecause(
            "given_up",
            f"forming memory failed for good {dead:,} times",
            "`eden dead list` shows why; `eden dead retry` tries again.",
        )

    async def _retired(self, view: VisibleMemory) -> EmptyBecause | None:
        keys: Sequence[str] = view.scope_keys
        query: dict[str, Any] = {"scope_key": {"$in": list(keys)}, "active": False}
        steps = [{"$match": query}, {"$group": {"_id": "$retired_because", "count": {"$sum": 1}}}]
        rows = await (await self._of(Fact.COLLECTION).aggregate(steps)).to_list()
        if not rows:
            return None
        counted = ", ".join(f"{row['count']:,} {row['_id'] or 'asked'}" for row in rows)
        return EmptyBecause(
            "retired", f"all facts here are retired: {counted}", "`eden facts --active all` shows them."
        )

    def _of(self, collection: str) -> AsyncCollection[Any]:
        return self._memory.database[self._mapped.names[collection]]


def _about(asked: Asker) -> dict[str, str]:
    """Return the session that is asked about, else the user."""
    if asked.session_id is not None:
        return {"session_id": asked.session_id}
    return {} if asked.user_id is None else {"user_id": asked.user_id}


class OneAtATime:
    """Explains one answer after the other at a server: who asks meanwhile gets none, so reads cost no more."""

    def __init__(self) -> None:
        self._busy = asyncio.Lock()

    async def find(self, call: AdmittedCall, operation: Operation, found: Any) -> EmptyBecause | None:
        """As `empty_because`; None while another answer is explained."""
        if self._busy.locked():
            return None
        async with self._busy:
            return await empty_because(call, operation, found)
