"""Ordered lanes: records of one key run one after the other, different keys side by side.

Pure asyncio, no Kafka. A lane takes its next unit (one record, or several that wait together) only when the one
before is finished; what is to be tried again goes back to the lane's front, so order is kept. Slots limit how many
handlers run at once in one process: stages, partitions and lanes take turns. What a partition may commit is the end
of the contiguous prefix of its finished offsets.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Generic, TypeVar

from eden_memory.kafka.record import Record
from eden_memory.schemas.documents import GivenUp
from eden_memory.stages.stage import Delivery
from eden_memory.tasks import Unawaited

L = TypeVar("L")
TOGETHER_BYTES = 4_000_000


class AssignedPartition:
    """One assignment of a partition: from the moment it is given until it is revoked.

    Offsets are taken in rising order and finished in any; what may be committed is the contiguous prefix.
    """

    __slots__ = ("_end", "_finished", "_pending", "_since", "bytes", "count", "partition", "revoked", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.revoked = False
        self.count = 0
        self.bytes = 0
        self._end: int | None = None
        self._pending: deque[int] = deque()
        self._since: deque[float] = deque()
        self._finished: set[int] = set()

    def take(self, offset: int, size: int) -> bool:
        """Record a fetched record; return False if it was fetched before in this assignment."""
        if self._end is not None and offset < self._end:
            return False
        self._pending.append(offset)
        self._since.append(time.monotonic())
        self._end = offset + 1
        self.count += 1
        self.bytes += size
        return True

    def finish(self, offset: int, size: int) -> None:
        """Record that a record is finished; call it once for each offset."""
        self._finished.add(offset)
        self.count -= 1
        self.bytes -= size
        while self._pending and self._pending[0] in self._finished:
            self._finished.discard(self._pending.popleft())
            self._since.popleft()

    @property
    def gap(self) -> int:
        """Finished records that are not committed, because one before them is unfinished."""
        return len(self._finished)

    def oldest(self) -> float:
        """Seconds since the first unfinished record was taken; 0.0 if there is none."""
        return time.monotonic() - self._since[0] if self._since else 0.0

    def committable(self, position: int | None = None) -> int | None:
        """The offset to commit: of the first unfinished record, else behind everything seen.

        `position` is the consumer's, read before this call: with nothing unfinished it may be further than
        the last record, because transaction markers take offsets too. None: nothing was seen.
        """
        if self._pending:
            return self._pending[0]
        known = [offset for offset in (self._end, position) if offset is not None]
        return max(known, default=None)


class Slots:
    """A bounded number of slots; who finds none free is called, in turn, when one is.

    Between two calls either no slot is free or nobody waits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: dict[Callable[[], None], None] = {}
        self._turn: Callable[[], None] | None = None

    def take(self, when_free: Callable[[], None]) -> bool:
        """Take a slot; return False if it is another's turn, and call `when_free` once later."""
        if self._free > 0 and (not self._waiting or self._turn == when_free):
            self._free -= 1
            self._turn = None
            return True
        self._waiting[when_free] = None
        return False

    def release(self) -> None:
        """Return a slot; waiting callers try in the order in which they came."""
        self._free += 1
        self._offer()

    def resize(self, limit: int) -> None:
        """Change the number of slots; those in use beyond it are not given out again."""
        self._free += limit - self.limit
        self.limit = limit
        self._offer()

    def _offer(self) -> None:
        while self._free > 0 and self._waiting:
            self._turn = next(iter(self._waiting))
            del self._waiting[self._turn]
            self._turn()
            self._turn = None


class Rounds(Generic[L]):
    """A round robin over partitions of a round robin over lanes."""

    def __init__(self) -> None:
        self._lanes: dict[AssignedPartition, deque[L]] = {}
        self._order: deque[AssignedPartition] = deque()

    def __bool__(self) -> bool:
        return bool(self._order)

    def push(self, home: AssignedPartition, lane: L) -> None:
        """Queue a lane behind the others of its partition."""
        lanes = self._lanes.get(home)
        if lanes is None:
            lanes = self._lanes[home] = deque()
            self._order.append(home)
        lanes.append(lane)

    def pop(self) -> L:
        """Return the next lane; an IndexError if none waits."""
        home = self._order.popleft()
        lanes = self._lanes[home]
        lane = lanes.popleft()
        if lanes:
            self._order.append(home)
        else:
            del self._lanes[home]
        return lane

    def clear(self) -> None:
        """Forget all turns."""
        self._lanes.clear()
        self._order.clear()


