"""Lanes under any interleaving: order per key, bounded, nothing lost, fair."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.kafka.record import Record
from eden_memory.stages.lanes import Again, AssignedPartition, Lanes, Queued, Slots, Unit

Step = tuple[int, int]
"""Key and number of a record."""


def _queued(home: AssignedPartition, key: int, number: int, size: int = 1) -> Queued:
    record = Record("t", home.partition, number, b"%d" % key, b"", (), 0)
    home.take(number, size)
    return Queued(record, home, size)


def _name(item: Queued) -> Step:
    return int(item.record.key or b""), item.record.offset


class _Gates:
    """Units that end when the test says so, and how."""

    def __init__(self) -> None:
        self.open: dict[int, tuple[Unit, asyncio.Future[Again | None]]] = {}
        self.started: list[list[Step]] = []
        self.finished: list[Step] = []
        self.most = 0

    async def run(self, unit: Unit) -> Again | None:
        future: asyncio.Future[Again | None] = asyncio.get_running_loop().create_future()
        self.started.append([_name(item) for item in unit.items])
        self.open[id(unit)] = (unit, future)
        self.most = max(self.most, len(self.open))
        result = await future
        del self.open[id(unit)]
        if result is None:
            for item in unit.items:
                item.home.finish(item.record.offset, item.size)
                self.finished.append(_name(item))
        return result

    async def end(self, choose: Callable[[int], int], result: Again | None, keep: int | None = None) -> None:
        unit, future = list(self.open.values())[choose(len(self.open))]
        if keep is not None:
            unit.keep(max(1, min(keep, len(unit.items))))
        future.set_result(result)
        await _turns()


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@asynccontextmanager
async def _stopped(lanes: Lanes) -> AsyncGenerator[Lanes]:
    """Lanes that start nothing more after the block, however it ends: an example may be cut short."""
    try:
        yield lanes
    finally:
        await lanes.stop(0)


KEYS = st.lists(st.integers(0, 4), min_size=1, max_size=30)


@given(KEYS, st.integers(1, 5), st.integers(1, 4), st.data())
def test_each_key_is_in_order_and_nothing_is_lost(
    keys: list[int], at_once: int, together: int, data: st.DataObject
) -> None:
    async def scenario() -> None:
        gates, homes = _Gates(), [AssignedPartition("t", number) for number in range(2)]
        async with _stopped(Lanes(gates.run, at_once=at_once, together=together)) as lanes:
            expected: dict[int, list[int]] = defaultdict(list)
            for number, key in enumerate(keys):
                lanes.add(b"%d" % key, _queued(homes[key % 2], key, number))
                expected[key].append(number)
                if data.draw(st.booleans()):
                    await _turns()
            results = st.sampled_from([None, None, Again(), Again(split=True), Again(gather=True)])
            await _turns()
            while gates.open:
                running = [_name(unit.items[0])[0] for unit, _ in gates.open.values()]
                assert len(set(running)) == len(running) <= at_once
                keep = data.draw(st.none() | st.integers(1, 3))
                await gates.end(lambda n: data.draw(st.integers(0, n - 1)), data.draw(results), keep)
            done: dict[int, list[int]] = defaultdict(list)
            for key, number in gates.finished:
                done[key].append(number)
            assert done == expected
            assert [home.count for home in homes] == [0, 0]
            assert lanes.queued == lanes.running == 0

    asyncio.run(scenario())


@given(KEYS, st.integers(1, 4), st.data())
def test_a_revoke_drops_what_waits_and_only_that(keys: list[int], at_once: int, data: st.DataObject) -> None:
    async def scenario() -> None:
        gates, homes = _Gates(), [AssignedPartition("t", number) for number in range(2)]
        async with _stopped(Lanes(gates.run, at_once=at_once, together=2)) as lanes:
            for number, key in enumerate(keys):
                lanes.add(b"%d" % key, _queued(homes[key % 2], key, number))
            await _turns()
            for _ in range(data.draw(st.integers(0, 5))):
                if gates.open:
                    again = data.draw(st.sampled_from([None, Again(), Again(after=60)]))
                    await gates.end(lambda n: data.draw(st.integers(0, n - 1)), again)
            running = {_name(item) for unit, _ in gates.open.values() for item in unit.items}
            homes[0].revoked = True
            lanes.drop_revoked()
            await _turns()
            while gates.open:
                await gates.end(lambda n: 0, None)
            started_after = {name for names in gates.started for name in names}
            assert running <= set(gates.finished)
            assert all(key % 2 == 1 or (key, number) in started_after for key, number in gates.finished)
            parked = {number for number in range(len(keys)) if (keys[number], number) not in gates.finished}
            assert all(keys[number] % 2 == 0 or lanes.queued for number in parked)

    asyncio.run(scenario())


async def test_records_of_a_returned_partition_wait_for_the_handler_that_still_runs() -> None:
    gates, before, after = _Gates(), AssignedPartition("t", 0), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=10)
    lanes.add(b"1", _queued(before, 1, 0))
    await _turns()
    before.revoked = True
    lanes.drop_revoked()
    lanes.add(b"1", _queued(after, 1, 0))
    await _turns()
    assert gates.started == [[(1, 0)]]
    await gates.end(lambda n: 0, None)
    assert gates.started == [[(1, 0)], [(1, 0)]]
    await gates.end(lambda n: 0, None)
    assert after.committable() == 1


async def test_a_retry_waits_without_a_slot_and_keeps_its_place() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1)
    for number, key in enumerate([1, 1, 2]):
        lanes.add(b"%d" % key, _queued(home, key, number))
    await _turns()
    await gates.end(lambda n: 0, Again(after=0.05))
    assert gates.started[-1] == [(2, 2)]
    await gates.end(lambda n: 0, None)
    async with asyncio.timeout(60):
        while not gates.open:  # noqa: ASYNC110 - the lane's own timer opens it
            await asyncio.sleep(0.005)
    assert gates.started[-1] == [(1, 0)]
    await gates.end(lambda n: 0, None)
    await gates.end(lambda n: 0, None)
    assert gates.finished == [(2, 2), (1, 0), (1, 1)]


async def test_no_unit_starts_while_as_many_records_run_as_may() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=10, together=10, records_at_once=4)
    for key, first, count in ((1, 0, 3), (2, 3, 5), (3, 8, 1), (4, 9, 1)):
        lanes.add(b"%d" % key, *(_queued(home, key, number) for number in range(first, first + count)))
    await _turns()
    assert [len(unit) for unit in gates.started] == [3, 5]
    await gates.end(lambda n: 0, None)
    assert len(gates.started) == 2
    await gates.end(lambda n: 0, None, keep=2)
    assert gates.started[2:] == [[(3, 8)], [(4, 9)], [(2, 5), (2, 6), (2, 7)]]
    for _ in range(3):
        await gates.end(lambda n: 0, None)
    assert len(gates.finished) == 10
    assert lanes.running == 0


async def test_a_unit_that_gathers_is_tried_again_with_each_record_that_joins_it() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1, together=10)
    async with _stopped(lanes):
        lanes.add(b"1", _queued(home, 1, 0))
        await _turns()
        await gates.end(lambda n: 0, Again(after=60, gather=True))
        assert lanes.waiting() == {"order": 0, "turn": 1, "retry": 0, "pause": 0}
        lanes.add(b"1", _queued(home, 1, 1))
        await _turns()
        lanes.add(b"1", _queued(home, 1, 2))  # while the unit is looked at
        await gates.end(lambda n: 0, Again(after=60, gather=True))
        await gates.end(lambda n: 0, None)
    taken = [[number for _, number in names] for names in gates.started]
    assert taken == [[0], [0, 1], [0, 1, 2]]


async def test_a_unit_that_gathers_is_tried_again_in_time_though_nothing_joins_it() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1, together=10)
    async with _stopped(lanes), asyncio.timeout(60):
        lanes.add(b"1", _queued(home, 1, 0))
        await _turns()
        await gates.end(lambda n: 0, Again(after=0.01, gather=True))
        while not gates.open:  # noqa: ASYNC110 - the lane's own timer opens it
            await asyncio.sleep(0.005)
        await gates.end(lambda n: 0, None)
    assert gates.finished == [(1, 0)]


async def test_a_revoke_drops_what_gathers() -> None:
    gates, before, after = _Gates(), AssignedPartition("t", 0), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1, together=10)
    async with _stopped(lanes):
        lanes.add(b"1", _queued(before, 1, 0))
        await _turns()
        await gates.end(lambda n: 0, Again(after=60, gather=True))
        before.revoked = True
        lanes.drop_revoked()
        lanes.add(b"1", _queued(after, 1, 0))
        await _turns()
        await gates.end(lambda n: 0, None)
    assert after.committable() == 1
    assert before.committable() == 0


async def test_a_split_unit_is_tried_in_halves_before_anything_else_of_its_lane() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1, together=4)
    for number in range(6):
        lanes.add(b"1", _queued(home, 1, number))
    await _turns()
    await gates.end(lambda n: 0, None)
    await gates.end(lambda n: 0, Again(split=True))
    while gates.open:
        await gates.end(lambda n: 0, None)
    taken = [[number for _, number in names] for names in gates.started]
    assert taken == [[0], [1, 2, 3, 4], [1, 2], [3, 4], [5]]


async def test_what_is_taken_together_stays_small() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=1, together=10)
    lanes.add(b"1", _queued(home, 1, 0))
    for number in range(1, 4):
        lanes.add(b"1", _queued(home, 1, number, size=1_900_000))
    await _turns()
    while gates.open:
        await gates.end(lambda n: 0, None)
    assert [len(names) for names in gates.started] == [1, 2, 1]


async def test_partitions_and_keys_take_turns() -> None:
    gates = _Gates()
    busy, quiet = AssignedPartition("t", 0), AssignedPartition("t", 1)
    lanes = Lanes(gates.run, at_once=1)
    for number in range(20):
        lanes.add(b"%d" % (number % 5), _queued(busy, number % 5, number))
    lanes.add(b"9", _queued(quiet, 9, 0))
    await _turns()
    while gates.open:
        await gates.end(lambda n: 0, None)
    order = [names[0][0] for names in gates.started]
    assert order.index(9) <= 2
    assert all(count == 4 for key, count in Counter(order).items() if key != 9)
    assert sorted(order[1:7]) == [0, 1, 2, 3, 4, 9] or sorted(order[:6]) == [0, 1, 2, 3, 4, 9]


async def test_stages_of_a_process_share_its_slots_in_turn() -> None:
    slots, gates = Slots(2), [_Gates(), _Gates()]
    home = AssignedPartition("t", 0)
    both = [Lanes(one.run, at_once=10, slots=slots) for one in gates]
    for number in range(8):
        both[0].add(b"%d" % number, _queued(home, number, number))
    for number in range(8, 16):
        both[1].add(b"%d" % number, _queued(home, number, number))
    await _turns()
    while any(one.open for one in gates):
        assert sum(len(one.open) for one in gates) <= 2
        for one in gates:
            if one.open:
                await one.end(lambda n: 0, None)
                done = [len(other.finished) for other in gates]
                assert abs(done[0] - done[1]) <= 3
    assert [len(one.finished) for one in gates] == [8, 8]


async def test_a_paused_stage_starts_nothing_but_a_probe() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=10)
    lanes.pause()
    for number in range(3):
        lanes.add(b"%d" % number, _queued(home, number, number))
    await _turns()
    assert not gates.open
    lanes.probe()
    await _turns()
    assert len(gates.open) == 1
    await gates.end(lambda n: 0, Again(after=60))
    assert not gates.open
    lanes.resume()
    await _turns()
    assert len(gates.open) == 2
    await lanes.stop(0)


async def test_a_probe_wakes_what_is_parked_when_nothing_else_waits() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=10)
    lanes.add(b"1", _queued(home, 1, 0))
    await _turns()
    lanes.pause()
    await gates.end(lambda n: 0, Again(after=60))
    lanes.probe()
    await _turns()
    assert len(gates.open) == 1
    await lanes.stop(0)


async def test_stopping_waits_for_what_runs_and_cancels_it_at_the_deadline() -> None:
    gates, home = _Gates(), AssignedPartition("t", 0)
    lanes = Lanes(gates.run, at_once=10)
    lanes.add(b"1", _queued(home, 1, 0))
    await _turns()
    stopping = asyncio.create_task(lanes.stop(30))
    await _turns()
    await gates.end(lambda n: 0, None)
    assert await stopping
    hanging = Lanes(gates.run, at_once=10)
    hanging.add(b"2", _queued(home, 2, 1))
    await _turns()
    assert not await hanging.stop(0.01)


async def test_a_defect_of_the_runtime_is_not_swallowed() -> None:
    async def broken(unit: Unit) -> Again | None:
        raise LookupError("defect")

    lanes = Lanes(broken, at_once=1)
    lanes.add(b"1", _queued(AssignedPartition("t", 0), 1, 0))
    await _turns()
    with pytest.raises(LookupError):
        lanes.unawaited.check()
