"""Contexts cached in the process: valid until a change stream reports a change, never beyond a time to live."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_feed import (
    Client,
    ContextChange,
    ContextFeed,
    HeardReads,
    feeds,
    recent_feeds,
)
from eden_memory.context.context_xml import FactLine, context_xml, next_expiry
from eden_memory.context.ready_context_store import Database, MongoContextSource
from eden_memory.context.recent_message_store import ADDED, ANY_MESSAGE, Recent, RecentMessages
from eden_memory.context.written_message_store import is_asked_for
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.metrics import CONTEXT_READS
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import ScopeKind
from eden_memory.settings import Settings
from eden_memory.tasks import Unawaited, run_until_first

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


class ShownContext(NamedTuple):
    """A context, and what it was rendered from."""

    view: VisibleMemory
    recent: Sequence[RecentMessage]
    xml: str


class Contexts:
    """Serves contexts from the cache; every read queries MongoDB while the change stream is down."""

    def __init__(
        self,
        client: Client,
        source: Database,
        memory: Database,
        settings: Settings,
        clock: Callable[[], datetime],
        recent: RecentMessages,
        on_everything: Callable[[], None] = lambda: None,
        unawaited: Unawaited | None = None,
    ) -> None:
        """`on_everything` is called when anything may have changed, also which namespace is live."""
        self._unawaited = unawaited or Unawaited()
        self._client, self._settings, self._clock = client, settings, clock
        self._on_everything = on_everything
        self._streams = MongoStreams(memory, settings.names, keep_seconds=STREAMS_SECONDS)
        self._source, self._recent = MongoContextSource(source, memory, settings, self._streams), recent
        self.cache = RenderedContexts(clock)
        self._heard, self._heard_messages = HeardReads(), HeardReads()
        self._listeners: set[Listener] = set()
        self._followers: list[ContextFollower] = []
        self._live = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()
        self.watching: asyncio.Task[None] | None = None
        self.closed = False

    async def get(
        self, asked: Asker, scopes: Sequence[ScopeKind] | None = None, *, anew: bool = False
    ) -> ShownContext:
        """Return the visible memory with messages not formed yet, and the XML of both.

        `scopes`: only memory in scopes of these kinds. `anew`: as MongoDB has it, not as it was cached.
        """
        kept = None if anew else self.cache.get(asked, self.render)
        if kept is not None and not await self._still_holds(asked, kept.view):
            kept = None
        CONTEXT_READS.labels("stored" if kept is None else "kept").inc()
        if kept is None or not kept.is_current:
            kept = await self._read(asked, kept, anew=anew)
        if scopes is None:
            return ShownContext(kept.view, kept.recent.messages, kept.xml)
        view = kept.view.narrowed(scopes)
        recent = kept.recent.messages if is_asked_for(asked, view) else ()
        return ShownContext(view, recent, self.render(view, recent=recent))

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
            watching = asyncio.create_task(self._follow(), name="contexts' change streams")
            self.watching = self._unawaited.add(watching)

    async def _follow(self) -> None:
        """Follow memory and who may see it, and messages apart: without these, they are read each time."""
        settings = self._settings
        following = [ContextFeed(self._client, feeds(settings), self.changed, self.heard)]
        if settings.memory.recent:
            of_recent = recent_feeds(settings)
            following.append(
                ContextFeed(self._client, of_recent, self._message_changed, self._hears_messages)
            )
        await run_until_first(*(feed.run() for feed in following))

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
        self._heard.heard(live)
        self.cache.live = live
        (self._live.set if live else self._live.clear)()
        for follower in self._followers:
            follower.live(live)

    def changed(self, changed: ContextChange) -> None:
        """Drop what was built from the changed source, and report the change to listeners."""
        if changed.what in ("state", "session"):
            self._heard.forget("deletions")
        if changed.what == "state":
            changed = ContextChange("session", changed.id)
            looking = asyncio.create_task(self._scopes_changed(changed.id), name="scopes of a session")
            self._looking.add(self._unawaited.add(looking))
            looking.add_done_callback(self._looking.discard)
        if changed.what == "everything":
            self._streams.forget()
            self._heard.forget("sharing")
            self._heard.forget("deletions")
            self.cache.clear()
            self._on_everything()
        else:
            self.cache.changed(*_tags_of(changed))
            self.cache.message_changed(changed)
        for follower in self._followers:
            follower.changed(changed)
        self._tell(changed)

    def _message_changed(self, changed: ContextChange) -> None:
        if changed.what in ("added", "everything"):
            self._heard_messages.forget(ADDED)
        self.cache.message_changed(changed)

    def _hears_messages(self, hears: bool) -> None:
        self._heard_messages.heard(hears)
        self.cache.hears_messages(hears)

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

    async def _read(self, asked: Asker, kept: "CachedContext | None", *, anew: bool) -> "CachedContext":
        """Read a context, or what a cached one shows of messages not formed yet.

        Unless `anew`, answers that concern everybody are those that were kept while their changes are heard.
        """
        self.watch()
        reading = self.cache.reading(asked)
        try:
            begun = self._recent.begin(asked, None if anew else self._heard_messages)
            if kept is None:
                go_on = partial(self._recent.go_on, asked, begun)
                views = await self._source.look_up([asked], None if anew else self._heard, go_on)
                view = views[asked]
            else:
                view = kept.view
            recent = await self._recent.shown(asked, view, begun)
        except BaseException:
            self.cache.failed(reading)
            raise
        return self.cache.put(
            reading, CachedContext(view, recent) if kept is None else kept, recent, self.render
        )


def _tags_of(changed: ContextChange) -> tuple[str, ...]:
    return tags_of_scope(changed.id) if changed.what == "scope" else (f"{changed.what}:{changed.id}",)


@dataclass(slots=True, eq=False)
class CachedContext:
    """A view with messages that are not formed yet, their XML, and when these expire, by a clock that nobody sets."""

    view: VisibleMemory
    recent: Recent
    xml: str = ""
    until: float = 0.0
    render_again: float = 0.0
    recent_until: float = 0.0
    is_current: bool = True
    """Whether the messages are those that a read would find now."""


@dataclass(slots=True, eq=False)
class ContextReading:
    """A running read, and the changes reported while it runs."""

    asked: Asker
    changed: set[str] = field(default_factory=set[str])
    messages: set[str] = field(default_factory=set[str])
    """Tags of messages that changed."""
    everything: bool = False
    any_message: bool = False
    """Whether any message may have changed."""


Render = Callable[[VisibleMemory, datetime, Sequence[FactLine], Sequence[RecentMessage]], str]


class RenderedContexts:
    """A cache of rendered contexts.

    It caches nothing unless `live`, when every change of memory is reported, and messages that are not formed yet
    only while it `hears` of their changes, too: for a minute at most, as many words of a context as show them.
    """

    def __init__(self, clock: Callable[[], datetime], elapsed: Callable[[], float] = time.monotonic) -> None:
        """`clock` tells the ages in a context, `elapsed` ends what is cached."""
        self._clock, self._elapsed = clock, elapsed
        self._kept: OrderedDict[Asker, CachedContext] = OrderedDict()
        self._by_tag: dict[str, set[Asker]] = {}
        self._by_message: dict[str, set[Asker]] = {}
        """By the tags of messages that are not formed yet."""
        self._reading: set[ContextReading] = set()
        self.live = self.hears = False

    def get(self, asked: Asker, render: Render) -> CachedContext | None:
        """Return the cached context, rendered again if its ages have changed; None if there is none.

        If it is not current, what it shows of messages is to be read again.
        """
        kept = self._kept.get(asked)
        if kept is None:
            return None
        elapsed = self._elapsed()
        if not self.live or elapsed >= kept.until:
            self._drop(asked)
            return None
        if elapsed >= kept.recent_until:
            self._outdated(asked, kept)
        elif elapsed >= kept.render_again:
            self._render(kept, render)
        self._kept.move_to_end(asked)
        return kept

    def reading(self, asked: Asker) -> ContextReading:
        """Note that a read begins; call :meth:`put` or :meth:`failed` when it ends."""
        reading = ContextReading(asked, everything=not self.live, any_message=not self.hears)
        self._reading.add(reading)
        return reading

    def failed(self, reading: ContextReading) -> None:
        """Note that a read failed."""
        self._reading.discard(reading)

    def put(
        self, reading: ContextReading, context: CachedContext, recent: Recent, render: Render
    ) -> CachedContext:
        """Render a context with these messages; cache what did not change while it was read.

        The context is a new one, or a cached one of which the messages were read again.
        """
        self._reading.discard(reading)
        asked, elapsed = reading.asked, self._elapsed()
        if self._kept.get(asked) is context:
            self._outdated(asked, context)  # another read may have finished first, with other messages
        if not context.xml or context.recent.messages != recent.messages or elapsed >= context.render_again:
            context.recent = recent
            self._render(context, render)
        if not context.until:
            self._keep(reading, context)
        if self._kept.get(asked) is context:
            context.recent = recent
            missed = bool(recent.tags) and (reading.any_message or bool(reading.messages & recent.tags))
            if recent.seconds and not missed:
                context.is_current, context.recent_until = True, elapsed + recent.seconds
                for tag in recent.tags:
                    self._by_message.setdefault(tag, set()).add(asked)
        return context

    def changed(self, *tags: str) -> None:
        """Drop the contexts of scopes (`scope:<key>`), sessions (`session:<id>`) or users (`user:<id>`)."""
        for tag in tags:
            for asked in tuple(self._by_tag.get(tag, ())):
                self._drop(asked)
            for reading in self._reading:
                reading.changed.add(tag)

    def message_changed(self, changed: ContextChange) -> None:
        """Have what may show a message that has changed, or messages of a session or user, read again.

        In its own session a message is not shown.
        """
        if changed.what == "everything":
            self._messages_outdated()
        for tag in _message_tags(changed):
            own = changed.id if tag.startswith("user:") and changed.what == "author" else None
            for asked in tuple(self._by_message.get(tag, ())):
                if own is None or asked.session_id != own:
                    self._outdated(asked, self._kept.get(asked))
            for reading in self._reading:
                if own is None or reading.asked.session_id != own:
                    reading.messages.add(tag)

    def hears_messages(self, hears: bool) -> None:
        """Note whether every change of messages is reported from now on."""
        self.hears = hears
        self._messages_outdated()

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._by_tag.clear()
        self._by_message.clear()
        for reading in self._reading:
            reading.everything = reading.any_message = True

    def _messages_outdated(self) -> None:
        for asked in {asked for having in self._by_message.values() for asked in having}:
            self._outdated(asked, self._kept.get(asked))
        for reading in self._reading:
            reading.any_message = True

    def _keep(self, reading: ContextReading, context: CachedContext) -> None:
        asked, tags = reading.asked, _tags(reading.asked, context.view)
        if not self.live or reading.everything or reading.changed & tags:
            return
        self._drop(asked)
        context.until = self._elapsed() + KEPT_SECONDS
        self._kept[asked] = context
        for tag in tags:
            self._by_tag.setdefault(tag, set()).add(asked)
        if len(self._kept) > MOST:
            self._drop(next(iter(self._kept)))

    def _render(self, context: CachedContext, render: Render) -> None:
        now = self._clock()
        context.xml = render(context.view, now, (), context.recent.messages)
        context.render_again = self._elapsed() + _rendered_for(context.view, now)

    def _outdated(self, asked: Asker, kept: CachedContext | None) -> None:
        if kept is None:
            return
        kept.is_current = False
        _untag(self._by_message, asked, kept.recent.tags)

    def _drop(self, asked: Asker) -> None:
        kept = self._kept.pop(asked, None)
        self._outdated(asked, kept)
        if kept is not None:
            _untag(self._by_tag, asked, _tags(asked, kept.view))


def _untag(by_tag: dict[str, set[Asker]], asked: Asker, tags: Iterable[str]) -> None:
    for tag in tags:
        having = by_tag.get(tag, set())
        having.discard(asked)
        if not having:
            by_tag.pop(tag, None)


def _message_tags(changed: ContextChange) -> tuple[str, ...]:
    match changed.what:
        case "author":
            user = (f"user:{changed.author}",) if changed.author is not None else ()
            return (f"session:{changed.id}", *user)
        case "message":
            return (f"message:{changed.id}", ANY_MESSAGE)
        case "forgotten":
            return (changed.id.rpartition("/")[0],)
        case "session" | "user":
            return (f"{changed.what}:{changed.id}",)
        case _:
            return ()


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
