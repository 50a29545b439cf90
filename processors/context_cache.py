"""memory.changes → `memory_contexts`: contexts of active sessions are built anew; batch form, nothing is published.

At once where up to a hundred sessions are concerned, every few seconds where there are more. Changes of the same
moment are worked on together, whatever their partitions: a window changes several scopes. A session's own change
makes it active, unless it has more than MOST_READY_USERS: each of as many contexts would name as many users.
A redelivery builds the same again (invariants older-never-replaces and present-looked-up-again).
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_xml import context_xml, next_expiry
from eden_memory.context.ready_contexts import (
    Built,
    ChangeRounds,
    ContextSource,
    Ready,
    ReadyContexts,
    RecentSource,
    holds_for,
    still_holds,
    tags_of_recent,
)
from eden_memory.errors import describe
from eden_memory.limits import MOST_READY_USERS
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.metrics import CONTEXT_DELAY, CONTEXTS_BUILT, MESSAGE_TO_CONTEXT
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MemorySettings
from eden_memory.stages.stage import Delivery, Emitted

log = LibraryLogger()

AT_ONCE = 100
"""Contexts of a scope, and users of a session, that are built with the change; more wait for the next round."""
ROUND_SECONDS = 3.0
GATHER_SECONDS, BREATH_SECONDS = 0.25, 0.15
"""Before what has changed is worked on, and after it: what changes meanwhile is built once."""
MOST_CONFLICTS = 10
RECENT_FOR = timedelta(minutes=1)
"""After it, a context that shows messages which are not formed yet is built anew: their age, and what was settled."""
TOGETHER = 200
"""Contexts of which what they hold is in memory at the same time."""


class ContextCacheStage:
    """`active`: how long after its last formation a session's contexts are kept fresh; `clock` is the wall's.

    `recent` reads the messages that are not formed yet; None: contexts are built without them.
    """

    def __init__(
        self,
        source: ContextSource,
        contexts: ReadyContexts,
        settings: MemorySettings,
        active: timedelta,
        clock: Callable[[], datetime],
        round_seconds: float = ROUND_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        breath_seconds: float = BREATH_SECONDS,
        *,
        recent: RecentSource | None = None,
    ) -> None:
        self._source, self._contexts, self._settings = source, contexts, settings
        self._active, self._clock, self._recent = active, clock, recent
        self._round_seconds = round_seconds
        self._changes = ChangeRounds(self._changed, gather_seconds, breath_seconds)
        self._later: set[str] = set()
        self._sessions_later: dict[str, datetime] = {}
        """Sessions of many, and how long they are active."""
        self._rounds: asyncio.Task[None] | None = None
        self._building: dict[int, set[str]] = {}
        """Of each building under way, the tags of messages that have changed since it began."""

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
        """Build the contexts that one batch of a partition concerns, each once, with those of others."""
        await self._changes.join(deliveries)
        return ()

    async def _changed(self, deliveries: Sequence[Delivery]) -> None:
        now = self._clock()
        wanted, known = await self._opened(deliveries, now)
        keys = dict.fromkeys(_key(delivery) for delivery in deliveries)
        for key, concerned in (await self._contexts.concerned(keys, now, AT_ONCE + 1)).items():
            if len(concerned) > AT_ONCE:
                if not (key.startswith("session:") and concerned[0].asked.session_id in self._sessions_later):
                    self._put_off(key)
            else:
                wanted |= {
                    ready.asked: max(ready.active_until, wanted.get(ready.asked, now)) for ready in concerned
                }
                known += concerned
        await self._build(wanted, known)
        if wanted:
            _measure_delay(deliveries, self._clock())

    async def refresh_all(self) -> None:
        """Build everything active anew: what an earlier process had put off is lost with it."""
        async for page in self._contexts.active(None, self._clock()):
            await self._build(_until(page), page)

    async def refresh_stale(self) -> None:
        """Build anew what shows a fact that has expired, or messages that may have been formed meanwhile."""
        async for page in self._contexts.stale(self._clock()):
            await self._build(_until(page), page)

    async def sessions_changed(self, session_ids: Iterable[str]) -> None:
        """Build these sessions' contexts anew: who is in them may have changed."""
        async for page in self._contexts.of_sessions(session_ids, self._clock()):
            await self._build(_until(page), page)

    async def memory_hidden(self, session_ids: Iterable[str]) -> None:
        """Build the contexts anew that may show memory of these sessions: it may be hidden now, or shown again."""
        keys = {key for name in session_ids for key in await self._source.scopes_of_session(name)}
        if keys:
            async for page in self._contexts.active(keys, self._clock()):
                await self._build(_until(page), page)

    async def withdraw(self, authors: Iterable[tuple[str, str]]) -> set[str]:
        """Empty the contexts that do not hold for the authors of these committed messages: (session, author).

        Returns their sessions, whose contexts are to be built anew, and those in which another user is shown what
        was said in the authors' sessions.
        """
        lacking, overhearing = await self._contexts.concerning(authors, self._clock())
        found = {ready.asked: ready for ready in lacking}
        users = await self._source.users(list(found))
        stale = [ready for asked, ready in found.items() if not still_holds(ready, users[asked])]
        await self._contexts.withdraw(
            [ready for ready in stale if ready.users]
        )  # an empty one is being built
        rebuilt = (ready.asked.session_id for ready in (*stale, *(overhearing if self._recent else ())))
        return {session_id for session_id in rebuilt if session_id is not None}

    async def written(self, authors: Iterable[tuple[str, str]], tags: Iterable[str]) -> None:
        """Build anew the contexts that new messages concern.

        Those of users in their other sessions, where (session, author) wrote a message, and those that show, or are
        built with, a message of these tags that is not formed yet.
        """
        tags, authors = list(tags), list(authors)
        for changed in self._building.values():
            changed.update(tags)
        if tags or authors:
            async for page in self._contexts.with_new_messages(tags, self._clock(), authors):
                await self._build(_until(page), page)

    async def shown_changed(self, tags: Iterable[str]) -> None:
        """Build anew the contexts that show, or are built with, a message of these tags that is not formed yet."""
        await self.written((), tags)

    async def close(self) -> None:
        """Build what was put off."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        await self._round()

    async def _opened(
        self, deliveries: Sequence[Delivery], now: datetime
    ) -> tuple[dict[Asker, datetime], list[Ready]]:
        """Return the contexts of sessions whose own memory changed: for all who may see it, and all stored ones."""
        until: dict[str, datetime] = {}
        wanted: dict[Asker, datetime] = {}
        for delivery in deliveries:
            event = delivery.event
            if not isinstance(event, ScopeChanged) or event.scope.session_id is None:
                continue
            scope, active_until = event.scope, delivery.envelope.time + self._active
            if active_until > now:
                users = await self._users_of(scope)
                kept = users if users is not None and len(users) <= MOST_READY_USERS else ()
                asked = (Asker(scope.agent_id, scope.session_id, user) for user in kept or (None,))
                if users is None or len(users) > len(kept):
                    await self._open_later(event.scope.session_id, (), active_until)
                elif len(kept) > AT_ONCE:
                    await self._open_later(event.scope.session_id, asked, active_until)
                else:
                    until[event.scope.session_id] = active_until
                    wanted |= dict.fromkeys(asked, active_until)
        known = (
            [context async for page in self._contexts.of_sessions(until, now) for context in page]
            if until
            else []
        )
        for ready in known:
            wanted[ready.asked] = max(ready.active_until, until[ready.asked.session_id or ""])
        return wanted, known

    async def _users_of(self, scope: Scope) -> Collection[str] | None:
        """Who may see a session's memory; of a large audience, who is in the session now. None: unknown."""
        if isinstance(scope.audience, tuple):
            return scope.audience
        asked = Asker(scope.agent_id, scope.session_id)
        users = (await self._source.users([asked]))[asked]
        return None if users is None else holds_for(users)

    async def _open_later(self, session_id: str, asked: Iterable[Asker], until: datetime) -> None:
        """Note a large session's contexts in the store, and build them in rounds, page by page."""
        await self._contexts.open((Ready(asker, until) for asker in asked), self._clock())
        self._sessions_later[session_id] = max(until, self._sessions_later.get(session_id, until))
        self._in_the_next_round()

    async def _build(self, wanted: dict[Asker, datetime], read: Iterable[Ready]) -> None:
        """Build these contexts from what is stored now, so many together that memory stays bounded.

        `read`: those of them that were read before what is stored.
        """
        known = {ready.asked: ready for ready in read}
        left = iter(wanted.items())
        while some := dict(islice(left, TOGETHER)):
            await self._build_together(some, {asked: known[asked] for asked in some if asked in known})

    async def _build_together(self, wanted: dict[Asker, datetime], known: dict[Asker, Ready]) -> None:
        for _ in range(MOST_CONFLICTS):
            if not wanted:
                return
            with self._hearing() as changed:
                lost = await self._build_once(wanted, known, changed)
            wanted, known = {asked: wanted[asked] for asked in lost}, {}
        log.warning("contexts were built elsewhere, again and again", contexts=len(wanted))

    @contextmanager
    def _hearing(self) -> Generator[set[str]]:
        """Collect the tags of messages that change within the block: what is built may show them as they were."""
        changed: set[str] = set()
        self._building[id(changed)] = changed
        try:
            yield changed
        finally:
            del self._building[id(changed)]

    async def _build_once(
        self, wanted: Mapping[Asker, datetime], known: dict[Asker, Ready], changed: set[str]
    ) -> set[Asker]:
        """Build contexts from what is stored now, and return those that have to be built again."""
        known |= await self._contexts.known(asked for asked in wanted if asked not in known)
        views = await self._source.look_up(list(wanted))
        before = {asked: known.get(asked) or Ready(asked, until) for asked, until in wanted.items()}
        kept = {asked for asked in wanted if _is_kept(views[asked])}
        await self._contexts.remove(
            [known[asked] for asked in wanted if asked in known and asked not in kept]
        )
        present = [asked for asked in wanted if asked in kept]
        recent = (
            await self._recent.of_each({asked: views[asked] for asked in present}) if self._recent else {}
        )
        built = [
            self._built(before[asked], views[asked], wanted[asked], recent.get(asked, ()))
            for asked in present
        ]
        lost = {ready.asked for ready in await self._contexts.put(built)}
        CONTEXTS_BUILT.inc(len(present) - len(lost))
        lost |= await self._joined({asked: views[asked] for asked in present if asked not in lost})
        return lost | {context.before.asked for context in built if changed.intersection(context.recent_from)}

    async def _joined(self, stored: Mapping[Asker, VisibleMemory]) -> set[Asker]:
        """Return the askers whose session has gained or lost a user since it was read for them."""
        personal = [asked for asked, view in stored.items() if view.personal]
        users = await self._source.users(personal)
        return {asked for asked in personal if users[asked] != stored[asked].users}

    def _built(
        self, before: Ready, view: VisibleMemory, until: datetime, recent: Sequence[RecentMessage] = ()
    ) -> Built:
        now = self._clock()
        expires = next_expiry(view.shown, now)
        again = now + RECENT_FOR if recent else None
        return Built(
            before=before,
            xml=context_xml(view.shown, now, self._settings, recent=recent, shows=view.shows),
            revisions=view.revisions,
            scope_keys=view.scope_keys,
            users=holds_for(view.users),
            built_at=now,
            active_until=max(until, before.active_until),
            stale_at=min(filter(None, (expires, again)), default=None),
            recent_from=tags_of_recent(before.asked.user_id, recent),
        )

    def _put_off(self, key: str) -> None:
        self._later.add(key)
        self._in_the_next_round()

    def _in_the_next_round(self) -> None:
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._in_rounds(), name="contexts put off")

    async def _in_rounds(self) -> None:
        while self._later or self._sessions_later:
            await asyncio.sleep(self._round_seconds)
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: the next round tries again
                log.warning("contexts not built", reason=describe(error))

    async def _round(self) -> None:
        keys, self._later = self._later, set()
        sessions, self._sessions_later = self._sessions_later, {}
        try:
            for session_id, until in sessions.items():
                async for page in self._contexts.of_sessions([session_id], self._clock()):
                    await self._build({ready.asked: max(until, ready.active_until) for ready in page}, page)
            if keys:
                async for page in self._contexts.active(keys, self._clock()):
                    await self._build(_until(page), page)
        except BaseException:
            self._later |= keys
            self._sessions_later = sessions | self._sessions_later
            raise


def _is_kept(view: VisibleMemory) -> bool:
    """Return whether a context is kept ready: its asker is in the session, and the session is not too large."""
    return view.present and len(view.users or ()) <= MOST_READY_USERS


def _until(page: Iterable[Ready]) -> dict[Asker, datetime]:
    """Return for each asker how long the context stays active."""
    return {ready.asked: ready.active_until for ready in page}


def _measure_delay(deliveries: Sequence[Delivery], now: datetime) -> None:
    """Measure how long each change took to reach the contexts: since its write, and since its window."""
    for delivery in deliveries:
        event = delivery.event
        if isinstance(event, ScopeChanged):
            said = event.newest_buffered_at if "reflections" in event.changed else None
            CONTEXT_DELAY.observe(max(0.0, (now - event.committed_at).total_seconds()))
            if said is not None:
                MESSAGE_TO_CONTEXT.observe(max(0.0, (now - said).total_seconds()))


def _key(delivery: Delivery) -> str:
    """Return the scope key of a record, which may be a tombstone."""
    return delivery.event.scope.key if isinstance(delivery.event, ScopeChanged) else delivery.key
