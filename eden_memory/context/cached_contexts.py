"""Contexts cached in the process: valid until a change stream reports a change, never beyond a time to live."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_feed import Client, ContextChange, ContextFeed
from eden_memory.context.context_source_store import Database, MongoContextSource
from eden_memory.context.context_xml import FactLine, context_xml, next_expiry, showing_of
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.metrics import CONTEXT_READS
from eden_memory.settings import Settings

STREAMS_SECONDS = 300.0
"""How long streams are kept: their changes are pushed."""
Listener = Callable[[ContextChange], None]
KEPT_FOR = timedelta(minutes=5)
RENDERED_FOR = timedelta(minutes=1)
"""Ages in a context are minutes at the finest."""
MOST = 10_000


class ContextFollower(Protocol):
    """A cache that the same change stream keeps fresh."""

    def changed(self, changed: ContextChange) -> None:
        """Something has changed."""
        ...

    def live(self, live: bool) -> None:
        """Note whether every change is reported from now on."""
        ...


class Contexts:
    """While the change stream is away, every read asks MongoDB."""

    def __init__(
        self,
        client: Client,
        source: Database,
        memory: Database,
        settings: Settings,
        clock: Callable[[], datetime],
        on_everything: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_everything` is called when anything may have changed, also which namespace is live."""
        self._client, self._settings, self._clock = client, settings, clock
        self._on_everything = on_everything
        self._streams = MongoStreams(memory, settings.names, keep_seconds=STREAMS_SECONDS)
        self._source = MongoContextSource(source, memory, settings, self._streams)
        self._showing, self.cache = showing_of(settings.memory), RenderedContexts(clock)
        self._listeners: set[Listener] = set()
        self._followers: list[ContextFollower] = []
        self._live = asyncio.Event()
        self.watching: asyncio.Task[None] | None = None
        self.closed = False

    async def get(self, asked: Asker) -> tuple[VisibleMemory, str]:
        """Return the visible memory, and its XML."""
        kept = self.cache.get(asked, self.render)
        if kept is not None and not await self._still_holds(asked, kept.view):
            kept = None
        CONTEXT_READS.labels("stored" if kept is None else "kept").inc()
        return (kept.view, kept.xml) if kept is not None else await self._read(asked)

    async def _still_holds(self, asked: Asker, view: VisibleMemory) -> bool:
        """Where authors say who is in a session, the next message may add one: that is asked each time."""
        return not view.by_authors or (await self._source.users([asked]))[asked] == view.users

    async def view(self, asked: Asker) -> VisibleMemory:
        """Return the visible memory as MongoDB has it now."""
        return (await self._source.look_up([asked]))[asked]

    def render(
        self, view: VisibleMemory, now: datetime | None = None, recalled: Sequence[FactLine] = ()
    ) -> str:
        """A view's XML, with facts that a search found for this turn."""
        return context_xml(view.shown, now or self._clock(), self._showing, recalled)

    async def ready(self) -> None:
        """Wait until contexts are kept, because whatever changes them is heard of."""
        self.watch()
        await self._live.wait()

    def watch(self) -> None:
        """Listen, from the first use on; again should listening have ended by itself."""
        if not self.closed and (self.watching is None or self.watching.done()):
            feed = ContextFeed(self._client, self._settings, self.changed, self.heard)
            self.watching = asyncio.create_task(feed.run(), name="contexts' change stream")

    def tell_listeners_of(self, former: "Contexts") -> None:
        """Tell the listeners of another namespace's contexts from now on, and at once that everything changed."""
        self._listeners, former._listeners = former._listeners, set()
        self._tell(ContextChange("everything"))

    async def close(self) -> None:
        """Stop listening; who follows changes is told that no more will come."""
        self.closed = True
        self._tell(ContextChange("everything"))
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
            self.watching = None

    @contextmanager
    def told(self, listener: Listener) -> Generator[None]:
        """Call `listener` with every change that the stream tells, for the block, here or where it is taken over."""
        listeners = self._listeners
        listeners.add(listener)
        try:
            yield
        finally:
            listeners.discard(listener)

    def follow(self, follower: ContextFollower) -> None:
        """Tell it of every change, and of whether any may be missed, until closed."""
        self.watch()
        self._followers.append(follower)
        follower.changed(ContextChange("everything"))
        follower.live(self._live.is_set())

    def heard(self, live: bool) -> None:
        """Whether every change is heard of from now on."""
        if not live:
            self.cache.clear()
        self.cache.live = live
        (self._live.set if live else self._live.clear)()
        for follower in self._followers:
            follower.live(live)

    def changed(self, changed: ContextChange) -> None:
        """Something has changed: what was made from it is dropped, and who listens is told."""
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
    """A context, its view, and when both are too old."""

    view: VisibleMemory
    xml: str
    until: datetime
    render_again: datetime


