"""Contexts that lie ready in the database: which there are, and which changes of one moment concern them. Pure."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from eden_memory.access.visible import UNNAMED, Asker, VisibleMemory
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.stages.stage import Delivery


@dataclass(frozen=True, slots=True)
class Ready:
    """A context that is kept fresh, as far as is needed to build it again."""

    asked: Asker
    active_until: datetime
    built_at: datetime | None = None
    """None: not built yet. Whoever builds it anew replaces this building alone."""
    users: tuple[str, ...] = ()
    """For whom it holds."""
    of_user: bool = False
    """It may show its user's own memory, which is for nobody else."""

    @property
    def name(self) -> str:
        """`<session id>/<user id>`."""
        return f"{self.asked.session_id}/{self.asked.user_id or ''}"


def holds_for(users: frozenset[str] | None) -> tuple[str, ...]:
    """The users that a ready context names."""
    return tuple(sorted((users or frozenset()) - {UNNAMED}))


def still_holds(ready: Ready, users: frozenset[str] | None) -> bool:
    """Tell whether a ready context may be shown among the users who are in its session now."""
    joined_by_unnamed = ready.of_user and users is not None and UNNAMED in users
    return holds_for(users) == ready.users and not joined_by_unnamed


@dataclass(frozen=True, slots=True)
class Built:
    """A context as it is to be stored in the place of `before`."""

    before: Ready
    xml: str
    revisions: dict[str, int]
    """Scope key → revision of the snapshot that went in."""
    scope_keys: tuple[str, ...]
    users: tuple[str, ...]
    """All who were in the session: it holds among any of them. None where that cannot be known."""
    built_at: datetime
    active_until: datetime
    stale_at: datetime | None = None
    """When it is to be built anew."""
    recent_from: tuple[str, ...] = ()
    """Tags of the messages in it that are not formed yet."""


class Concerned(NamedTuple):
    """The contexts that new messages of authors concern."""

    lacking: Sequence[Ready]
    """Of the authors' sessions, those that do not hold for the author."""
    overhearing: Sequence[Ready]
    """Those of others that show messages of a session in which an author writes."""


def tags_of_recent(user_id: str | None, messages: Sequence[RecentMessage]) -> tuple[str, ...]:
    """The tags by which a change of a message, its session or its user finds the context that shows it."""
    tags = [f"user:{user_id}"] if messages else []
    for message in messages:
        tags += [f"session:{message.session_id}", f"message:{message.message_id}"]
    return tuple(dict.fromkeys(tags))


class RecentSource(Protocol):
    """Reads messages that are not formed yet."""

    async def of_each(self, views: Mapping[Asker, VisibleMemory]) -> dict[Asker, Sequence[RecentMessage]]:
        """Those that each may see, newest first."""
        ...


class ContextSource(Protocol):
    """Reads the memory and the users that contexts are built from."""

    async def look_up(self, asked: Sequence[Asker]) -> dict[Asker, VisibleMemory]:
        """The view of each, as it is stored at this moment."""
        ...

    async def users(self, asked: Sequence[Asker]) -> dict[Asker, frozenset[str] | None]:
        """Who is in each session at this moment, UNNAMED among them; None: it cannot be known."""
        ...

    async def scopes_of_session(self, session_id: str) -> set[str]:
        """The scopes of memory that rests on a session's messages."""
        ...


class ReadyContexts(Protocol):
    """`memory_contexts`: the contexts of active sessions, ready to be read."""

    async def known(self, asked: Iterable[Asker]) -> dict[Asker, Ready]:
        """Those of these that there are."""
        ...

    async def concerned(
        self, scope_keys: Iterable[str], now: datetime, most: int
    ) -> dict[str, Sequence[Ready]]:
        """By scope key, up to `most` active contexts that it went into."""
        ...

    def active(self, scope_keys: Iterable[str] | None, now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        """All active contexts that any of the scopes went into (None: all there are), page by page."""
        ...

    def stale(self, now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        """The active contexts that show a fact which has expired, page by page."""
        ...

    def of_sessions(self, session_ids: Iterable[str], now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        """The active contexts of sessions, page by page."""
        ...

    def with_new_messages(
        self, tags: Iterable[str], now: datetime, written: Iterable[tuple[str, str]] = ()
    ) -> AsyncGenerator[Sequence[Ready]]:
        """Yield the active contexts that new messages concern, in one query.

        Those that show messages with one of these tags (Context.recent_from), and those of users who wrote
        (session, user) in their other sessions.
        """
        ...

    async def open(self, ready: Iterable[Ready], now: datetime) -> None:
        """Make an empty context of each that there is none of, to be built with the next refresh."""
        ...

    async def concerning(self, written: Iterable[tuple[str, str]], now: datetime) -> Concerned:
        """The active contexts that authors of messages concern: (session, author), an author may be UNNAMED."""
        ...

    async def withdraw(self, ready: Sequence[Ready]) -> None:
        """Empty contexts at once; whoever was building one of them has to build it again."""
        ...

    async def put(self, built: Sequence[Built]) -> Sequence[Ready]:
        """Store each where nobody else has built it meanwhile; those that somebody has are returned."""
        ...

    async def remove(self, gone: Sequence[Ready]) -> None:
        """Their users are no longer in the session."""
        ...


LONGEST_SECONDS = 120.0
"""A round that has not ended by then has failed."""

Work = Callable[[Sequence[Delivery]], Awaitable[None]]


class _Waiting(NamedTuple):
    deliveries: Sequence[Delivery]
    done: "asyncio.Future[None]"


class ChangeRounds:
    """Gives `work` the changes of a moment; what comes meanwhile goes with the next round.

    `gather` seconds pass before a round, so that those of the same window share it, and `breath` seconds after it.
    """

    def __init__(self, work: Work, gather: float, breath: float) -> None:
        self._work, self._gather, self._breath = work, gather, breath
        self._waiting: list[_Waiting] = []
        self._rounds: asyncio.Task[None] | None = None

    async def join(self, deliveries: Sequence[Delivery]) -> None:
        """Return when a round that began after this call has worked on them; its error is raised."""
        waiting = _Waiting(deliveries, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._round_after_round(), name="rounds of changed contexts")
        await waiting.done

    async def _round_after_round(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._gather)
            taken, self._waiting = self._waiting, []
            try:
                await self._round(taken)
            finally:  # where it was cancelled, nobody waits for ever
                for waiting in taken:
                    _end(waiting.done, RuntimeError("the round was cancelled"))
            await asyncio.sleep(self._breath)

    async def _round(self, taken: Sequence[_Waiting]) -> None:
        """Work on all; where that fails, on each alone: whose error it is shows then."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._work([delivery for waiting in taken for delivery in waiting.deliveries])
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            if len(taken) == 1:
                _end(taken[0].done, error)
                return
            for waiting in taken:
                await self._round([waiting])
        for waiting in taken:
            _end(waiting.done, None)


def _end(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():  # whoever waited was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