@dataclass(slots=True, eq=False)
class Queued:
    """A record that waits in its lane.

    `retry` is not 0 for a dead letter sent again, and its own for each time; `times` counts them.
    """

    record: Record
    home: AssignedPartition
    size: int
    attempts: int = 0
    epoch: int = 0
    settled: int = 0
    """Attempts that were counted before this epoch."""
    retry: int = 0
    times: int = 0
    rereads: int = 0
    uncounted: int = 0
    """Failures in a row that did not count, and for which only this record waits."""
    waits_for: str = ""
    """Why it failed the last time, while it waits alone."""
    session: str = ""
    """Whose answers could not be read when it failed the last time."""
    given: Delivery | None = None
    """Its decoded form, while it waits for more records to be decided together with."""
    refused: bool = False
    """Whether the handler gave it up and decided the others of its unit."""
    given_up: GivenUp | None = None
    """Why it is a dead letter, if it is one."""


@dataclass(frozen=True, slots=True)
class Again:
    """The unit is not finished: try it after so many seconds; `split`: its halves each on their own.

    `gather`: the records of its lane that come meanwhile join it, and it is tried again with each.
    """

    after: float = 0.0
    split: bool = False
    gather: bool = False


@dataclass(slots=True, eq=False)
class Unit:
    """Records of one lane that are worked on together, in order; all of one assignment."""

    items: list[Queued]
    _given_back: list[Queued] = field(default_factory=list[Queued])

    @property
    def home(self) -> AssignedPartition:
        """The assignment that its records came with."""
        return self.items[0].home

    def keep(self, count: int) -> None:
        """Keep the first `count` records (at least 1); the others go back to the lane's front."""
        self._given_back[:0] = self.items[count:]
        del self.items[count:]

    def given_back(self) -> list[Queued]:
        """The records that are not part of it any more, in order."""
        return self._given_back


Run = Callable[[Unit], Awaitable[Again | None]]


class _State(Enum):
    IDLE = "nothing to do"
    READY = "waits for its turn"
    RUNNING = "a unit of it runs"
    PARKED = "waits until its unit is tried again"


@dataclass(slots=True, eq=False)
class _Lane:
    key: bytes
    queue: deque[Queued] = field(default_factory=deque[Queued])
    sizes: deque[int] = field(default_factory=deque[int])
    """How many records the next units take, where that is settled: a retry keeps its unit together."""
    state: _State = _State.IDLE
    timer: asyncio.TimerHandle | None = None
    gathers: bool = False
    """Parked until more records come."""
    grown: bool = False
    """Whether records came since its unit was taken."""

    def unpark(self) -> None:
        self.gathers = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def take(self, together: int) -> Unit:
        """Cut the next unit off the front: one assignment, no dead letter sent again among others."""
        self.grown = False
        wanted = self.sizes.popleft() if self.sizes else together
        first = self.queue.popleft()
        items, size = [first], first.size
        while self.queue and len(items) < wanted and not first.retry:
            following = self.queue[0]
            size += following.size
            if following.home is not first.home or following.retry or size > TOGETHER_BYTES:
                break
            items.append(self.queue.popleft())
        return Unit(items)

    def put_back(self, unit: Unit, again: Again | None) -> None:
        """Return to the front what the unit gave back and, if it is to be tried again, the unit itself."""
        self.queue.extendleft(reversed(_alive(unit.given_back())))
        items = _alive(unit.items) if again is not None else []
        if again is None or not items:
            return
        self.queue.extendleft(reversed(items))
        if again.gather:
            return
        half = len(items) // 2
        sizes = [half, len(items) - half] if again.split and half else [len(items)]
        self.sizes.extendleft(reversed(sizes))

    def drop_revoked(self) -> bool:
        """Forget revoked records; True if the first one was among them."""
        first = self.queue[0] if self.queue else None
        alive = _alive(self.queue)
        if len(alive) < len(self.queue):
            self.queue = deque(alive)
            self.sizes.clear()
        return first is not None and first.home.revoked


def _alive(items: Iterable[Queued]) -> list[Queued]:
    return [item for item in items if not item.home.revoked]