@dataclass(slots=True, eq=False)
class ContextReading:
    """A read under way, and what was said to have changed meanwhile."""

    asked: Asker
    changed: set[str] = field(default_factory=set[str])
    everything: bool = False


class RenderedContexts:
    """Keeps nothing while it is not `live`: only then is every change known to be heard of."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._kept: OrderedDict[Asker, CachedContext] = OrderedDict()
        self._by_tag: dict[str, set[Asker]] = {}
        self._reading: set[ContextReading] = set()
        self.live = False

    def get(self, asked: Asker, render: Callable[[VisibleMemory, datetime], str]) -> CachedContext | None:
        """Return the cached context, rendered again if its ages have changed; None if there is none."""
        kept = self._kept.get(asked)
        if kept is None:
            return None
        now = self._clock()
        if not self.live or now >= kept.until:
            self._drop(asked)
            return None
        if now >= kept.render_again:
            kept.xml, kept.render_again = render(kept.view, now), _render_again(kept.view, now)
        self._kept.move_to_end(asked)
        return kept

    def reading(self, asked: Asker) -> ContextReading:
        """To be called before the read begins; :meth:`put` or :meth:`failed` ends it."""
        reading = ContextReading(asked, everything=not self.live)
        self._reading.add(reading)
        return reading

    def failed(self, reading: ContextReading) -> None:
        """Nothing was read."""
        self._reading.discard(reading)

    def put(
        self, reading: ContextReading, view: VisibleMemory, render: Callable[[VisibleMemory, datetime], str]
    ) -> str:
        """Render what was read; keep it, unless something in it changed while it was read."""
        self._reading.discard(reading)
        now = self._clock()
        xml = render(view, now)
        tags = _tags(reading.asked, view)
        if self.live and not reading.everything and not reading.changed & tags:
            self._drop(reading.asked)
            self._kept[reading.asked] = CachedContext(view, xml, now + KEPT_FOR, _render_again(view, now))
            for tag in tags:
                self._by_tag.setdefault(tag, set()).add(reading.asked)
            if len(self._kept) > MOST:
                self._drop(next(iter(self._kept)))
        return xml

    def changed(self, tag: str) -> None:
        """A scope (`scope:<key>`), session (`session:<id>`) or user (`user:<id>`) has changed."""
        for asked in tuple(self._by_tag.get(tag, ())):
            self._drop(asked)
        for reading in self._reading:
            reading.changed.add(tag)

    def clear(self) -> None:
        """Anything may have changed."""
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


def _render_again(view: VisibleMemory, now: datetime) -> datetime:
    """When its ages have moved on, or a fact of it has expired."""
    return min(now + RENDERED_FOR, next_expiry(view.shown, now) or datetime.max.replace(tzinfo=UTC))


def _tags(asked: Asker, view: VisibleMemory) -> set[str]:
    own = {f"session:{asked.session_id}"} if asked.session_id is not None else set[str]()
    if asked.user_id is not None:
        own.add(f"user:{asked.user_id}")
    return own | {f"scope:{key}" for key in view.scope_keys}


def tags_of_scope(key: str) -> tuple[str, ...]:
    """Return the tags that a scope's change affects; a session scope of any generation affects its session."""
    kind, _, rest = key.partition(":")
    return (f"scope:{key}", f"session:{rest.partition(':')[0]}") if kind == "session" else (f"scope:{key}",)
