"""Contexts kept in the process: valid until something they were made from changes, never beyond a time to live."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.context_xml import next_expiry

KEPT_FOR = timedelta(minutes=5)
RENDERED_FOR = timedelta(minutes=1)
"""Ages in a context are minutes at the finest."""
MOST = 10_000


@dataclass(slots=True)
class Kept:
    """A context, its view, and when both are too old."""

    view: VisibleMemory
    xml: str
    until: datetime
    render_again: datetime


@dataclass(slots=True, eq=False)
class Reading:
    """A read under way, and what was said to have changed meanwhile."""

    asked: Asker
    changed: set[str] = field(default_factory=set[str])
    everything: bool = False


class ContextCache:
    """Keeps nothing while it is not `live`: only then is every change known to be heard of."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._kept: OrderedDict[Asker, Kept] = OrderedDict()
        self._by_tag: dict[str, set[Asker]] = {}
        self._reading: set[Reading] = set()
        self.live = False

    def get(self, asked: Asker, render: Callable[[VisibleMemory, datetime], str]) -> Kept | None:
        """What is kept, rendered anew where its ages have moved on."""
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

    def reading(self, asked: Asker) -> Reading:
        """To be called before the read begins; :meth:`put` or :meth:`failed` ends it."""
        reading = Reading(asked, everything=not self.live)
        self._reading.add(reading)
        return reading

    def failed(self, reading: Reading) -> None:
        """Nothing was read."""
        self._reading.discard(reading)

    def put(
        self, reading: Reading, view: VisibleMemory, render: Callable[[VisibleMemory, datetime], str]
    ) -> str:
        """Render what was read; keep it, unless something in it changed while it was read."""
        self._reading.discard(reading)
        now = self._clock()
        xml = render(view, now)
        tags = _tags(reading.asked, view)
        if self.live and not reading.everything and not reading.changed & tags:
            self._drop(reading.asked)
            self._kept[reading.asked] = Kept(view, xml, now + KEPT_FOR, _render_again(view, now))
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
    """What a change of a scope changes: a session's memory, whatever its generation, the session's contexts."""
    kind, _, rest = key.partition(":")
    return (f"scope:{key}", f"session:{rest.partition(':')[0]}") if kind == "session" else (f"scope:{key}",)
