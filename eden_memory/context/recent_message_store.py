"""Find the messages of a user that no memory is formed from yet: read when asked, without a model."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_feed import HeardReads
from eden_memory.context.context_xml import RECENT_WORDS, recent_that_fit
from eden_memory.context.written_message_store import (
    MOST_SESSIONS,
    MessageRow,
    SessionNow,
    WrittenMessage,
    WrittenMessages,
    is_asked_for,
    is_pending,
    named_in,
    unsettled,
    was_alone,
)
from eden_memory.directory.author_store import Authors, MessageAuthors
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import Audiences, Missing, Off, SessionFacts, whose
from eden_memory.forgotten import ForgottenMarks, Marks
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.metrics import RECENT_FAILED, RECENT_SECONDS
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, Reflection, SessionState, Stream
from eden_memory.schemas.events import ReflectionFormed
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.formation_completion import named, outcomes_of
from eden_memory.windows.window_rule import Pending, window_limits

log = LibraryLogger()


Database = AsyncDatabase[dict[str, Any]]
T = TypeVar("T")

MOST_SECONDS = 1.0
"""A context or a search is given without these messages then."""

WARN_EVERY_SECONDS = 60.0

NEWEST_VERSION = "~"
"""Above that of every message: no transaction is taken to go on."""

RECENT = timedelta(hours=24)
"""Greatest age of messages that are not formed yet."""

AT_ONCE = 20
"""Askers of one process whose messages are read at the same time."""


PENDING, LASTS = timedelta(seconds=1), timedelta(seconds=60)
"""How long what is shown holds if no change is heard: while a stage works on a message, and else."""

FIRST_MESSAGES = 20
"""Read first: as a rule they fill a context."""

REDACTED_TOGETHER = 5

ANY_MESSAGE = "messages"
"""Tag of what any message that changes or goes may concern: it may be why a session is not shown."""


@dataclass(frozen=True, slots=True)
class Recent:
    """What a context shows of messages that are not formed yet, newest first, and how long that holds."""

    messages: tuple[RecentMessage, ...] = ()
    tags: frozenset[str] = frozenset()
    """`user:<id>`, `session:<id>`, `message:<id>`, ANY_MESSAGE: what a change of may concern it."""
    seconds: float = 0.0
    """While no change of these is heard; 0: it is not kept."""


NO_RECENT = Recent(seconds=inf)
"""The asker may see none, as long as the memory that is shown stays the same."""


class _Found(NamedTuple):
    """`hidden`: some messages are left out, as another user is in their session; `pending`: stages work on some."""

    messages: tuple[RecentMessage, ...] = ()
    hidden: bool = False
    pending: bool = False


Readings = dict[Hashable, asyncio.Task[Any]]
"""What is being read for several askers, by what it depends on."""

ADDED = "added"
"""Among readings: whether there is any added text."""


class RecentMessages:
    """The messages of one namespace; `source` is the application's database, `memory` our own."""

    def __init__(
        self,
        source: Database,
        memory: Database,
        settings: Settings,
        forgotten: ForgottenMarks,
        clock: Callable[[], datetime],
    ) -> None:
        names = settings.names
        self._on, self._kept = settings.memory.recent, RECENT
        self._limits = window_limits(settings)
        self._written = WrittenMessages(source, memory, settings)
        self._authors = MessageAuthors(source, memory, settings)
        self._presence = MongoPresence(source, memory, settings)
        self._directory = MongoDirectory(source, memory[names[Stream.COLLECTION]], settings)
        self._states = memory[names[SessionState.COLLECTION]]
        self._settled = SettledFormations(memory, names, forgotten)
        self._forgotten, self._clock = forgotten, clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._warned_at = -WARN_EVERY_SECONDS

    async def of_each(self, views: Mapping[Asker, VisibleMemory]) -> dict[Asker, Sequence[RecentMessage]]:
        """Return what contexts of several askers show; a user's are read once for all that ask for the same."""
        readings: Readings = {}
        found = await asyncio.gather(*(self.shown(asked, view, readings) for asked, view in views.items()))
        return {asked: recent.messages for asked, recent in zip(views, found, strict=True)}

    def begin(self, asked: Asker, heard: HeardReads | None = None) -> Readings:
        """Begin to read the sessions of an asker, beside the memory that says whether messages of them are shown.

        `heard` keeps whether there are added texts at all.
        """
        readings: Readings = {}
        if self._on and asked.user_id is not None:
            if heard is not None:
                any_added = heard.get(ADDED, self._written.any_added)
                readings[ADDED] = _noted(asyncio.create_task(any_added))
            self._begin(readings, asked.user_id, self._clock() - self._kept)
        return readings

    def go_on(self, asked: Asker, readings: Readings, scope_keys: Collection[str]) -> None:
        """Begin to read the messages, too, if the memory in these scopes says that they are shown."""
        user = asked.user_id
        if user is not None and user in readings and Scope.of_user(asked.agent_id, user).key in scope_keys:
            read = self._messages(asked, readings, self._clock() - self._kept, whole=False)
            readings[asked] = _noted(asyncio.create_task(read))

    async def shown(
        self, asked: Asker, view: VisibleMemory, readings: Readings | None = None, *, whole: bool = False
    ) -> Recent:
        """Return the messages of the asker's other sessions that a context shows; none where the asker may see none.

        They come from sessions of the same agent in which the asker was always alone. If reading their sessions or
        them takes more than a second, the answer is given without them, and the log says why. `readings`: shared by
        several askers; who gives up ends nobody else's reading. `whole`: the newest 200, with all of their text.
        """
        shared: Readings = {} if readings is None else readings
        if not self._on or not is_asked_for(asked, view):
            return NO_RECENT
        user, now = asked.user_id or "", self._clock()
        since = now - self._kept
        try:
            with RECENT_SECONDS.time():
                self._begin(shared, user, since)
                if asked not in shared:
                    read = self._messages(asked, shared, since, whole=whole)
                    shared[asked] = _noted(asyncio.create_task(read))
                named, found = await asyncio.shield(shared[asked])
                if found.messages:
                    async with asyncio.timeout(MOST_SECONDS):
                        if not await self._presence.is_alone(asked):
                            return Recent()
        except (PyMongoError, TimeoutError) as error:
            RECENT_FAILED.inc()
            self._warn(type(error).__name__)
            return Recent()
        oldest = min((message.said_at for message in found.messages), default=now)
        lasts = PENDING if found.pending else min(LASTS, oldest + self._kept - now)
        tags = {f"user:{user}", *(f"session:{name}" for name in named)}
        tags |= {f"message:{message}" for message in named.values()}
        tags |= {f"message:{message.message_id}" for message in found.messages}
        tags |= {ANY_MESSAGE} if found.hidden else set()
        return Recent(found.messages, frozenset(tags), lasts.total_seconds())

    async def _messages(
        self, asked: Asker, shared: Readings, since: datetime, *, whole: bool
    ) -> tuple[dict[str, str], "_Found"]:
        """Return the asker's other sessions, each with its user's newest message, and what may be shown of them."""
        user = asked.user_id or ""
        every: dict[str, str] = await asyncio.shield(shared[user])
        named = dict(
            islice(((name, every[name]) for name in every if name != asked.session_id), MOST_SESSIONS)
        )
        added = ADDED not in shared or await asyncio.shield(shared[ADDED])
        async with self._slots, asyncio.timeout(MOST_SECONDS):
            what = asked.agent_id, user, tuple(named)
            if what not in shared:
                read = self._read(asked, tuple(named), since, whole=whole, added=added)
                shared[what] = _noted(asyncio.create_task(read))
            return named, await asyncio.shield(shared[what])

    def _begin(self, shared: Readings, user: str, since: datetime) -> None:
        if user not in shared:
            read = self._sessions_of(user, since, shared.get(ADDED))
            shared[user] = _noted(asyncio.create_task(read))

    async def _sessions_of(
        self, user: str, since: datetime, any_added: asyncio.Task[bool] | None
    ) -> dict[str, str]:
        async with self._slots, asyncio.timeout(MOST_SECONDS):
            added = any_added is None or await asyncio.shield(any_added)
            return await self._written.sessions_of(user, since, added=added)

    async def are_due(self, session_id: str) -> bool:
        """Tell whether the messages of a session that no window holds yet make one at this moment.

        Those that formation-trigger has not seen yet count too, unless reading them takes too long.
        """
        if (
            self._directory.switches
            and session_id in (await self._directory.off({session_id: ()}, ())).sessions
        ):
            return False
        state = await self._states.find_one({"_id": session_id}, {"formed_to": 1}) or {}
        waiting = await self._written.waiting_in(session_id, state.get("formed_to", 0))
        return bool(Pending(self._limits, waiting).judged(self._clock(), NEWEST_VERSION))

    async def _read(
        self, asked: Asker, sessions: Sequence[str], since: datetime, *, whole: bool, added: bool
    ) -> "_Found":
        """Read the newest few where these fill a context, else 200, or at once where `whole` asks for these."""
        if not whole:
            written, more = await self._written.messages_of(sessions, since, FIRST_MESSAGES, added=added)
            found, words = await self._judged(asked, written, since, whole=False)
            if not more or words < 0:
                return found
        written, _ = await self._written.messages_of(sessions, since, added=added)
        return (await self._judged(asked, written, since, whole=whole))[0]

    async def _judged(
        self, asked: Asker, written: Sequence[WrittenMessage], since: datetime, *, whole: bool
    ) -> tuple["_Found", int]:
        """Return those that may be shown, and the words left in a context; below 0: more would not fit.

        Who was present and what is forgotten is read after the texts: a change between is heeded.
        """
        user = asked.user_id or ""
        if not written:
            return _Found(), RECENT_WORDS
        alone, (known, settled), marks = await asyncio.gather(
            self._alone(asked, written), self._known(written), self._marks(user, written)
        )
        private = [message for message in written if message.session_id in alone]
        pending = any(is_pending(message, known.get(message.message_id), settled) for message in private)
        found = unsettled(user, private, known, settled, marks, since)
        shown, words = list[RecentMessage](), RECENT_WORDS
        together = len(written) if whole else REDACTED_TOGETHER
        for start in range(0, len(found), together):
            some = found[start : start + together]
            texts = await self._written.redacted.of([message.content for message in some])
            redacted = [replace(message, content=text) for message, text in zip(some, texts, strict=True)]
            fitting, words = (redacted, words) if whole else recent_that_fit(redacted, words)
            shown += fitting
            if words < 0:
                break
        return _Found(tuple(shown), len(private) < len(written), pending), words

    async def _marks(self, user: str, written: Sequence[WrittenMessage]) -> tuple[Marks, Marks]:
        leaving = await self._written.being_forgotten()  # a request goes once its mark stands
        return await self._forgotten.among(named_in(user, written)), leaving

    async def _known(self, written: Sequence[WrittenMessage]) -> tuple[Mapping[str, MessageRow], set[str]]:
        """Return what formation-trigger keeps of the messages, and which of their formations are settled."""
        known = await self._written.recorded(message.message_id for message in written)
        formations = (row["formation_id"] for row in known.values())
        return known, await self._settled.among(name for name in formations if name is not None)

    async def _alone(self, asked: Asker, written: Sequence[WrittenMessage]) -> set[str]:
        """Return the sessions of these messages in which the asker was always alone."""
        sessions = list(dict.fromkeys(message.session_id for message in written))
        users = dict.fromkeys(sessions, (asked.user_id or "",))
        chats = [name for name in sessions if whose(name) is None]
        facts, off, authors, states = await asyncio.gather(
            self._directory.look_up(sessions, users),
            self._directory.off(users, ()) if self._directory.switches else _nobody(),
            self._authors.everybody_in(chats),
            self._states_of(sessions),
        )
        now = {name: _session_now(name, facts[name], authors, states.get(name, {})) for name in sessions}
        return {name for name in sessions if was_alone(asked, name, now[name], off)}

    async def _states_of(self, sessions: Collection[str]) -> dict[str, dict[str, Any]]:
        fields = {"users": 1, "audience_changes": 1}
        rows = await self._states.find({"_id": {"$in": list(sessions)}}, fields).to_list()
        return {row["_id"]: row for row in rows}

    def _warn(self, reason: str) -> None:
        if time.monotonic() - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = time.monotonic()
            log.warning("messages that are not formed yet cannot be read; answers lack them", reason=reason)


