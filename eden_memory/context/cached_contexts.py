"""Contexts cached in the process: valid until a change stream reports a change, never beyond a time to live."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_feed import Client, ContextChange, ContextFeed
from eden_memory.context.context_xml import FactLine, context_xml, next_expiry
from eden_memory.context.ready_context_store import Database, MongoContextSource
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.metrics import CONTEXT_READS
from eden_memory.schemas.documents import Stream
from eden_memory.settings import Settings
from eden_memory.tasks import Unawaited

log = LibraryLogger()
STREAMS_SECONDS = 300.0
"""Seconds that streams are cached; the change stream reports their changes."""
Listener = Callable[[ContextChange], None]
KEPT_SECONDS, RENDERED_SECONDS = 300.0, 60.0
"""Ages in a context are minutes at the finest."""
MOST = 10_000


class ContextFollower(Protocol):
    """A cache that the contexts' change stream keeps fresh."""

    def changed(self, changed: ContextChange) -> None:
        """Handle a change."""
        ...

    def live(self, live: bool) -> None:
        """Note whether every change is reported from now on."""
        ...


class Contexts:
    """Serves contexts from the cache; every read queries MongoDB while the change stream is down."""

    def __init__(
        self,
        client: Client,
        source: Database,
        memory: Database,
        settings: Settings,
        clock: Callable[[], datetime],
        on_everything: Callable[[], None] = lambda: None,
        unawaited: Unawaited | None = None,
    ) -> None:
        """`on_everything` is called when anything may have changed, also which namespace is live."""
        self._unawaited = unawaited or Unawaited()
        self._client, self._settings, self._clock = client, settings, clock
        self._on_everything = on_everything
        self._streams = MongoStreams(memory, settings.names, keep_seconds=STREAMS_SECONDS)
        self._source = MongoContextSource(source, memory, settings, self._streams)
        self.cache = RenderedContexts(clock)
        self._listeners: set[Listener] = set()
        self._followers: list[ContextFollower] = []
        self._live = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()
        self.watching: asyncio.Task[None] | None = None
        self.closed = False

    async def get(self, asked: Asker, *, anew: bool = False) -> tuple[VisibleMemory, str]:
        """Return the visible memory, and its XML; `anew`: as MongoDB has it, not as it was kept."""
        kept = None if anew else self.cache.get(asked, self.render)
        if kept is not None and not await self._still_holds(asked, kept.view):
            kept = None
        CONTEXT_READS.labels("stored" if kept is None else "kept").inc()
        return (kept.view, kept.xml) if kept is not None else await self._read(asked)

    async def _still_holds(self, asked: Asker, view: VisibleMemory) -> bool:
        """Return whether the users are the same; if authors define them, the next message may add one."""
        return not view.by_authors or (await self._source.users([asked]))[asked] == view.users

    async def view(self, asked: Asker) -> VisibleMemory:
        """Return the visible memory as MongoDB has it now."""
        return (await self._source.look_up([asked]))[asked]

    async def streams(self, agent_id: str) -> Mapping[str, Stream]:
        """Return the agent's streams by label."""
        return await self._streams.of(agent_id)

    def render(
        self,
        view: VisibleMemory,
        now: datetime | None = None,
        recalled: Sequence[FactLine] = (),
        recent: Sequence[RecentMessage] = (),
    ) -> str:
        """Return a view's XML, with facts that a search found for this turn, and messages not formed yet."""
        return context_xml(
            view.shown, now or self._clock(), self._settings.memory, recalled, recent, view.shows
        )

    async def ready(self) -> None:
        """Wait until the change stream is open and contexts are cached."""
        self.watch()
        await self._live.wait()

    def watch(self) -> None:
        """Start to follow changes, or start again if following has ended."""
        if not self.closed and (self.watching is None or self.watching.done()):
            feed = ContextFeed(self._client, self._settings, self.changed, self.heard)
            watching = asyncio.create_task(feed.run(), name="contexts' change stream")
            self.watching = self._unawaited.add(watching)

    def tell_listeners_of(self, former: "Contexts") -> None:
        """Take over the listeners of another namespace's contexts, and report that everything changed."""
        self._listeners, former._listeners = former._listeners, set()
        self._tell(ContextChange("everything"))

    async def close(self) -> None:
        """Stop following changes, and wake the listeners."""
        self.closed = True
        self._tell(ContextChange("everything"))
        watching = [] if self.watching is None else [self.watching]
        self.watching = None
        for task in (running := [*watching, *self._looking]):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @contextmanager
    def told(self, listener: Listener) -> Generator[None]:
        """Call `listener` for every change while the block runs, here or where listeners are taken over."""
        listeners = self._listeners
        listeners.add(listener)
        try:
            yield
        finally:
            listeners.discard(listener)

    def follow(self, follower: ContextFollower) -> None:
        """Report every change, and whether any may be missed, to a follower until closed."""
        self.watch()
        self._followers.append(follower)
        follower.changed(ContextChange("everything"))
        follower.live(self._live.is_set())

    def heard(self, live: bool) -> None:
        """Note whether every change is reported from now on."""
        if not live:
            self.cache.clear()
        self.cache.live = live
        (self._live.set if live else self._live.clear)()
        for follower in self._followers:
            follower.live(live)

    def changed(self, changed: ContextChange) -> None:
        """Drop what was built from the changed source, and report the change to listeners."""
        if changed.what == "state":
            changed = ContextChange("session", changed.id)
            looking = asyncio.create_task(self._scopes_changed(changed.id), name="scopes of a session")
            self._looking.add(self._unawaited.add(looking))
            looking.add_done_callback(self._looking.discard)
        if changed.what == "everything":
            self._streams.forget()
            self.cache.clear()
            self._on_everything()
        else:
            for tag in _tags_of(changed):
                self.cache.changed(tag)
        for follower in self._followers:
            follower.changed(changed)
        self._tell(changed)

    async def _scopes_changed(self, session_id: str) -> None:
        """Drop what shows memory of a session: some of it may be hidden now, or shown again."""
        try:
            for key in await self._source.scopes_of_session(session_id):
                self.changed(ContextChange("scope", key))
        except Exception as error:  # noqa: BLE001 - the edge of a task of its own: nothing cached is trusted then
            log.warning("the scopes of a session cannot be read", reason=describe(error))
            self.changed(ContextChange("everything"))

    def _tell(self, changed: ContextChange) -> None:
        for listener in tuple(self._listeners):
            listener(changed)

    async def _read(self, asked: Asker) -> tuple[VisibleMemory, str]:
        self.watch()
        reading = self.cache.reading(asked)
        try:
            view = await self.view(asked)
        except BaseException:
            self.cache.failed(reading)
            raise
        return view, self.cache.put(reading, view, self.render)


