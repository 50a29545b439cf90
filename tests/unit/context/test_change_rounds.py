"""Changes of the same moment are worked on together; an error is of those alone whose changes raise it."""

import asyncio
from collections.abc import Sequence

import pytest

from eden_memory.context.ready_contexts import ChangeRounds
from eden_memory.stages.stage import Delivery
from tests.unit.windows.records import message


def change(name: str) -> Delivery:
    return message(f"s.{name}", "s.s", 1, 0)


class Work:
    """Keeps what it is given, and fails where a change is `bad`; a round goes on until it may end."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, deliveries: Sequence[Delivery]) -> None:
        self.rounds.append([delivery.key.removeprefix("s.") for delivery in deliveries])
        await self.may_end.wait()
        if "bad" in self.rounds[-1]:
            raise LookupError("bad")


async def test_changes_of_one_moment_share_a_round_and_later_ones_the_next() -> None:
    work = Work()
    rounds = ChangeRounds(work, gather=0.0, breath=0.0)
    work.may_end.clear()
    first = [asyncio.create_task(rounds.join([change(name)])) for name in "ab"]
    while not work.rounds:  # noqa: ASYNC110 - the round's own task begins it
        await asyncio.sleep(0)
    second = [asyncio.create_task(rounds.join([change(name)])) for name in "cd"]
    await asyncio.sleep(0)
    assert not any(task.done() for task in (*first, *second))
    work.may_end.set()
    await asyncio.gather(*first, *second)
    assert work.rounds == [["a", "b"], ["c", "d"]]


async def test_an_error_is_raised_where_it_belongs_and_the_others_are_done() -> None:
    work = Work()
    rounds = ChangeRounds(work, gather=0.0, breath=0.0)
    results = await asyncio.gather(
        *(rounds.join([change(name)]) for name in ("a", "bad", "b")), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), LookupError, type(None)]
    with pytest.raises(LookupError):
        await rounds.join([change("bad")])
    await rounds.join([change("c")])
    assert work.rounds[-1] == ["c"]


async def test_who_is_cancelled_keeps_nobody_waiting() -> None:
    work = Work()
    rounds = ChangeRounds(work, gather=0.0, breath=0.0)
    gone = asyncio.create_task(rounds.join([change("a")]))
    await asyncio.sleep(0)
    stays = asyncio.create_task(rounds.join([change("b")]))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    await rounds.join([change("c")])
    assert work.rounds[-1] == ["c"]
