"""Messages not formed yet in kept contexts: which changes have them read again, also while they are read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.cached_contexts import CachedContext, RenderedContexts
from eden_memory.context.context_feed import ContextChange
from eden_memory.context.recent_message_store import Recent
from eden_memory.memory.memory_views import RecentMessage

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ASKER, VIEW = Asker("s.a", "s.one", "s.ada"), VisibleMemory((), ())
SHOWN = RecentMessage("s.m", "s.two", "user", "Pixel barks.", NOON)
FOUND = Recent((SHOWN,), frozenset({"user:s.ada", "session:s.two", "message:s.m"}), 60.0)
CONCERNING = [
    ContextChange("author", "s.two"),
    ContextChange("author", "s.three", "s.ada"),
    ContextChange("message", "s.m"),
    ContextChange("session", "s.two"),
    ContextChange("user", "s.ada"),
    ContextChange("forgotten", "message:s.m/for_ever"),
    ContextChange("forgotten", "user:s.ada/"),
    ContextChange("everything"),
]
OTHERS = [
    ContextChange("author", "s.one", "s.ada"),  # a session never shows its own messages so
    ContextChange("author", "s.three", "s.bob"),
    ContextChange("message", "s.other"),
    ContextChange("forgotten", "fact:f/for_ever"),
]


def render(_view: VisibleMemory, _now: datetime, _: Any, recent: Sequence[RecentMessage]) -> str:
    return " ".join(message.content for message in recent) or "nothing"


def kept(change: ContextChange | None, *, hears: bool = True) -> RenderedContexts:
    """A cache with one context, read while something changed."""
    cache = RenderedContexts(lambda: NOON, lambda: 1.0)
    cache.live, cache.hears = True, hears
    reading = cache.reading(ASKER)
    if change is not None:
        cache.message_changed(change)
    assert cache.put(reading, CachedContext(VIEW, FOUND), FOUND, render).xml == "Pixel barks."
    return cache


def is_current(cache: RenderedContexts) -> bool:
    found = cache.get(ASKER, render)
    assert found is not None, "memory is kept whatever messages say"
    return found.is_current


@pytest.mark.parametrize("change", CONCERNING)
def test_a_change_that_concerns_them_has_them_read_again(change: ContextChange) -> None:
    cache = kept(None)
    assert is_current(cache)
    cache.message_changed(change)
    assert not is_current(cache)
    assert not is_current(kept(change)), "nor are they kept if it came while they were read"


@pytest.mark.parametrize("change", OTHERS)
def test_any_other_change_leaves_them(change: ContextChange) -> None:
    cache = kept(change)
    cache.message_changed(change)
    assert is_current(cache)


def test_they_are_kept_only_while_their_changes_are_heard() -> None:
    assert not is_current(kept(None, hears=False))
    cache = kept(None)
    cache.hears_messages(False)
    assert not is_current(cache)


def test_what_is_read_again_takes_their_place() -> None:
    cache = kept(None)
    cache.message_changed(ContextChange("message", "s.m"))
    context = cache.get(ASKER, render)
    assert context is not None
    none = Recent((), FOUND.tags, 60.0)
    assert cache.put(cache.reading(ASKER), context, none, render).xml == "nothing"
    assert is_current(cache)
    cache.message_changed(ContextChange("author", "s.two"))
    assert not is_current(cache)


def test_of_two_reads_of_one_asker_the_one_that_ends_last_leaves_no_tag_behind() -> None:
    cache = kept(None)
    cache.message_changed(ContextChange("author", "s.two"))
    context = cache.get(ASKER, render)
    assert context is not None
    first = cache.reading(ASKER)
    cache.message_changed(ContextChange("author", "s.two"))
    newer = RecentMessage("s.m2", "s.two", "user", "Pixel sleeps.", NOON)
    found = Recent((newer, SHOWN), FOUND.tags | {"message:s.m2"}, 60.0)
    cache.put(cache.reading(ASKER), context, found, render)
    cache.put(first, context, FOUND, render)
    assert not is_current(cache), "the older list is read again"
    cache.changed("user:s.ada")
    cache.message_changed(ContextChange("message", "s.m2"))
    cache.hears_messages(False)
    assert cache.get(ASKER, render) is None
    assert not cache._by_message  # pyright: ignore[reportPrivateUsage]
