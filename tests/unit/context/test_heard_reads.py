"""Answers that concern everybody are kept while their changes are heard, and never longer."""

import asyncio
from collections.abc import Awaitable, Callable

from eden_memory.context.context_feed import HELD_SECONDS, HeardReads


def counted() -> Callable[[], Awaitable[int]]:
    """A read whose answer is how often it was made."""
    made = 0

    async def read() -> int:
        nonlocal made
        made += 1
        return made

    return read


async def test_an_answer_is_kept_while_its_changes_are_heard_and_for_a_minute() -> None:
    now = 0.0
    heard, read = HeardReads(lambda: now), counted()
    assert [await heard.get("a", read), await heard.get("a", read)] == [1, 2], "nothing is heard yet"
    heard.heard(True)
    assert [await heard.get("a", read), await heard.get("a", read)] == [3, 3]
    heard.forget("b")
    assert await heard.get("a", read) == 3
    heard.forget("a")
    assert await heard.get("a", read) == 4
    now += HELD_SECONDS
    assert await heard.get("a", read) == 5
    heard.heard(False)
    assert await heard.get("a", read) == 6


async def test_an_answer_is_not_kept_if_it_may_have_changed_while_it_was_read() -> None:
    for heard_again in (False, True):
        heard, read, go = HeardReads(), counted(), asyncio.Event()
        heard.heard(True)

        async def late(go: asyncio.Event = go, read: Callable[[], Awaitable[int]] = read) -> int:
            await go.wait()
            return await read()

        reading = asyncio.create_task(heard.get("a", late))
        await asyncio.sleep(0)
        if heard_again:
            heard.heard(True)
        else:
            heard.forget("a")
        go.set()
        assert await reading == 1
        assert await heard.get("a", read) == 2
