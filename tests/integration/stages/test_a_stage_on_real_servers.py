"""A stage against real MongoDB and Kafka: everything once, in order, from wherever it left off."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError
from eden_memory.stages.outcome import OutcomeTooLarge, Reread, StageOutcome, StoredRecord
from eden_memory.stages.stage import Decision, Delivery, Emitted
from eden_memory.stages.worker import Bounds, Worker
from tests.integration.stages.harness import (
    NOON,
    Asked,
    Bench,
    answered,
    asked,
    in_order,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers


async def test_every_record_is_answered_once_and_in_order(kit: Bench) -> None:
    await kit.put(questions(20, 10))
    async with running(Worker(stage(), kit.around())):
        answers = await kit.answers(200)
        await until(lambda: _committed(kit, 200), "all committed")
    assert len(answers) == 200
    assert in_order(answers)


async def _committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count


async def test_a_worker_goes_on_where_the_last_one_stopped(kit: Bench) -> None:
    await kit.put(questions(5, 4))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(20)
    await kit.put([asked(f"s{session}", number) for number in range(4, 8) for session in range(5)])
    async with running(Worker(stage(), kit.around())):
        answers = await kit.answers(40)
    assert len(answers) == 40
    assert in_order(answers)


async def test_two_workers_on_the_same_record_publish_one_and_the_same_outcome(kit: Bench) -> None:
    both_inside = asyncio.Barrier(2)

    async def at_random(deliveries: Sequence[Delivery]) -> list[Emitted]:
        async with both_inside:
            return [answered(one, uuid4().hex) for one in deliveries]

    await kit.put([asked("s", 0)])
    async with running(*(Worker(stage(at_random), kit.under(group)) for group in ("a", "b"))):
        published = await kit.read(kit.topic(Asked).replace("in", "out"), 2)
    first, second = published
    assert (first.key, first.value, first.headers) == (second.key, second.value, second.headers)
    assert await kit.database.memory_outcomes.count_documents({}) == 1


async def test_a_redelivery_publishes_again_and_asks_nothing(kit: Bench) -> None:
    calls: list[str] = []

    async def counted(deliveries: Sequence[Delivery]) -> list[Emitted]:
        calls.extend(one.id for one in deliveries)
        return [answered(one, uuid4().hex) for one in deliveries]

    await kit.put(questions(3, 2))
    async with running(Worker(stage(counted), kit.around())):
        before = await kit.answers(6)
    async with running(Worker(stage(counted), kit.under("again"))):
        published = await kit.read(before[0].topic, 12)
    assert sorted(calls) == sorted(set(calls))
    assert Counter((one.key, one.value, one.headers) for one in published).most_common()[-1][1] == 2


async def test_an_outcome_whose_records_were_consumed_publishes_nothing(kit: Bench) -> None:
    await kit.put([asked("s", 0)])
    async with running(Worker(stage(), kit.around())):
        (answer,) = await kit.answers(1)
    source = await kit.database.memory_outcomes.find_one()
    removed = await kit.ledger.remove_consumed(
        "answering", source["topic"], source["partition"], source["offset"] + 1
    )
    assert removed == 1
    await kit.put([asked("s", 1)])
    async with running(Worker(stage(), kit.under("again"))):
        published = await kit.read(answer.topic, 2)
    assert [one.key for one in published] == [b"s-0", b"s-1"]


async def test_several_waiting_records_of_a_lane_are_decided_together(kit: Bench) -> None:
    sizes: list[int] = []

    async def together(deliveries: Sequence[Delivery]) -> list[Emitted]:
        sizes.append(len(deliveries))
        await asyncio.sleep(0.02)
        return [answered(one, str(len(deliveries))) for one in deliveries]

    await kit.put(questions(1, 50))
    async with running(Worker(stage(together, together=10), kit.around())):
        answers = await kit.answers(50)
    assert in_order(answers)
    assert max(sizes) == 10
    assert sum(sizes) == 50
    outcomes = [one async for one in kit.database.memory_outcomes.find()]
    assert sorted(len(one["members"]) for one in outcomes) == sorted(sizes)


async def test_a_stage_says_what_belongs_together(kit: Bench) -> None:
    sizes: list[int] = []

    async def note(deliveries: Sequence[Delivery]) -> list[Emitted]:
        sizes.append(len(deliveries))
        return [answered(one) for one in deliveries]

    await kit.put(questions(1, 12))

    def three(deliveries: Sequence[Delivery]) -> int:
        return 3

    threes = stage(note, together=10, together_first=three)
    async with running(Worker(threes, kit.around())):
        assert in_order(await kit.answers(12))
    assert max(sizes) == 3


async def test_a_batch_takes_a_partition_s_records_whatever_their_keys(kit: Bench) -> None:
    sizes: list[int] = []

    async def batch(deliveries: Sequence[Delivery]) -> list[Emitted]:
        sizes.append(len(deliveries))
        return [answered(one) for one in deliveries]

    await kit.put(questions(100, 5))
    async with running(Worker(stage(batch, batch=200, decides=False), kit.around())):
        answers = await kit.answers(500)
    assert in_order(answers)
    assert len(sizes) < 100
    assert await kit.database.memory_outcomes.count_documents({}) == 0


async def test_a_decision_that_another_one_took_is_decided_anew(kit: Bench) -> None:
    """Two questions want to write the same version; one of them has to take the next."""

    both, calls = asyncio.Barrier(2), itertools.count(1)

    async def versions(deliveries: Sequence[Delivery]) -> Decision:
        (one,) = deliveries
        taken = await kit.database.memory_outcomes.count_documents({})
        if next(calls) <= 2:
            await both.wait()
        return Decision([answered(one, str(taken))], writes=(f"fact@{taken}",))

    await kit.put([asked("a", 0), asked("b", 0)])
    async with running(Worker(stage(versions), kit.around())):
        answers = await kit.answers(2)
    assert sorted(json_text(one.value) for one in answers) == ["0", "1"]
    assert next(calls) == 4, "one was asked again"


def json_text(value: bytes | None) -> str:
    """The text of an answer."""
    return (value or b"").decode().split('"text":"')[1].split('"')[0]


async def test_a_hot_key_holds_back_its_lane_and_stays_within_the_bound(kit: Bench) -> None:
    opened = asyncio.Event()
    most = 0

    async def slow_for_hot(deliveries: Sequence[Delivery]) -> list[Emitted]:
        nonlocal most
        most = max(most, *(home.count for home in worker.membership.homes.values()))
        if deliveries[0].key.startswith("hot"):
            await opened.wait()
        return [answered(one) for one in deliveries]

    await kit.put([*questions(60, 5), *(asked("hot", number) for number in range(300))])
    bounds = Bounds(records=100, poll_records=50, commit_seconds=0.1, poll_seconds=0.05)
    worker = Worker(stage(slow_for_hot), kit.around(bounds=bounds))
    async with running(worker):
        answers = await kit.answers(300)
        assert not any((one.key or b"").startswith(b"hot") for one in answers)
        opened.set()
        assert in_order(await kit.answers(600, seconds=120))
    assert most <= 150


async def test_a_group_that_lost_its_offsets_stops_and_says_so(kit: Bench) -> None:
    await kit.put(questions(3, 2))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(6)
    admin: Any = AdminClient({"bootstrap.servers": kit.client["bootstrap_servers"]})  # pyright: ignore
    await asyncio.to_thread(admin.delete_consumer_groups([kit.group])[kit.group].result, 30)
    with pytest.raises(EdenError, match="has lost its place in"):
        await asyncio.wait_for(Worker(stage(), kit.around()).run(), 60)


async def test_a_group_that_never_committed_starts_at_the_beginning(kit: Bench) -> None:
    await kit.put(questions(3, 2))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(6)


async def test_a_stop_lets_what_runs_finish_and_the_next_worker_finds_it(kit: Bench) -> None:
    calls: list[str] = []
    inside = asyncio.Event()

    async def slow(deliveries: Sequence[Delivery]) -> list[Emitted]:
        calls.append(deliveries[0].id)
        inside.set()
        await asyncio.sleep(0.5)
        return [answered(deliveries[0])]

    await kit.put([asked("s", 0)])
    async with running(Worker(stage(slow), kit.around())):
        await inside.wait()
    assert await kit.database.memory_outcomes.count_documents({}) == 1
    async with running(Worker(stage(slow), kit.around())):
        await kit.answers(1)
    assert calls == ["s-0"]


async def test_a_rebalance_stops_nothing_for_a_long_handler_and_calls_it_once(kit: Bench) -> None:
    calls: Counter[str] = Counter()
    times: list[float] = []
    opened = asyncio.Event()

    async def mostly_quick(deliveries: Sequence[Delivery]) -> list[Emitted]:
        (one,) = deliveries
        calls[one.id] += 1
        if one.key.startswith("long"):
            await opened.wait()
        times.append(time.monotonic())
        return [answered(one)]

    await kit.put([asked("long", 0), *questions(12, 1)])
    first = Worker(stage(mostly_quick), kit.around())
    second = Worker(stage(mostly_quick), kit.around())
    async with running(first):
        await kit.answers(12)
        async with running(second):
            await until(lambda: first.membership.homes and second.membership.homes, "both hold some")
            await kit.put([asked(f"s{session}", 1) for session in range(12)])
            await kit.answers(24)
        await until(lambda: len(first.membership.homes) == 6, "the first holds all again")
        opened.set()
        answers = await kit.answers(25)
    assert in_order(answers)
    assert calls["long-0"] <= 2, "once in each process at most, never again where it still ran"
    assert sum(calls.values()) <= 26


async def test_the_ledger_is_written_once(kit: Bench) -> None:
    def outcome(key: str, *members: str, writes: tuple[str, ...] = (), text: bytes = b"1") -> StageOutcome:
        record = StoredRecord("out", b"s", b"k", text, (("h", b"\xff"),))
        return StageOutcome(key, "st", members, writes, (record,), "in", 0, 1, NOON)

    first = outcome("a", "e1", "e2", writes=("fact@1",))
    assert await kit.ledger.store(first) == first
    assert await kit.ledger.store(outcome("a", "e1", text=b"2")) == first
    for taken in (outcome("b", "e2"), outcome("c", "e3", writes=("fact@1",))):
        with pytest.raises(Reread):
            await kit.ledger.store(taken)
    assert await kit.ledger.find("st", ["e1", "e2", "e3"]) == {"e1": first, "e2": first}
    assert await kit.ledger.find("other", ["e1"]) == {}
    with pytest.raises(OutcomeTooLarge):
        await kit.ledger.store(outcome("d", "e9", text=b"x" * 4_000_001))


async def test_what_was_finished_beyond_a_gap_comes_again_and_is_not_asked_again(kit: Bench) -> None:
    calls: Counter[str] = Counter()
    blocked = True

    async def first_hangs(deliveries: Sequence[Delivery]) -> list[Emitted]:
        (one,) = deliveries
        calls[one.id] += 1
        if blocked and one.key.endswith("-0"):
            await asyncio.sleep(3_600)
        return [answered(one, uuid4().hex)]

    await kit.put([asked("first", 0), *(asked(f"s{number}", 1) for number in range(40))])
    async with running(Worker(stage(first_hangs), kit.around()), deadline=0.1):
        before = await kit.answers(40)
    assert await kit.committed() < 40, "the gap holds its partition back"
    blocked = False
    async with running(Worker(stage(first_hangs), kit.around())):
        answers = await kit.answers(41)
        await until(lambda: _committed(kit, 41), "the gap is filled")
    assert calls.pop("first-0") == 2
    assert set(calls.values()) == {1}
    texts = {(one.key, one.value) for one in (*before, *answers)}
    assert len(texts) == 41