async def _nobody() -> Off:
    return Off()


def _noted(reading: asyncio.Task[T]) -> asyncio.Task[T]:
    """Take the error, if nobody waits for it any more."""

    def done(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()

    reading.add_done_callback(done)
    return reading


def _session_now(
    name: str,
    facts: SessionFacts | Missing,
    authors: Authors | None,
    state: Mapping[str, Any],
) -> SessionNow:
    written = None if authors is None else authors.get(name, frozenset())
    return SessionNow(
        facts,
        None if written is None else frozenset(author for author in written if author is not None),
        frozenset(state.get("users", ())),
        Audiences.of_row(state),
        anonymous=written is not None and None in written,
    )


REMEMBERED = 10_000

FACT = "fact:"
"""Begins the name of a fact's version among the writes of a decision."""


class SettledFormations:
    """Reads the ledger and the memory of one namespace; remembers what is settled, since that never changes."""

    def __init__(
        self, database: AsyncDatabase[dict[str, Any]], names: Names, forgotten: ForgottenMarks
    ) -> None:
        self._ledger, self._forgotten = MongoLedger(database, names), forgotten
        self._facts = database[names[Fact.COLLECTION]]
        self._reflections = database[names[Reflection.COLLECTION]]
        self._settled = OrderedDict[str, None]()

    async def among(self, formation_ids: Iterable[str]) -> set[str]:
        """Return those that are settled."""
        wanted = set(formation_ids)
        if unknown := [name for name in wanted if name not in self._settled]:
            self._remember(await self._look_up(unknown))
        return wanted & self._settled.keys()

    async def _look_up(self, formation_ids: list[str]) -> list[str]:
        outcomes = await outcomes_of(self._ledger, formation_ids)
        decided = {name: found for name, found in outcomes.items() if found is not None}
        facts = {name: decided_facts(found) for name, found in decided.items()}
        reflections = {name: formed_reflections(found) for name, found in decided.items()}
        stored = await self._facts_stored({fact_id for of in facts.values() for fact_id in of})
        written = await self._reflections_stored({name for of in reflections.values() for name in of})
        return [
            name
            for name in decided
            if reflections[name] <= written
            and all(stored.get(fact_id, 0) >= version for fact_id, version in facts[name].items())
        ]

    async def _facts_stored(self, fact_ids: Collection[str]) -> dict[str, float]:
        """Return the version of each stored fact; infinite where it is forgotten, so that it will not be stored."""
        rows = await self._facts.find({"_id": {"$in": list(fact_ids)}}, {"version": 1}).to_list()
        stored: dict[str, float] = {row["_id"]: row["version"] for row in rows}
        return stored | dict.fromkeys(await self._gone("fact", set(fact_ids) - stored.keys()), inf)

    async def _reflections_stored(self, reflection_ids: Collection[str]) -> set[str]:
        """Return the reflections that are stored, or forgotten."""
        rows = await self._reflections.find({"_id": {"$in": list(reflection_ids)}}, {"_id": 1}).to_list()
        stored = {row["_id"] for row in rows}
        return stored | await self._gone("reflection", set(reflection_ids) - stored)

    async def _gone(self, kind: Literal["fact", "reflection"], names: Collection[str]) -> set[str]:
        if not names:
            return set()
        marks = await self._forgotten.among([(kind, name) for name in names])
        return {name for name in names if marks.entity_gone(kind, name, 1)}

    def _remember(self, formation_ids: Iterable[str]) -> None:
        self._settled.update(dict.fromkeys(formation_ids))
        while len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)


def decided_facts(outcomes: Iterable[StageOutcome]) -> dict[str, int]:
    """Return the highest version of each fact that was decided (`fact:ID@5` among the writes)."""
    writes = (write for outcome in outcomes for write in outcome.writes if write.startswith(FACT))
    found: dict[str, int] = {}
    for fact_id, _, version in (write.removeprefix(FACT).rpartition("@") for write in writes):
        found[fact_id] = max(int(version), found.get(fact_id, 0))
    return found


def formed_reflections(outcomes: Iterable[StageOutcome]) -> set[str]:
    """Return the ids of the reflections among the records."""
    records = (record for outcome in outcomes for record in outcome.records if record.value is not None)
    return {
        (record.key or b"").decode()
        for record in records
        if named(record.headers)[0] == ReflectionFormed.NAME
    }