class Lanes:
    """Runs units of waiting records: at most one per lane, at most `at_once` altogether.

    While units of `records_at_once` records or more run, no other starts; None: without such a bound.
    """

    def __init__(
        self,
        run: Run,
        *,
        at_once: int,
        together: int = 1,
        records_at_once: int | None = None,
        slots: Slots | None = None,
    ) -> None:
        self._run = run
        self._at_once = at_once
        self._records_at_once = math.inf if records_at_once is None else records_at_once
        self._records_running = 0
        self._together = together
        self._slots = slots or Slots(at_once)
        self._lanes: dict[bytes, _Lane] = {}
        self._rounds: Rounds[_Lane] = Rounds()
        self._tasks: set[asyncio.Task[Again | None]] = set()
        self._paused = False
        self._probes = 0
        self._stopped = False
        self._call_pump = self._pump
        self.unawaited = Unawaited()
        """The units, which only a defect of the runtime lets raise, and what else the stage starts."""

    @property
    def running(self) -> int:
        """Units that run now."""
        return len(self._tasks)

    @property
    def queued(self) -> int:
        """Records that wait, those to be tried again included."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    def waiting(self) -> dict[str, int]:
        """Waiting records by reason: the order of their key, a place, the next attempt, a pause of the stage."""
        found: dict[str, int] = {"order": 0, "turn": 0, "retry": 0, "pause": 0}
        for lane in self._lanes.values():
            first = 0 if lane.state is _State.RUNNING or not lane.queue else 1
            found["order"] += len(lane.queue) - first
            parked = lane.state is _State.PARKED and not lane.gathers
            found["retry" if parked else "pause" if self._paused else "turn"] += first
        return found

    def waiting_alone(self) -> list[str]:
        """Why units failed that wait alone for their next attempt, while the stage goes on."""
        parked = (lane.queue[0] for lane in self._lanes.values() if lane.state is _State.PARKED)
        return [item.waits_for for item in parked if item.waits_for]

    @property
    def idle(self) -> bool:
        """Whether no record waits, and at most the unit that asks runs."""
        return len(self._tasks) <= 1 and not any(lane.queue for lane in self._lanes.values())

    @property
    def paused(self) -> bool:
        """Whether no new unit starts, probes excepted."""
        return self._paused

    def add(self, key: bytes, *items: Queued) -> None:
        """Put records (at least one) at the end of their lane, in order."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.queue.extend(items)
        lane.grown = True
        if lane.state is _State.IDLE or lane.gathers:
            lane.unpark()
            self._settle(lane)
            self._pump()

    def drop_revoked(self) -> None:
        """Forget waiting records whose partition was revoked; what runs goes on."""
        self._rounds.clear()
        for lane in list(self._lanes.values()):
            first_dropped = lane.drop_revoked()
            if lane.state is _State.PARKED and not first_dropped:
                continue
            if lane.state is not _State.RUNNING:
                lane.unpark()
                self._settle(lane)
        self._pump()

    def pause(self) -> None:
        """Start no new unit; what runs goes on."""
        self._paused = True

    def resume(self) -> None:
        """Start units again."""
        self._paused, self._probes = False, 0
        self._pump()

    def probe(self) -> None:
        """Let one unit start although paused: one that waits for its turn, else one that is parked."""
        self._probes = 1
        if not self._rounds:
            parked = next((lane for lane in self._lanes.values() if lane.state is _State.PARKED), None)
            if parked is not None:
                self._wake(parked)
        self._pump()

    async def stop(self, deadline: float) -> bool:
        """Start nothing more, wait `deadline` seconds for what runs, then cancel it; True if all finished."""
        self._stopped = True
        for lane in self._lanes.values():
            lane.unpark()
        running = set(self._tasks)
        if not running:
            return True
        _, unfinished = await asyncio.wait(running, timeout=deadline)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return not unfinished

    def _settle(self, lane: _Lane) -> None:
        if lane.queue:
            lane.state = _State.READY
            self._rounds.push(lane.queue[0].home, lane)
        else:
            lane.state = _State.IDLE
            del self._lanes[lane.key]

    def _wake(self, lane: _Lane) -> None:
        lane.unpark()
        self._settle(lane)
        self._pump()

    def _open(self) -> bool:
        return not self._stopped and (not self._paused or self._probes > 0)

    def _has_room(self) -> bool:
        return len(self._tasks) < self._at_once and self._records_running < self._records_at_once

    def _pump(self) -> None:
        while self._rounds and self._has_room() and self._open():
            if not self._slots.take(self._call_pump):
                return
            self._probes = 0
            lane = self._rounds.pop()
            lane.state = _State.RUNNING
            unit = lane.take(self._together)
            taken = len(unit.items)
            self._records_running += taken
            task = self.unawaited.add(asyncio.ensure_future(self._run(unit)))
            self._tasks.add(task)
            task.add_done_callback(partial(self._finished, lane, unit, taken))

    def _finished(self, lane: _Lane, unit: Unit, taken: int, task: asyncio.Task[Again | None]) -> None:
        self._tasks.discard(task)
        self._records_running -= taken
        again = None if task.cancelled() or task.exception() is not None else task.result()
        lane.put_back(unit, again)
        joined = again is not None and again.gather and lane.grown
        if again is not None and again.after > 0 and lane.queue and not (joined or self._stopped):
            lane.state, lane.gathers = _State.PARKED, again.gather
            lane.timer = asyncio.get_running_loop().call_later(again.after, self._wake, lane)
        else:
            self._settle(lane)
        self._slots.release()
        self._pump()