def _tags_of(changed: ContextChange) -> tuple[str, ...]:
    return tags_of_scope(changed.id) if changed.what == "scope" else (f"{changed.what}:{changed.id}",)


@dataclass(slots=True)
class CachedContext:
    """A cached context, its view, and when both expire, by a clock that nobody sets."""

    view: VisibleMemory
    xml: str
    until: float
    render_again: float


@dataclass(slots=True, eq=False)
class ContextReading:
    """A running read, and the changes reported while it runs."""

    asked: Asker
    changed: set[str] = field(default_factory=set[str])
    everything: bool = False


class RenderedContexts:
    """A cache of rendered contexts; caches nothing unless `live`, when every change is reported."""

    def __init__(self, clock: Callable[[], datetime], elapsed: Callable[[], float] = time.monotonic) -> None:
        """`clock` tells the ages in a context, `elapsed` ends what is cached."""
        self._clock, self._elapsed = clock, elapsed
        self._kept: OrderedDict[Asker, CachedContext] = OrderedDict()
        self._by_tag: dict[str, set[Asker]] = {}
        self._reading: set[ContextReading] = set()
        self.live = False

    def get(self, asked: Asker, render: Callable[[VisibleMemory, datetime], str]) -> CachedContext | None:
        """Return the cached context, rendered again if its ages have changed; None if there is none."""
        kept = self._kept.get(asked)
        if kept is None:
            return None
        elapsed = self._elapsed()
        if not self.live or elapsed >= kept.until:
            self._drop(asked)
            return None
        if elapsed >= kept.render_again:
            now = self._clock()
            kept.xml, kept.render_again = render(kept.view, now), elapsed + _rendered_for(kept.view, now)
        self._kept.move_to_end(asked)
        return kept

    def reading(self, asked: Asker) -> ContextReading:
        """Note that a read begins; call :meth:`put` or :meth:`failed` when it ends."""
        reading = ContextReading(asked, everything=not self.live)
        self._reading.add(reading)
        return reading

    def failed(self, reading: ContextReading) -> None:
        """Note that a read failed."""
        self._reading.discard(reading)

    def put(
        self, reading: ContextReading, view: VisibleMemory, render: Callable[[VisibleMemory, datetime], str]
    ) -> str:
        """Render a view; cache it unless a source changed while it was read."""
        self._reading.discard(reading)
        now, elapsed = self._clock(), self._elapsed()
        xml = render(view, now)
        tags = _tags(reading.asked, view)
        if self.live and not reading.everything and not reading.changed & tags:
            self._drop(reading.asked)
            again = elapsed + _rendered_for(view, now)
            self._kept[reading.asked] = CachedContext(view, xml, elapsed + KEPT_SECONDS, again)
            for tag in tags:
                self._by_tag.setdefault(tag, set()).add(reading.asked)
            if len(self._kept) > MOST:
                self._drop(next(iter(self._kept)))
        return xml

    def changed(self, tag: str) -> None:
        """Drop the contexts of a scope (`scope:<key>`), session (`session:<id>`) or user (`user:<id>`)."""
        for asked in tuple(self._by_tag.get(tag, ())):
            self._drop(asked)
        for reading in self._reading:
            reading.changed.add(tag)

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._by_tag.clear()
        for reading in self._reading:
            reading.everything = True

    def _drop(self, asked: Asker) -> None:
        kept = self._kept.pop(asked, None)
        for tag in _tags(asked, kept.view) if kept is not None else ():
            having = self._by_tag.get(tag, set())
            having.discard(asked)
            if not having:
                self._by_tag.pop(tag, None)


def _rendered_for(view: VisibleMemory, now: datetime) -> float:
    """Return the seconds until the ages in a context change, or a fact in it expires."""
    expiry = next_expiry(view.shown, now)
    return RENDERED_SECONDS if expiry is None else min(RENDERED_SECONDS, (expiry - now).total_seconds())


def _tags(asked: Asker, view: VisibleMemory) -> set[str]:
    own = {f"session:{asked.session_id}"} if asked.session_id is not None else set[str]()
    if asked.user_id is not None:
        own.add(f"user:{asked.user_id}")
    return own | {f"scope:{key}" for key in view.scope_keys}


def tags_of_scope(key: str) -> tuple[str, ...]:
    """Return the tags that a scope's change affects; a session scope of any generation affects its session."""
    kind, _, rest = key.partition(":")
    return (f"scope:{key}", f"session:{rest.partition(':')[0]}") if kind == "session" else (f"scope:{key}",)
