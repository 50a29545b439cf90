"""The contexts of all agents of one process: kept here, and dropped by the push of one change stream."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.change_feed import Changed
from eden_memory.context.context_cache import ContextCache, tags_of_scope
from eden_memory.context.context_feed import Client, ContextFeed
from eden_memory.context.context_settings import showing_of
from eden_memory.context.context_source_store import Database, MongoContextSource
from eden_memory.context.context_xml import FactLine, context_xml
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.metrics import CONTEXT_READS
from eden_memory.settings import Settings

STREAMS_SECONDS = 300.0
"""How long streams are kept: their changes are pushed."""
Listener = Callable[[Changed], None]


class Follower(Protocol):
    """Keeps something that the same change stream keeps fresh."""

    def changed(self, changed: Changed) -> None:
        """Something has changed."""
        ...

    def live(self, live: bool) -> None:
        """Whether every change is told from now on."""
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
        self._showing, self.cache = showing_of(settings.memory), ContextCache(clock)
        self._listeners: set[Listener] = set()
        self._followers: list[Follower] = []
        self._live = asyncio.Event()
        self.watching: asyncio.Task[None] | None = None
        self.closed = False

    async def get(self, asked: Asker) -> tuple[VisibleMemory, str]:
        """What may be seen, and its XML."""
        kept = self.cache.get(asked, self.render)
        if kept is not None and not await self._still_holds(asked, kept.view):
            kept = None
        CONTEXT_READS.labels("stored" if kept is None else "kept").inc()
        return (kept.view, kept.xml) if kept is not None else await self._read(asked)

    async def _still_holds(self, asked: Asker, view: VisibleMemory) -> bool:
        """Where authors say who is in a session, the next message may add one: that is asked each time."""
        return not view.by_authors or (await self._source.users([asked]))[asked] == view.users

    async def view(self, asked: Asker) -> VisibleMemory:
        """What may be seen, as MongoDB has it now."""
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
        self._tell(Changed("everything"))

    async def close(self) -> None:
        """Stop listening; who follows changes is told that no more will come."""
        self.closed = True
        self._tell(Changed("everything"))
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

    def follow(self, follower: Follower) -> None:
        """Tell it of every change, and of whether any may be missed, until closed."""
        self.watch()
        self._followers.append(follower)
        follower.changed(Changed("everything"))
        follower.live(self._live.is_set())

    def heard(self, live: bool) -> None:
        """Whether every change is heard of from now on."""
        if not live:
            self.cache.clear()
        self.cache.live = live
        (self._live.set if live else self._live.clear)()
        for follower in self._followers:
            follower.live(live)

    def changed(self, changed: Changed) -> None:
        """Something has changed: what was made from it is dropped, and who listens is told."""
        if changed.what == "everything":
            self._streams.forget()
            self.cache.clear()
            self._on_everything()
        else:
            for tag in _tags(changed):
                self.cache.changed(tag)
        for follower in self._followers:
            follower.changed(changed)
        self._tell(changed)

    def _tell(self, changed: Changed) -> None:
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


def _tags(changed: Changed) -> tuple[str, ...]:
    return tags_of_scope(changed.id) if changed.what == "scope" else (f"{changed.what}:{changed.id}",)
